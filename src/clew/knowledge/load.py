"""The knowledge base, ready to use.

Parsing and checking the files takes about a third of a second; the result is kept as JSON in the user's cache folder
under the digest of the files, so that `clew why` starts in a few hundredths. The cache is only ever a copy: when it is
missing, unreadable or of another version it is made again, and when it cannot be written nothing is lost but time.
"""

import hashlib
import json
import os
from typing import Any

from clew.knowledge import model
from clew.knowledge.model import Knowledge

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
FORM = 1

_held: dict[str, Knowledge] = {}


def load(folder: str = FOLDER) -> Knowledge:
    """The knowledge base of `folder`, checked; raises ClewError with every fault when the files are wrong."""
    if folder not in _held:
        key = _digest(folder)
        _held[folder] = _from_cache(key) or _compile(folder, key)
    return _held[folder]


def _compile(folder: str, key: str) -> Knowledge:
    from clew.knowledge.schema import compile_folder

    knowledge = compile_folder(folder)
    _to_cache(key, knowledge)
    return knowledge


def _digest(folder: str) -> str:
    """Over the code that gives the data its form as well, so that a changed record type never meets an old cache."""
    total = hashlib.sha256(str(FORM).encode())
    here = os.path.dirname(os.path.abspath(__file__))
    evidence = os.path.join(os.path.dirname(here), "evidence")
    code = [
        os.path.join(where, name) for where in (here, evidence) for name in os.listdir(where) if name.endswith(".py")
    ]
    data = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]
    for path in sorted(data) + sorted(code):
        with open(path, "rb") as file:
            content = file.read()
        total.update(f"{os.path.basename(path)}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()[:24]


def cache_path(key: str) -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "clew", f"knowledge-{key}.json")


def _from_cache(key: str) -> Knowledge | None:
    try:
        with open(cache_path(key), "rb") as file:
            return _thaw(json.load(file))
    except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError):
        return None


def _to_cache(key: str, knowledge: Knowledge) -> None:
    path = cache_path(key)
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}"
        with open(part, "w", encoding="ascii") as file:
            json.dump(knowledge._asdict(), file, separators=(",", ":"))
        os.replace(part, path)
    except OSError:
        return


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _records(kind: Any, table: dict[str, Any]) -> dict[str, Any]:
    return {key: kind(*_tuples(row)) for key, row in table.items()}


def _thaw(table: dict[str, Any]) -> Knowledge:
    return Knowledge(
        families=_records(model.Family, table["families"]),
        causes=_records(model.Cause, table["causes"]),
        tests={key: _thaw_test(row) for key, row in table["tests"].items()},
        symptoms=_records(model.Symptom, table["symptoms"]),
        triage=_records(model.TriageStep, table["triage"]),
        lenses=_records(model.Lens, table["lenses"]),
        habits=_records(model.Habit, table["habits"]),
        antipatterns=_records(model.AntiPattern, table["antipatterns"]),
        ranges=_records(model.Range, table["ranges"]),
        references=_records(model.Reference, table["references"]),
        domains=_records(model.Domain, table["domains"]),
        claims={key: _thaw_claim(row) for key, row in table["claims"].items()},
        priors=model.Priors(*_tuples(table["priors"])),
    )


def _thaw_test(row: list[Any]) -> model.Test:
    test = model.Test(*_tuples(row))
    return test._replace(
        outcomes=tuple(model.Outcome(*item) for item in test.outcomes),
        rows=tuple(model.Row(*item) for item in test.rows),
        scale=model.Scale(*test.scale) if test.scale else None,
        decisive=tuple(model.Decisive(*item) for item in test.decisive),
    )


def _thaw_claim(row: list[Any]) -> model.Claim:
    claim = model.Claim(*_tuples(row))
    return claim._replace(sources=tuple(model.Source(*item) for item in claim.sources))
