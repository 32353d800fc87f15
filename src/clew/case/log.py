"""The append-only log of a case: `log.jsonl`, one entry per line, each with a checksum.

What `append` has returned from is on the disk. A process killed in the middle of a write leaves at most a torn last
line: readers leave it out and say so; the next writer moves it to a file beside the log and records that it did.
Writers take turns through a lock on the log itself, so any number of processes may append at once. A damaged line in
the middle is not something a crash can cause: such a log is refused rather than read in part.
"""

import fcntl
import os
import time
from typing import Any, NamedTuple

from clew.errors import ClewError
from clew.home import make
from clew.records import exact
from clew.records.case import KINDS, Entry

FORMAT = 1
NAME = "log.jsonl"
LONGEST = 4 * 1024 * 1024


class Content(NamedTuple):
    """What a log holds: its whole entries, the byte after the last of them, and the torn bytes that follow."""

    entries: tuple[Entry, ...]
    end: int
    torn: bytes


def create(folder: str, data: dict[str, Any]) -> None:
    """Make a new case folder with its first entry. The folder must not exist."""
    above = os.path.dirname(folder)
    try:
        make(above)
    except OSError as error:  # a file in its place among them, which must not pass for a case of that name
        raise ClewError(f"cannot create a case in {above}: {error.strerror}.") from error
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        raise
    except OSError as error:
        raise ClewError(f"cannot create a case in {above}: {error.strerror}.") from error
    append(folder, "opened", data)
    _sync_folder(folder)
    _sync_folder(os.path.dirname(folder))


def append(folder: str, kind: str, data: dict[str, Any]) -> int:
    """Add one entry and return its number. On return it has reached the disk."""
    return append_all(folder, [(kind, data)])[0]


def append_all(folder: str, entries: list[tuple[str, dict[str, Any]]]) -> list[int]:
    """Add several entries next to each other, as `append` does one."""
    lines = [_line(kind, data) for kind, data in entries]
    path = os.path.join(folder, NAME)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise ClewError(f"cannot write to {path}: {error.strerror}.") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = _content(path)
        first = len(content.entries) + 1
        if content.torn:
            lines.insert(0, _set_aside(folder, handle, content))
            first += 1
        _write(path, handle, b"".join(lines))
        return list(range(first, first + len(entries)))
    except OSError as error:
        raise ClewError(f"cannot write to {path}: {error.strerror}.") from error
    finally:
        os.close(handle)


def read(folder: str) -> Content:
    """Everything whole in the log. Never writes."""
    path = os.path.join(folder, NAME)
    if not os.path.isfile(path):
        raise ClewError(f"there is no case at {folder}: {NAME} is missing.")
    content = _content(path)
    if not content.entries:
        raise ClewError(f"{path} holds no case: its first entry is {'torn' if content.torn else 'missing'}.")
    return content


def _line(kind: str, data: dict[str, Any]) -> bytes:
    entry = {
        "v": FORMAT,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "by": os.environ.get("CLEW_USER") or os.environ.get("USER") or os.environ.get("LOGNAME") or "somebody",
        "kind": kind,
        "data": data,
    }
    entry["sum"] = exact.digest(entry)
    line = exact.dumps(entry).encode() + b"\n"
    if len(line) > LONGEST:
        raise ClewError(f"an entry of {len(line) >> 20} MiB is too large for a case log (at most {LONGEST >> 20} MiB).")
    return line


def _write(path: str, handle: int, line: bytes) -> None:
    try:
        done = 0
        while done < len(line):
            done += os.write(handle, line[done:])
        os.fsync(handle)
    except OSError as error:
        raise ClewError(f"cannot write to {path}: {error.strerror}; the entry was not recorded.") from error


def _content(path: str) -> Content:
    entries: list[Entry] = []
    end = 0
    try:
        with open(path, "rb") as file:
            while raw := file.readline(LONGEST + 1):
                if len(raw) > LONGEST:
                    if _more_lines(file):
                        raise ClewError(f"{path} line {len(entries) + 1} is over {LONGEST >> 20} MiB: not a case log.")
                    file.seek(end)
                    return Content(tuple(entries), end, file.read())
                entry = _entry(path, raw, len(entries) + 1)
                if entry is None:
                    rest = file.read()
                    if rest.strip():
                        raise ClewError(
                            f"{path} line {len(entries) + 1} is damaged (its checksum does not fit) and lines follow "
                            f"it; restore the file from a copy, or delete that line."
                        )
                    return Content(tuple(entries), end, raw + rest)
                entries.append(entry)
                end += len(raw)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    return Content(tuple(entries), end, b"")


def _more_lines(file: Any) -> bool:
    while chunk := file.read(1 << 20):
        if b"\n" in chunk:
            return True
    return False


def _entry(path: str, raw: bytes, number: int) -> Entry | None:
    """The entry, or None when the line is not whole."""
    if not raw.endswith(b"\n"):
        return None
    try:
        table = exact.loads(raw.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(table, dict) or not isinstance(table.get("v"), int):
        return None
    if table["v"] > FORMAT:
        raise ClewError(
            f"{path} was written by a newer clew (log format {table['v']}; this one reads up to {FORMAT}): "
            f"upgrade clew to open it."
        )
    given = table.pop("sum", None)
    if given != exact.digest(table) or table.get("kind") not in KINDS or not isinstance(table.get("data"), dict):
        return None
    return Entry(number, str(table.get("at", "")), str(table.get("by", "")), table["kind"], table["data"])


def _set_aside(folder: str, handle: int, content: Content) -> bytes:
    """Move the torn tail into a file of its own; returns the log line that says so."""
    name = f"torn-{content.end}.bin"
    with open(os.path.join(folder, name), "ab") as file:
        file.write(content.torn)
        file.flush()
        os.fsync(file.fileno())
    os.ftruncate(handle, content.end)
    return _line("set_aside", {"bytes": len(content.torn), "kept_in": name})


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
