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

    What is written up to a line end is in the file when `write` returns. A full disk loses text and never raises: it is
    the user's run that prints. `failed` then says why and `lost` how many characters.
    """

    def __init__(self, path: str, start: float) -> None:
        """`start` is `time.monotonic()` at the start of the run: all processes of a machine share that clock."""
        self.path, self.start = path, start
        self.lost, self.failed = 0, ""
        self._handle = -1
        self._owner = os.getpid()
        self._stream, self._pending, self._since = "out", "", 0.0
        self._torn = False
        self._lock = RLock()

    @classmethod
    def of(cls, folder: str) -> "OutputLog":
        """The log of the run in `folder`, for a process that was told only that."""
        run = at(folder)
        clock = files.read_table(run.path(RUN)).get("clock")
        return cls(run.path(OUTPUT), clock if isinstance(clock, float) else time.monotonic())

    def write(self, stream: str, text: str) -> None:
        if self._owner != os.getpid():
            self._after_fork()
        with self._lock:
            if stream != self._stream:
                self.flush()
                self._stream = stream
            if not self._pending:
                self._since = time.monotonic() - self.start
            self._pending += text
            end = max(self._pending.rfind("\n"), self._pending.rfind("\r")) + 1
            if len(self._pending) - end >= PIECE:
                end = len(self._pending)
            if end:
                whole, self._pending = self._pending[:end], self._pending[end:]
                self._append(whole)

    def flush(self) -> None:
        """Write out what has no line end yet."""
        if self._owner != os.getpid():
            self._after_fork()
        with self._lock:
            if self._pending:
                whole, self._pending = self._pending, ""
                self._append(whole)

    def close(self) -> None:
        self.flush()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _after_fork(self) -> None:
        """The parent writes what it had pending; a lock that one of its threads held is held by nobody here."""
        self._owner, self._pending, self._lock = os.getpid(), "", RLock()

    def _append(self, text: str) -> None:
        for first in range(0, len(text), PIECE):
            piece = text[first : first + PIECE]
            line = exact.dumps({"s": self._stream, "t": round(self._since, 6), "text": piece}).encode() + b"\n"
            try:
                self._put(b"\n" + line if self._torn else line)
            except OSError as error:
                self.failed, self.lost = error.strerror or str(error), self.lost + len(piece)

    def _put(self, line: bytes) -> None:
        """One write per line: the system keeps appended writes of several processes apart."""
        if self._handle < 0:
            self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        done = 0
        while done < len(line):
            self._torn = self._torn or done > 0
            done += os.write(self._handle, line[done:])
        self._torn = False


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
