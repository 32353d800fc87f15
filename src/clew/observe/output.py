"""A copy of what the script prints, in order, with the time it was printed.

The file is opened for each write: a script that closes all files it does not know would otherwise hand the number of
this one to a file of its own.
"""

import os
import time
from _thread import RLock
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from clew.records import exact

if TYPE_CHECKING:
    from clew.observe.progress import ProgressLine

LONGEST = 64 * 1024
HELD_BYTES = 4096
HELD_SECONDS = 1.0


class OutputCopy:
    def __init__(self, path: str, started: float) -> None:
        self.path, self.started, self.pid = path, started, os.getpid()
        self.progress: ProgressLine | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Also in a forked process: what the one before it held is that one's to write."""
        self.pid = os.getpid()
        self._lines: list[str] = []
        self._size = 0
        self._open: dict[str, str] = {}
        self._flushed = time.monotonic()
        self._lock = RLock()  # threads print too; one that another process held is nobody's here

    def attach(self, name: str, stream: TextIO) -> None:
        """The stream stays the object it is; only its write is followed."""
        original = stream.write
        progress = self.progress
        if progress is not None:
            progress.follow(stream)

        def write(text: str) -> Any:
            if progress is not None:
                with suppress(Exception):
                    progress.before_write(stream, text)
            done = original(text)
            try:
                with self._lock:
                    self._keep(name, text)
            except Exception:  # noqa: BLE001  # a full disk must not stop the script
                stream.write = original  # type: ignore[method-assign]
            return done

        try:
            stream.write = write  # type: ignore[method-assign]
        except AttributeError:
            return

    def _keep(self, name: str, text: str) -> None:
        """Whole lines; a progress bar redraws its own with a carriage return."""
        held = self._open.get(name, "") + text
        end = max(held.rfind("\n"), held.rfind("\r")) + 1
        self._open[name] = held[end:][-LONGEST:]
        if end:
            self._line(name, held[:end])
        if self._size > HELD_BYTES or time.monotonic() - self._flushed > HELD_SECONDS:
            self._write()

    def _line(self, name: str, text: str) -> None:
        line = exact.dumps({"s": name, "t": round(time.monotonic() - self.started, 3), "text": text})
        self._lines.append(line)
        self._size += len(line)

    def flush(self) -> None:
        """Everything, also lines that are not whole yet."""
        for name, rest in self._open.items():
            if rest:
                self._line(name, rest)
        self._open.clear()
        try:
            self._write()
        except OSError:
            self._lines.clear()

    def _write(self) -> None:
        self._flushed = time.monotonic()
        if not self._lines:
            return
        text, self._lines, self._size = "\n".join(self._lines) + "\n", [], 0
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
