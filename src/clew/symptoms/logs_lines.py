"""The lines of a file, however long and in whatever bytes, within bounds."""

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

CHUNK = 1 << 20
MOST = 64 << 20
"""Of a longer text the first and the last half of this are read: a run shows what it is at its start and at its end."""
LONGEST = 1 << 20
CUT = "a line of more than"

_END = re.compile(r"[\r\b]*\n|[\r\b]+")


class Lines:
    """The lines of a text file. A carriage return or a backspace ends a line too: progress bars redraw themselves.
    `redrawn` says of the line just given that it overwrote the one before it or was overwritten by the next."""

    def __init__(self, file: BinaryIO, encoding: str = "utf-8") -> None:
        self._file, self._encoding = file, encoding
        self.redrawn = False
        self.notes: list[str] = []

    def decode(self, data: bytes) -> str:
        return codecs.decode(data, self._encoding, "replace")

    def __iter__(self) -> Iterator[str]:
        size = self._file.seek(0, 2)
        if size <= MOST:
            yield from self._part(0, size)
            return
        self._note(f"the file is large: {max(1, (size - MOST) >> 20)} MiB from its middle were left out.")
        yield from self._part(0, MOST // 2)
        # Two-byte encodings are only in step at even places.
        yield from self._part(size - MOST // 2 + size % 2, size, late=True)

    def _part(self, start: int, end: int, late: bool = False) -> Iterator[str]:
        """The lines between two places of the file; `late` when the first of them is a fragment."""
        decoder = codecs.getincrementaldecoder(self._decoding(late))("replace")
        self._file.seek(start)
        held, skip, over, data = "", late, False, b"?"
        while data:
            data = self._file.read(min(CHUNK, max(0, end - self._file.tell())))
            text, at = held + decoder.decode(data, not data), 0
            for stop in _END.finditer(text):
                over_next = not stop[0].endswith("\n")
                if data and over_next and stop.end() == len(text):
                    break  # the return may be the first half of a line end
                if not skip:
                    self.redrawn = over or over_next
                    yield self._clean(text[at : stop.start()])
                at, skip, over = stop.end(), False, over_next
            held = text[at:]
            if len(held) > LONGEST:
                if not skip:
                    self._note(f"{CUT} {LONGEST >> 20} MiB was cut short.")
                    self.redrawn = over
                    yield self._clean(held)
                held, skip = "\r" if held.endswith("\r") else "", True
        if held and not skip:
            self.redrawn = over
            yield self._clean(held)

    def _clean(self, line: str) -> str:
        if "\ufffd" in line:
            self._note("some bytes are not valid text and were replaced.")
        return line[:LONGEST].replace("\0", "")

    def _decoding(self, late: bool) -> str:
        if self._encoding != "utf-16" or not late:
            return self._encoding
        self._file.seek(0)
        return "utf-16-le" if self._file.read(2) == b"\xff\xfe" else "utf-16-be"

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
