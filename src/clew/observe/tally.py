"""Counts of a process that survive whatever ends it: a mapped file needs neither a write nor space on the disk."""

import os
import sys
from typing import Any

from clew.archive.files import read_bytes
from clew.errors import ClewError
from clew.home import private

STEPS, NUMBERS, TEXT = range(3)
"""Steps made, lines of the trace and pieces of the output that are not in their files."""
COUNTS = 3
BEGINS = "tally-"


class Tally:
    """torch maps the file because it keeps no handle of it: the script may close any and use its number again."""

    def __init__(self, folder: str) -> None:
        self._held: Any = [0] * COUNTS
        path = os.path.join(folder, f"{BEGINS}{os.getpid()}")
        try:
            with open(path, "wb", opener=private) as file:
                file.write(bytes(8 * COUNTS))
            torch = sys.modules["torch"]
            self._held = torch.from_file(path, shared=True, size=COUNTS, dtype=torch.int64).numpy()
        except (OSError, RuntimeError, KeyError):
            return  # what is counted then shows in the other files alone

    def put(self, which: int, count: int) -> None:
        self._held[which] = count


def read(path: str) -> tuple[int, ...]:
    try:
        held = read_bytes(path)
    except ClewError:
        held = b""
    return tuple(max(0, int.from_bytes(held[8 * at : 8 * at + 8], sys.byteorder, signed=True)) for at in range(COUNTS))
