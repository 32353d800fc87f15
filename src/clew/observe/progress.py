"""One line that says how far the run is, at the right edge of the terminal, drawn by the observed process itself.

The script's own text comes first. The line stands only where the next text of the script will begin, and is taken away
before that text is written: this process sees what passes through its streams. The cursor never moves, so text that
comes past them (from C++, from another program) begins where it would have begun, and taking the line away erases
nothing left of the cursor. A script that moves the cursor by itself gets no line at all.

Whether a line stands is a file in the run's folder: forked workers and other ranks take it away too, and so does clew
when the script was killed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from clew.home import private
from clew.records import exact

FLAG, CLUES = "progress", "progress-clues"
QUIET_SECONDS = 0.5
"""A line that would be gone again at once only flickers."""
TAIL = 1 << 16
OF_ITS_OWN = re.compile(r"\033(?!\[[0-9;]*m)|[\b\v\f\x84-\x9f]")
"""Anything but colours: the script lays out the screen by itself."""
FOREIGN = frozenset(("subprocess.Popen", "os.system", "os.posix_spawn", "pty.spawn"))
ASKS = frozenset(("builtins.input", *FOREIGN))


class State(NamedTuple):
    """What the line says."""

    step: int
    rate: float
    loss: float | None
    clues: str


class ProgressLine:
    """One per process. It is drawn on standard error, where that is a terminal."""

    def __init__(self, folder: str) -> None:
        self.flag = os.path.join(folder, FLAG)
        self.clues = os.path.join(folder, CLUES)
        self.streams: list[TextIO] = []
        self.open: dict[int, bool] = {}
        self.written = 0.0
        self.foreign = False
        self.on = True
        self.before: tuple[int, float] | None = None
        self.pid = os.getpid()
        sys.addaudithook(self._audit)

    def follow(self, stream: TextIO) -> None:
        if stream.isatty():
            self.streams.append(stream)

    def before_write(self, stream: TextIO, text: str) -> None:
        """Called before the script's text passes."""
        if stream not in self.streams:
            return
        self.clear()
        if text:
            self.open[id(stream)] = not text.endswith("\n")
            self.written = time.monotonic()
            if OF_ITS_OWN.search(text):
                self.on = False

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ASKS or (event == "open" and args[0] in ("/dev/tty", 1, 2)):
            self.foreign = self.foreign or event in FOREIGN
            self.on = self.on and args[:1] not in ((1,), (2,))  # a second stream to the terminal would not be seen
            with suppress(Exception):  # an error here would make the script's own call fail
                self.clear()

    def clear(self) -> None:
        """Take the line away if one stands. Of several processes the one that removes the file does it."""
        if os.path.exists(self.flag):
            try:
                os.unlink(self.flag)
            except OSError:
                return
            if _is_ours(2):
                os.write(2, b"\033[K")

    def draw(self, recorder: Any) -> None:
        """Called when everything seen so far has been written down. Only the first rank draws."""
        now = time.monotonic()
        before, self.before = self.before, (recorder.step, now)
        if not self._may(now) or (recorder.rank or (0, 1))[0] != 0:
            return
        rate = (recorder.step - before[0]) / (now - before[1]) if before and now > before[1] else 0.0
        state = State(recorder.step, rate, last_loss(recorder.stream.path), _text(self.clues))
        columns = os.get_terminal_size(2).columns
        said = line(state, columns - 2)
        if said:
            self.clear()
            with open(self.flag, "w", encoding="ascii", opener=private):
                pass
            os.write(2, f"\0337\033[{columns - len(said)}G{said}\0338".encode("ascii"))

    def _may(self, now: float) -> bool:
        if not self.on or os.getpid() != self.pid or sys.stderr not in self.streams or not _is_ours(2):
            return False
        if sys.stdout not in self.streams and sys.stdout is not None and sys.stdout.isatty():
            return False  # the script put something of its own before the terminal
        if any(self.open.values()) or now - self.written < QUIET_SECONDS:
            return False
        if not all(stream.line_buffering or stream.write_through for stream in self.streams):  # type: ignore[attr-defined]
            return False  # its text comes later than its write
        return not (self.foreign and _has_children())


def line(state: State, room: int) -> str:
    """As much as there is room for; the first part is the last to go."""
    parts = [f"clew: {state.step:,} step{'s' * (state.step != 1)}"]
    if state.loss is not None:
        parts.append(f"loss {state.loss:.4g}")
    if state.rate > 0:
        parts.append(f"{state.rate:.3g} it/s" if state.rate < 1000 else f"{state.rate:,.0f} it/s")
    parts.append(state.clues)
    while parts:
        said = ", ".join(part for part in parts if part)
        if len(said) <= room:
            return said
        parts.pop()
    return ""


def last_loss(path: str) -> float | None:
    """The last loss in a trace, from its end alone."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - TAIL))
            tail = file.read()
    except OSError:
        return None
    at = tail.rfind(b'["loss","",')
    return float(exact.loads(tail[at:].split(b"\n", 1)[0].decode("ascii"))[3]) if at >= 0 else None


def sweep(folder: str) -> None:
    """For clew itself, when the command has ended: nothing of the line is left, whatever became of the script."""
    standing = os.path.exists(os.path.join(folder, FLAG))
    for name in (FLAG, CLUES):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))
    if standing and _is_ours(2):
        os.write(2, b"\033[K")


def _is_ours(number: int) -> bool:
    """Whether this is a terminal, and this process may write on it without being stopped."""
    try:
        return os.isatty(number) and os.tcgetpgrp(number) == os.getpgrp()
    except OSError:
        return False


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""
