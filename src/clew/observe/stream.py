"""Writing a trace as it happens: one JSON value per line, flushed now and then, whole lines only."""

import os
from typing import Any

from clew.home import private
from clew.records import exact

BUFFERED = 256


class Stream:
    def __init__(self, path: str) -> None:
        self.path = path
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
        if not self._lines:
            return
        text, self._lines = "\n".join(self._lines) + "\n", []
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)

    def whole(self, path: str, value: Any) -> None:
        """Replace a file in one go."""
        part = f"{path}.part"
        with open(part, "w", encoding="ascii", opener=private) as file:
            file.write(exact.dumps(value))
        os.replace(part, path)


def read_numbers(path: str) -> list[tuple[str, str, int, float]]:
    """The numbers of a trace; a torn last line is left out."""
    found = []
    with open(path, "rb") as file:
        for raw in file:
            if raw.endswith(b"\n"):
                name, of, step, value = exact.loads(raw.decode("ascii"))
                found.append((str(name), str(of), int(step), float(value)))
    return found
