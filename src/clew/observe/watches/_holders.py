"""What keeps tensors alive: the list or table of the user's that grows while a run's memory does.

All containers that Python knows of are counted twice, some steps apart, and only where memory was already seen to grow.
One that became longer and holds tensors is looked up by name among the user's modules, objects and running functions,
and the line that fills it is looked up in their source.
"""

from __future__ import annotations

import gc
import linecache
import re
import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.places import OPTIMIZED, is_users, local, shown, users_sources
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

LEAST = 16
"""Shorter containers are none that make a run's memory grow."""
OBJECT = 512
"""What a tensor takes besides its values, about."""
LOOKED_AT = 4
SOURCE_LINES = 20_000
FILLS = (r"\.(append|extend|add|insert|appendleft|update|setdefault)\(", r"\s*\+=", r"\s*\[[^]]*\]\s*=[^=]")


class Holders:
    """`look` now and then; `place` of what has grown."""

    def __init__(self) -> None:
        self.lengths: dict[int, int] = {}
        self.place: Place | None = None
        self.looks = 0
        self.bytes = 0  # of the tensors in what has grown and was found
        self.gain = 0  # by how many entries it grew between two looks

    def look(self) -> None:
        """Some tens of milliseconds."""
        if self.place is not None or self.looks >= LOOKED_AT:
            return
        self.looks += 1
        known, self.lengths = self.lengths, {}
        grown: list[tuple[int, Any, int]] = []
        for held in gc.get_objects():
            kind = type(held)
            if (kind is list or kind is dict or kind is deque) and len(held) >= LEAST:
                mark, length = id(held), len(held)
                if held is known or held is grown:
                    continue
                self.lengths[mark] = length
                gain = length - known.get(mark, length)
                if gain > 0 and _holds_tensors(held):
                    grown.append((_bytes(held), held, gain))
        grown.sort(key=lambda found: -found[0])
        for _, held, gain in grown[:4]:
            self.place = _named(held)
            if self.place is not None:
                self.gain, self.bytes = gain, 0 if isinstance(held, dict) else _own_bytes(held[-1]) * len(held)
                return


def _sample(held: Any) -> list[Any]:
    values = list(held.values())[-4:] if isinstance(held, dict) else [held[-1], held[-2], held[len(held) // 2]]
    return [item for value in values for item in _parts(value)][:16]


def _parts(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)


def _own_bytes(entry: Any) -> int:
    tensors = [item for item in _parts(entry) if isinstance(item, torch.Tensor)]
    return sum(item.numel() * item.element_size() + OBJECT for item in tensors)


def _holds_tensors(held: Any) -> bool:
    return any(isinstance(item, torch.Tensor) for item in _sample(held))


def _bytes(held: Any) -> int:
    """Of a few, times how many there are; what a graph holds besides makes it count for more."""
    parts = [item for item in _sample(held) if isinstance(item, torch.Tensor)]
    size = sum(item.numel() * item.element_size() + (1 << 20) * (item.grad_fn is not None) for item in parts)
    return size * len(held)


def _named(held: Any) -> Place | None:
    for name, codes in _owners(held):
        for file, first, last in codes:
            line = _filled(file, name, first, last)
            if line:
                return Place(shown(file), line, symbol=name, role="kept here")
    return None


Span = tuple[str, int, int]


def _owners(held: Any) -> Iterator[tuple[str, list[Span]]]:
    """The name under which the container is known, and the source in which to look for what fills it."""
    for frame in _frames():
        for name in (*frame.f_code.co_varnames, *frame.f_code.co_cellvars):
            if local(frame, name) is held:
                yield name, [(frame.f_code.co_filename, 1, SOURCE_LINES)]
    for referrer in gc.get_referrers(held):
        if type(referrer) is not dict:
            yield from _attribute(referrer, held)
            continue
        name = next((str(key) for key, value in list(referrer.items()) if value is held), "")
        file = referrer.get("__file__")
        if isinstance(file, str) and is_users(file):
            yield name, [(file, 1, SOURCE_LINES), *_all_users()]
        for owner in gc.get_referrers(referrer):
            if getattr(owner, "__dict__", None) is referrer:
                yield from _attribute(owner, held)


def _attribute(owner: Any, held: Any) -> Iterator[tuple[str, list[Span]]]:
    """An object of a class of the user's that has the container."""
    file = _file_of(type(owner))
    if not is_users(file):
        return
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if value is held:
            yield f"self.{name}", [(file, 1, SOURCE_LINES)]
            yield name, _all_users()


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename) and frame.f_code.co_flags & OPTIMIZED:
            yield frame
        frame = frame.f_back


def _file_of(kind: type) -> str:
    module = sys.modules.get(kind.__module__)
    return str(getattr(module, "__file__", None) or "<none>")


def _all_users() -> list[Span]:
    return [(file, 1, SOURCE_LINES) for file in users_sources()]


def _filled(file: str, name: str, first: int, last: int) -> int:
    wanted = re.compile(rf"(^|[^\w.]){re.escape(name)}({'|'.join(FILLS)})")
    lines = linecache.getlines(file)[first - 1 : last]
    return next((number for number, line in enumerate(lines, first) if wanted.search(line)), 0)
