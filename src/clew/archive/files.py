"""Files that are whole or not there, and lines that survive the death of whoever wrote them."""

import json
import os
from collections.abc import Iterator
from typing import IO, Any

from clew.errors import ClewError
from clew.home import private
from clew.reading import opened, whole
from clew.records import exact

SCHEMA = "clew/1"
NEWEST = 1
BLOCK = 1 << 19
LONGEST = 64 << 20
LARGEST = 256 << 20
WAITING = 1 << 20
_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
_count = 0


def write_whole(path: str, content: bytes, sync: bool = True) -> None:
    """Replace a file in one go. With `sync`, it has reached the disk on return."""
    global _count
    _count += 1
    part = f"{path}.part-{os.getpid()}-{_count}"
    try:
        with open(part, "wb", opener=private) as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        if os.path.lexists(part):
            os.unlink(part)
        raise ClewError(f"cannot write {path}: {error.strerror}.") from error


class Appender:
    """Appends lines to a file, also when several processes do so at once. It never raises: lines that find no room wait
    until there is some, the newest `WAITING` bytes of them. Readers leave out the piece of a line that was cut off.

    The file is opened for each write: a script that closes all files it does not know would otherwise hand the number
    of this one to a file of its own.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.dropped = 0
        self.failed = ""
        self._waiting = b""
        self._torn = False

    @property
    def missing(self) -> int:
        """How many lines are not in the file."""
        return self.dropped + self._waiting.count(b"\n")

    def write(self, text: str) -> None:
        """Whole lines."""
        data = b"\n" * self._torn + self._waiting + text.encode()
        done = 0
        try:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                while done < len(data):
                    done += os.write(handle, data[done:])
            finally:
                os.close(handle)
        except OSError as error:
            self.failed = error.strerror or str(error)
        whole = data.rfind(b"\n", 0, done) + 1
        if done > whole and data[done : done + 1] == b"\n":
            whole = done + 1  # only its end is missing, which the next write begins with
        self._torn = done > data.rfind(b"\n", 0, done) + 1 or (self._torn and not done)
        self._waiting = data[whole:].lstrip(b"\n")
        if len(self._waiting) > WAITING:
            newest = self._waiting.find(b"\n", len(self._waiting) - WAITING) + 1 or len(self._waiting)
            self.dropped += self._waiting.count(b"\n", 0, newest)
            self._waiting = self._waiting[newest:]


def write_table(path: str, table: dict[str, Any]) -> None:
    write_whole(path, exact.pretty({"schema": SCHEMA, **table}).encode("utf-8", "backslashreplace"))


def read_bytes(path: str) -> bytes:
    try:
        return whole(path, LARGEST)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error


def read_table(path: str) -> dict[str, Any]:
    """A JSON object of a schema that this clew knows; anything else is a sentence."""
    try:
        table = parse(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise ClewError(f"{path} is damaged: it holds no readable JSON.") from error
    if not isinstance(table, dict):
        raise ClewError(f"{path} is damaged: it holds no JSON object.")
    check_schema(path, table.get("schema"))
    return table


def check_schema(path: str, schema: object) -> None:
    name, _, version = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != "clew" or not version.isdecimal():
        raise ClewError(f"{path} was not written by clew: its schema is {schema!r}, not {SCHEMA!r}.")
    if int(version) > NEWEST:
        raise ClewError(
            f"{path} was written by a newer clew (schema {schema}; this one reads up to {SCHEMA}): "
            f"upgrade clew to open it."
        )


def parse(raw: bytes) -> Any:
    """One JSON value, exactly: numbers that are not finite come back as themselves. ValueError when it is none."""
    return json.loads(raw.decode("utf-8"), object_hook=_restore, parse_constant=_refuse)


def _restore(table: dict[str, Any]) -> Any:
    if len(table) == 1 and exact.TAG in table:
        name = table[exact.TAG]
        if not isinstance(name, str) or name not in _FLOATS:
            raise ValueError(f"{name!r} is not a number")
        return _FLOATS[name]
    return table


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


class Damage:
    """What had to be left out while reading lines."""

    def __init__(self) -> None:
        self.torn = 0
        self.lines = 0

    def remarks(self, path: str) -> list[str]:
        name = os.path.basename(path)
        said = []
        if self.torn:
            said.append(f"the last {self.torn} bytes of {name} are torn (a write was cut off) and left out")
        if self.lines:
            plural = "lines of {} are damaged and are" if self.lines > 1 else "line of {} is damaged and is"
            said.append(f"{self.lines} {plural.format(name)} left out")
        return said


def blocks(path: str, damage: Damage) -> Iterator[list[bytes]]:
    """The whole lines of a file, some megabytes at a time. A file that is not there has none."""
    try:
        with opened(path) as file:
            yield from _blocks(file, damage)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error


def _blocks(file: IO[bytes], damage: Damage) -> Iterator[list[bytes]]:
    rest, overlong = b"", False
    while block := file.read(BLOCK):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if overlong and lines:
            del lines[0]
            overlong = False
            damage.lines += 1
        if overlong or len(rest) > LONGEST:
            rest, overlong = b"", True
        if lines:
            yield lines
    damage.torn += LONGEST if overlong else len(rest)


def lines(path: str, damage: Damage, start: bytes = b"") -> Iterator[Any]:
    """The values of a file that holds one per line.

    Where several processes append and one is killed in the middle of a write, the next one's line stands behind the
    torn piece. `start`, the bytes that every line begins with and that cannot occur inside one, finds it again.
    """
    for found in blocks(path, damage):
        for raw in found:
            if not raw:
                continue
            try:
                yield parse(raw)
            except (ValueError, RecursionError):
                damage.lines += 1
                behind = raw.rfind(start) if start else -1
                if behind > 0:
                    try:
                        yield parse(raw[behind:])
                    except (ValueError, RecursionError):
                        continue
