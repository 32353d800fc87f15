"""Whether the values that a data set keeps change while it is read.

At the start of an epoch some values of each stored array are compared with those of the epoch before. Only changes that
build on what was there count: an array that is drawn anew for every epoch has nothing in common with its last content.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from clew.observe.places import shown
from clew.records.place import Place

VALUES = 4096
ARRAYS = 8
DEPTH = 3
CHANGED = 0.5  # of the values, from one epoch to the next
TIMES = 2
LIKE = 0.3  # what two contents have in common when one was made from the other


class Kept(NamedTuple):
    address: int
    values: Any


class Written(NamedTuple):
    name: str
    times: int
    place: Place | None


class Stored:
    def __init__(self) -> None:
        self._kept: dict[tuple[int, str], Kept] = {}
        self._times: dict[tuple[int, str], int] = {}
        self._places: dict[int, Place | None] = {}
        self.epochs = 0

    def look(self, loader: int, iterator: Any) -> None:
        """An epoch of this loader begins: its first batch has been given out."""
        dataset = getattr(iterator, "_dataset", None)
        self.epochs += 1
        for name, address, values in list(arrays(dataset))[:ARRAYS]:
            key = (loader, name)
            before = self._kept.get(key)
            self._kept[key] = Kept(address, values)
            if before is None or before.address != address or before.values.shape != values.shape:
                continue
            if float((before.values != values).mean()) > CHANGED and grown(before.values, values):
                self._times[key] = self._times.get(key, 0) + 1
                if loader not in self._places:
                    self._places[loader] = writer(dataset)

    def written(self) -> Written | None:
        for (loader, name), times in self._times.items():
            if times >= TIMES:
                return Written(name, times, self._places.get(loader))
        return None


def arrays(dataset: Any, depth: int = 0) -> Iterator[tuple[str, int, Any]]:
    """The float arrays that a data set keeps as attributes: name, address, some values. Nothing of it is called."""
    if dataset is None or depth > DEPTH:
        return
    for name, held in list(getattr(dataset, "__dict__", {}).items())[:64]:
        parts = held if isinstance(held, tuple) and name == "tensors" else (held,)
        for number, part in enumerate(parts):
            said = f"{name}[{number}]" if len(parts) > 1 else name
            if isinstance(part, torch.Tensor) and part.is_floating_point() and part.device.type == "cpu":
                if part.layout is torch.strided and part.numel() >= 2:
                    yield said, part.data_ptr(), thinned(part.detach().reshape(-1))
            elif isinstance(part, np.ndarray) and part.dtype.kind == "f" and part.size >= 2:
                yield said, part.ctypes.data, thinned(part.reshape(-1))
        if name == "dataset":
            yield from arrays(held, depth + 1)


def thinned(flat: Any) -> Any:
    some = flat[:: max(1, -(-len(flat) // VALUES))]
    return np.array(some.numpy() if isinstance(some, torch.Tensor) and some.dtype != torch.bfloat16 else some, float)


def grown(before: Any, now: Any) -> bool:
    """Whether the one was made from the other, rather than drawn anew."""
    if not (np.isfinite(before).all() and np.isfinite(now).all()):
        return False
    if now.std() == 0.0 or before.std() == 0.0:
        return bool(before.std() > 0.0)
    return abs(float(np.corrcoef(before, now)[0, 1])) > LIKE


def writer(dataset: Any) -> Place | None:
    """The line of the data set's own code that writes in place, otherwise where that code begins."""
    function = inspect.unwrap(getattr(type(dataset), "__getitem__", None) or (lambda: None))
    code = getattr(function, "__code__", None)
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    line = min((_line(node) for node in ast.walk(tree) if _in_place(node)), default=1)
    return Place(file=shown(code.co_filename), line=first + line - 1) if code is not None else None


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _in_place(node: ast.AST) -> bool:
    if isinstance(node, ast.AugAssign):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Subscript) for target in node.targets)
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr.endswith("_") and not called.attr.endswith("__")
