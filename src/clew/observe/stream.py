"""Writing a trace as it happens: one JSON value per line, flushed now and then, whole lines only."""

import os
from contextlib import suppress
from typing import Any

from clew.archive.files import Appender
from clew.home import private
from clew.records import exact

BUFFERED = 256


class Stream:
    def __init__(self, path: str) -> None:
        self.path = path
        self.file = Appender(path)
        self._lines: list[str] = []
        self._heads: dict[tuple[str, str], str] = {}

    def number(self, name: str, of: str, step: int, value: float) -> None:
        """Called at every step, so the line is put together from parts; the text is that of `exact.dumps`."""
        value = float(value)
        if value - value == 0.0:
            head = self._heads.get((name, of)) or self._head(name, of)
            self._lines.append(f"{head}{step},{value!r}]")
        else:
            self._lines.append(exact.dumps([name, of, step, value]))
        if len(self._lines) >= BUFFERED:
            self.flush()

    def _head(self, name: str, of: str) -> str:
        head = self._heads[name, of] = exact.dumps([name, of])[:-1] + ","
        return head

    def flush(self) -> None:
        if self._lines or self.file.missing:
            lines, self._lines = self._lines, []
            self.file.write("".join(f"{line}\n" for line in lines))

    def whole(self, path: str, value: Any) -> None:
        """Replace a file in one go; where there is no room for it, what was there before stays."""
        part = f"{path}.part"
        try:
            with open(part, "w", encoding="ascii", opener=private) as file:
                file.write(exact.dumps(value))
            os.replace(part, path)
        except OSError:
            with suppress(OSError):
                os.unlink(part)
