"""The knowledge base, ready to use.

Parsing and checking the files takes about a third of a second; what comes out is kept in the user's cache folder under
a digest of what the files are, so that `clew why` starts in a few hundredths. The cache is only ever a copy: when it is
missing, damaged or of another version it is made again, and when it cannot be written nothing is lost but time. It is
kept in Python's own format for compiled modules, behind a checksum: JSON took ten times as long to read (docs/LOG.md).
"""

import gc
import marshal
import os
import sys
import zlib
from collections.abc import Callable
from typing import Any

from clew import __version__
from clew.knowledge import model
from clew.knowledge.model import Knowledge
from clew.records import exact

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
MOST_KEPT = 8
"""One for each environment that clew is installed in, so that two of them do not take turns in compiling."""

_held: dict[str, Knowledge] = {}


def load(folder: str = FOLDER) -> Knowledge:
    """The knowledge base of `folder`, checked; raises ClewError with every fault when the files are wrong."""
    if folder not in _held:

        def compiled() -> Any:
            from clew.knowledge.schema import compile_folder

            return _bare(compile_folder(folder))

        # A hundred thousand new objects, none of them garbage: collecting in between costs a tenth of the start.
        collecting = gc.isenabled()
        gc.disable()
        try:
            _held[folder] = _thaw(cached("knowledge", compiled, folder))
        finally:
            if collecting:
                gc.enable()
    return _held[folder]


def cached(name: str, make: Callable[[], Any], folder: str = FOLDER) -> Any:
    """What `make` gives, remembered for as long as the knowledge files and the code that reads them stay the same."""
    path = cache_path(name, _digest(folder))
    try:
        with open(path, "rb") as file:
            content = file.read()
        if content[:4] == _checksum(content[4:]):
            return marshal.loads(content[4:])
    except (OSError, ValueError, EOFError, TypeError):
        content = b""
    made = make()
    _keep(path, name, marshal.dumps(made))
    return made


def _keep(path: str, name: str, content: bytes) -> None:
    folder = os.path.dirname(path)
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(folder, exist_ok=True)
        with open(part, "wb") as file:
            file.write(_checksum(content) + content)
        os.replace(part, path)
        held = [os.path.join(folder, item) for item in os.listdir(folder) if item.startswith(f"{name}-")]
        for old in sorted(held, key=os.path.getmtime)[:-MOST_KEPT]:
            os.unlink(old)
    except OSError:
        return


def _checksum(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big")


def cache_path(name: str, key: str) -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "clew", f"{name}-{key}.bin")


def _digest(folder: str) -> str:
    """Which files, how long, and changed when: what Python asks about its own compiled modules. The code that gives
    the data its form counts too, so that a changed record type never meets an old cache."""
    here = os.path.dirname(os.path.abspath(__file__))
    parts = [f"{sys.implementation.cache_tag} {marshal.version} {__version__}"]
    for where in (here, os.path.join(os.path.dirname(here), "evidence"), folder):
        for root, _, names in os.walk(where):
            for name in names:
                if name.endswith((".py", ".toml", ".argdown")):
                    path = os.path.join(root, name)
                    found = os.stat(path)
                    parts.append(f"{path} {found.st_size} {found.st_mtime_ns}")
    return exact.digest(sorted(parts))


def _bare(value: Any) -> Any:
    """Records as plain tuples, which is all that the cache can hold."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items()}
    return tuple(_bare(item) for item in value) if isinstance(value, tuple) else value


def _records(kind: Any, table: dict[str, Any]) -> dict[str, Any]:
    return {key: kind._make(row) for key, row in table.items()}


def _thaw(table: tuple[Any, ...]) -> Knowledge:
    bare = Knowledge._make(table)
    return Knowledge(
        families=_records(model.Family, bare.families),
        causes={key: _thaw_cause(row) for key, row in bare.causes.items()},
        tests={key: _thaw_test(row) for key, row in bare.tests.items()},
        symptoms=_records(model.Symptom, bare.symptoms),
        triage=_records(model.TriageStep, bare.triage),
        lenses=_records(model.Lens, bare.lenses),
        habits=_records(model.Habit, bare.habits),
        antipatterns=_records(model.AntiPattern, bare.antipatterns),
        ranges=_records(model.Range, bare.ranges),
        references=_records(model.Reference, bare.references),
        domains=_records(model.Domain, bare.domains),
        claims={key: _thaw_claim(row) for key, row in bare.claims.items()},
        priors=model.Priors._make(bare.priors),
    )


def _thaw_cause(row: tuple[Any, ...]) -> model.Cause:
    cause = model.Cause._make(row)
    return cause._replace(variants=tuple(map(model.Variant._make, cause.variants)))


def _thaw_test(row: tuple[Any, ...]) -> model.Test:
    test = model.Test._make(row)
    return test._replace(
        outcomes=tuple(map(model.Outcome._make, test.outcomes)),
        rows=tuple(map(model.Row._make, test.rows)),
        scale=model.Scale._make(test.scale) if test.scale else None,
        decisive=tuple(map(model.Decisive._make, test.decisive)),
    )


def _thaw_claim(row: tuple[Any, ...]) -> model.Claim:
    claim = model.Claim._make(row)
    return claim._replace(sources=tuple(map(model.Source._make, claim.sources)))
