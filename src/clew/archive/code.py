"""The user's source files as they were: `code.json` names them, `.clew/objects` holds each content under its digest."""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from clew.archive import files
from clew.archive.home import objects_folder
from clew.archive.model import CODE, RUN, Run, SourceFile, home_of
from clew.errors import ClewError
from clew.home import make

LARGEST = 16 << 20
"""Nobody writes a source file of this size; what is larger was generated and is named without its content."""


def snapshot(run: Run, paths: Iterable[str]) -> tuple[SourceFile, ...]:
    """Keep the contents of `paths` and add them to the run's list; returns the whole list.

    Several processes of a run may do so at once. A path that is listed already keeps the content it had first.
    """
    cwd = str(files.read_table(run.path(RUN)).get("cwd", ""))
    objects = objects_folder(home_of(run))
    try:
        make(objects)
    except OSError as error:
        raise ClewError(f"cannot keep source files in {objects}: {error.strerror}.") from error
    with held(objects, fcntl.LOCK_SH), held(run.folder, fcntl.LOCK_EX):
        known = {item.path: item for item in read(run)}
        before = dict(known)
        for path in dict.fromkeys(os.path.abspath(os.path.join(cwd, path)) for path in paths):
            item = _keep(objects, path, shown(path, cwd))
            if item is None:
                continue
            first = known.setdefault(item.path, item)
            if first.digest != item.digest:
                known[item.path] = first._replace(changed=True)
        if known != before:
            _write(run, known)
    return tuple(known.values())


def shown(path: str, cwd: str) -> str:
    """Relative where the file lies below the folder of the run, so that the tree can be set up elsewhere."""
    below = cwd.rstrip(os.sep) + os.sep
    return path[len(below) :] if path.startswith(below) else path


def _keep(objects: str, path: str, name: str) -> SourceFile | None:
    """Store one file; None for one that cannot be read any more, because the run must not suffer from it."""
    try:
        size = os.stat(path).st_size
        if size > LARGEST or not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    return SourceFile(name, store(objects, content), len(content))


def store(objects: str, content: bytes) -> str:
    """Put a content into the store, once; returns its digest."""
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    path = object_path(objects, digest)
    try:
        # A store that a power cut left half written heals by itself: the size would be wrong.
        if os.stat(path).st_size == len(content):
            return digest
    except OSError:
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        except OSError as error:
            raise ClewError(f"cannot write to {objects}: {error.strerror}.") from error
    files.write_whole(path, content, sync=False)
    return digest


def object_path(objects: str, digest: str) -> str:
    return os.path.join(objects, digest[:2], digest[2:])


def fetch(run: Run, item: SourceFile) -> bytes:
    """The content of a source file of a run, checked against its digest."""
    import hashlib

    path = object_path(objects_folder(home_of(run)), item.digest)
    if not os.path.isfile(path):
        raise ClewError(f"the content of {item.path} is missing from the archive ({path} is not there).")
    content = files.read_bytes(path)
    if hashlib.sha256(content).hexdigest() != item.digest:
        raise ClewError(f"the content of {item.path} is damaged: {path} does not fit its digest.")
    return content


def read(run: Run) -> tuple[SourceFile, ...]:
    """The source files of a run; none when they were never listed."""
    path = run.path(CODE)
    if not os.path.exists(path):
        return ()
    table = files.read_table(path)
    try:
        return tuple(_item(row) for row in table["files"])
    except (KeyError, TypeError, OverflowError, ValueError) as error:
        raise ClewError(f"{path} is damaged: it lists no source files that can be read.") from error


def _item(row: dict[str, Any]) -> SourceFile:
    digest = str(row["digest"])
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise ValueError(f"{digest!r} is no digest")
    return SourceFile(str(row["path"]), digest, int(row["size"]), bool(row.get("changed", False)))


def _write(run: Run, known: dict[str, SourceFile]) -> None:
    rows = []
    for item in known.values():
        row: dict[str, Any] = {"path": item.path, "digest": item.digest, "size": item.size}
        rows.append({**row, "changed": True} if item.changed else row)
    files.write_table(run.path(CODE), {"files": rows})


@contextmanager
def held(folder: str, kind: int, wait: float = 30.0) -> Iterator[bool]:
    """Hold a lock on a folder; yields False where the file system knows none or somebody keeps it for too long."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ClewError(f"cannot open {folder}: {error.strerror}.") from error
    try:
        yield _locked(handle, kind, time.monotonic() + wait)
    finally:
        with suppress(OSError):
            os.close(handle)


def _locked(handle: int, kind: int, until: float) -> bool:
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.002)
        except OSError:
            return False
