"""A copy of what the script prints, in order, with the time it was printed."""

import os
import time
from typing import Any, TextIO

from clew.records import exact

HELD = 64 * 1024


class OutputCopy:
    def __init__(self, path: str, started: float) -> None:
        self.path, self.started, self.pid = path, started, os.getpid()
        self._lines: list[str] = []
        self._size = 0
        self._open: dict[str, str] = {}

    def attach(self, name: str, stream: TextIO) -> None:
        original = stream.write

        def write(text: str) -> Any:
            done = original(text)
            try:
                self._keep(name, text)
            except OSError:
                stream.write = original  # type: ignore[method-assign]  # a full disk must not stop the script
            return done

        try:
            stream.write = write  # type: ignore[method-assign]  # the stream stays the object it was
        except AttributeError:
            return

    def _keep(self, name: str, text: str) -> None:
        if os.getpid() != self.pid or not isinstance(text, str):
            return
        held = self._open.get(name, "") + text
        whole, newline, rest = held.rpartition("\n")
        self._open[name] = rest[-HELD:]
        if newline:
            self._line(name, whole + "\n")

    def _line(self, name: str, text: str) -> None:
        line = exact.dumps({"t": round(time.monotonic() - self.started, 3), "s": name, "text": text})
        self._lines.append(line)
        self._size += len(line)
        if self._size > 4096 or len(self._lines) > 20:
            self.flush()

    def flush(self) -> None:
        if os.getpid() != self.pid:
            return
        for name, rest in self._open.items():
            if rest:
                self._open[name] = ""
                self._lines.append(
                    exact.dumps({"t": round(time.monotonic() - self.started, 3), "s": name, "text": rest})
                )
        if not self._lines:
            return
        text, self._lines, self._size = "\n".join(self._lines) + "\n", [], 0
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
