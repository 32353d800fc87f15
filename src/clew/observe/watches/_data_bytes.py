"""Whether bytes wrap around between the lines that make an example: 200 + 80 is 24 in eight bits.

Between a step and the next batch Python itself says when a function of the user's returns. What it returns is held
against the arrays that it and its caller know by name: bytes that lie one fixed number apart around the circle of 256,
and not along the line, were added up without room; so were bytes that are the low eight bits of larger numbers. Nothing
is replaced for this, and a profiler is left alone.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.guard import release
from clew.observe.places import is_users, shown
from clew.records.place import Place

if TYPE_CHECKING:
    from types import FrameType

WINDOWS = 4
MOST_EVENTS = 100_000
"""Calls and returns followed in one window."""
COMPARED = 400
LEAST, LARGEST = 64, 4_000_000
GIVES, DEPTH = "__getitem__", 12
DISTINCT = 3
"""Values that find no room; a single one is a mark, as 0 is where classes are counted down and 255 is ignored."""
SHARE = 0.002
"""Of the values, on the smaller of the two sides."""
CIRCLE = re.compile(r"^(h|hues?|angles?|phases?|thetas?|directions?|headings?)$|hue|angle|phase", re.IGNORECASE)
MEANT = re.compile(r"%|\bmod\b|remainder|0xff|& ?255|bitwise|hash|crc", re.IGNORECASE)


class Wrapped(NamedTuple):
    name: str
    by: int  # what was added, 0 where larger numbers were cast
    changed: int
    of: int
    place: Place


class Bytes:
    """`start` and `stop` enclose the making of a batch; `found` is the first example that shows it."""

    def __init__(self) -> None:
        self.found: Wrapped | None = None
        self.broken = ""  # why it looks no further
        self.windows = 0
        self._following = False
        self._events = self._compared = 0

    def start(self) -> None:
        if self._following or self.found or self.windows >= WINDOWS or sys.getprofile() is not None:
            return
        self.windows += 1
        self._events, self._following = 0, True
        sys.setprofile(self._profile)

    def stop(self) -> None:
        if self._following:
            self._following = False
            if sys.getprofile() == self._profile:
                sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        self._events += 1
        if not self._following:  # it was stopped from another thread
            sys.setprofile(None)
        elif self._events > MOST_EVENTS or self._compared > COMPARED:
            self.stop()
        elif event == "return" and value is not None and is_users(frame.f_code.co_filename):
            try:
                self._returned(frame, value)
            except BaseException as error:  # noqa: BLE001  # an error here would be raised in the script
                release(error)
                self.broken, self.windows = f"{type(error).__name__}: {error}", WINDOWS
                self.stop()

    def _returned(self, frame: FrameType, value: Any) -> None:
        results = [held for held in map(_array, value if isinstance(value, tuple) else (value,)) if held is not None]
        if not any(held.dtype == np.uint8 for held in results):
            return
        for name, known in _known(frame):
            for result in results:
                if result.dtype != np.uint8 or result.shape != known.shape or result is known:
                    continue
                self._compared += 1
                told = wrapped(known, result)
                if told is not None and not _meant(frame):
                    place = Place(shown(frame.f_code.co_filename), frame.f_lineno, symbol=frame.f_code.co_qualname)
                    self.found = Wrapped(name, told[0], told[1], result.size, place)
                    self.stop()
                    return


def _known(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Arrays by name, where the function returns and where it was called. Only on the way to an example: to ask the
    training loop for its names would keep its tensors alive."""
    above = frame.f_back if frame.f_code.co_name != GIVES and _gives(frame) else None
    for at in (frame, above if above is not None and is_users(above.f_code.co_filename) else None):
        for name, value in list(at.f_locals.items())[:32] if at is not None else ():
            held = None if CIRCLE.search(name) else _array(value)
            if held is not None:
                yield name, held


def _gives(frame: FrameType) -> bool:
    at: FrameType | None = frame
    for _ in range(DEPTH):
        at = at.f_back if at is not None else None
        if at is None or at.f_code.co_name == GIVES:
            break
    return at is not None and at.f_code.co_name == GIVES


def _array(value: Any) -> Any:
    """Bytes and numbers with at least two axes, as an array over the same memory."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided or value.requires_grad:
            return None
        value = value.numpy() if value.dtype in (torch.uint8, torch.float32, torch.float64, torch.int64) else None
    if type(value) is not np.ndarray or value.ndim < 2 or not LEAST <= value.size <= LARGEST:
        return None
    return value if value.dtype == np.uint8 or value.dtype.kind in "fi" else None


def wrapped(before: Any, after: Any) -> tuple[int, int] | None:
    """What was added to bytes, and to how many there was no room; 0 for larger numbers that were cast."""
    if before.dtype == np.uint8:
        by = after - before  # modulo 256, as it was made
        if not int(by.flat[0]) or bool((by != by.flat[0]).any()):
            return None
        lost = after < before
        added = int(by.flat[0])
        if 2 * int(lost.sum()) > after.size:
            added, lost = added - 256, ~lost
    elif np.isfinite(before).all() and np.abs(before).max() < 2**31:
        whole = np.trunc(before).astype(np.int64)
        added, lost = 0, (whole < 0) | (whole > 255)
        if bool(((whole & 255) != after).any()):
            return None
    else:
        return None
    count = int(lost.sum())
    few = count <= SHARE * after.size or len(np.unique(after[lost])) < DISTINCT
    return None if few else (added, count)


def _meant(frame: FrameType) -> bool:
    """Whether the function speaks of a remainder itself, or of something that goes round in a circle."""
    code = frame.f_code
    round_about = any(CIRCLE.search(name) and _array(value) is not None for name, value in frame.f_locals.items())
    if round_about or CIRCLE.search(code.co_name):
        return True
    lines = {line for _, _, line in code.co_lines() if line}
    return any(MEANT.search(linecache.getline(code.co_filename, line)) for line in lines)
