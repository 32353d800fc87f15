"""What a run printed: `output.jsonl`, one piece of text per line, with its second and its stream."""

import os
import time
from _thread import RLock
from collections.abc import Iterator
from typing import NamedTuple

from clew.archive import files
from clew.archive.model import OUTPUT, RUN, Run, at
from clew.records import exact

PIECE = 1 << 16
START = b'{"s":"'
"""Every line begins with this, and no text inside one can hold it unescaped."""


class Said(NamedTuple):
    """A piece of text. `stream` is "out" or "err"."""

    seconds: float
    stream: str
    text: str


class OutputLog:
    """Appends what a process prints, line by line; any number of processes may write to one log.

    What is written up to a line end is in the file when `write` returns, unless `held` bytes may wait for `flush`. A
    full disk never raises: it is the user's run that prints.
    """

    def __init__(self, path: str, start: float, held: int = 0) -> None:
        """`start` is `time.monotonic()` at the start of the run: all processes of a machine share that clock."""
        self.start, self.held = start, held
        self.file = files.Appender(path)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked process: what was pending is its parent's to write, and a lock that one of the parent's
        threads held is held by nobody here."""
        self._owner, self._lock = os.getpid(), RLock()
        self._stream, self._pending, self._since = "out", "", 0.0
        self._lines: list[str] = []
        self._size = 0
        self.file = files.Appender(self.file.path)

    @classmethod
    def of(cls, folder: str) -> "OutputLog":
        """The log of the run in `folder`, for a process that was told only that."""
        run = at(folder)
        clock = files.read_table(run.path(RUN)).get("clock")
        return cls(run.path(OUTPUT), clock if isinstance(clock, float) else time.monotonic())

    @property
    def waits(self) -> bool:
        """Whether anything has not been written yet."""
        return bool(self._pending or self._lines)

    def write(self, stream: str, text: str) -> None:
        if self._owner != os.getpid():
            self.begin_anew()
        with self._lock:
            if stream != self._stream:
                self._line(self._pending)
                self._stream, self._pending = stream, ""
            if not self._pending:
                self._since = time.monotonic() - self.start
            self._pending += text
            end = max(self._pending.rfind("\n"), self._pending.rfind("\r")) + 1
            if len(self._pending) - end >= PIECE:
                end = len(self._pending)
            whole, self._pending = self._pending[:end], self._pending[end:]
            self._line(whole)
            if self._size > self.held:
                self._write()

    def flush(self) -> None:
        """Write out what has no line end yet too."""
        if self._owner != os.getpid():
            self.begin_anew()
        with self._lock:
            whole, self._pending = self._pending, ""
            self._line(whole)
            self._write()

    def _line(self, text: str) -> None:
        for first in range(0, len(text), PIECE):
            piece = text[first : first + PIECE]
            self._lines.append(exact.dumps({"s": self._stream, "t": round(self._since, 6), "text": piece}) + "\n")
            self._size += len(piece)

    def _write(self) -> None:
        if self._lines or self.file.missing:
            text, self._lines, self._size = "".join(self._lines), [], 0
            self.file.write(text)


def read(run: Run, damage: files.Damage) -> Iterator[Said]:
    """What was printed, in order; `damage` counts what had to be left out."""
    for value in files.lines(run.path(OUTPUT), damage, START):
        if (
            isinstance(value, dict)
            and value.get("s") in ("out", "err")
            and isinstance(value.get("text"), str)
            and isinstance(value.get("t"), int | float)
        ):
            yield Said(float(value["t"]), value["s"], value["text"])
        else:
            damage.lines += 1


def tail(run: Run, most: int = 10) -> tuple[list[str], list[str]]:
    """The last lines that were printed, and what there is to remark."""
    from collections import deque

    damage = files.Damage()
    kept: deque[str] = deque(maxlen=most + 1)
    rest = ""
    for said in read(run, damage):
        *whole, rest = (rest + said.text).split("\n")
        kept.extend(whole)
    kept.extend([rest] if rest else [])
    return list(kept)[-most:], damage.remarks(OUTPUT)
