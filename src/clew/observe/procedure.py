"""What a script does around its training step: clipping, the rates of its optimisers, what its loader puts on the data.

Kept beside the step, so that an exam can leave these parts out one by one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from types import CodeType
from typing import Any

from clew.observe.places import is_users, shown
from clew.observe.watch import Clip, SchedulerStep
from clew.records.place import Place

MOST_RATES = 4096
DEEP = 4
AUGMENTS = re.compile(r"^Random|^Rand[A-Z]|augment|jitter|mixup|cutmix|cutout|erasing|noise", re.IGNORECASE)
INSIDE = ("dataset", "datasets", "transform", "transforms", "target_transform", "augment", "augmentation")
DRAWS = frozenset(
    "random randn rand randint uniform normal choice bernoulli beta rand_like randn_like normalvariate gauss".split()
)


class Procedure:
    def __init__(self) -> None:
        self.clip: dict[str, Any] | None = None
        self.scheduler = ""
        self.rates: dict[int, list[tuple[int, list[float]]]] = {}  # by optimiser: at which step, of every group
        self.steps = 0
        self.loader = ""
        self.places: dict[str, Place | None] = {}  # of the parts that an exam can leave out, by their names there
        self.drawn = ""  # why the rows before augmentation are not known

    def clipped(self, event: Clip, names: dict[int, str]) -> None:
        try:
            limit = float(event.limit)
        except (TypeError, ValueError):
            return
        if self.clip is None and math.isfinite(limit):
            held = [names.get(id(parameter), "") for parameter in event.parameters]
            self.clip = {"kind": event.kind, "limit": limit, "norm_type": event.norm_type, "parameters": held}
            self.places["clipping"] = event.place

    def scheduled(self, event: SchedulerStep) -> None:
        if not self.scheduler:
            self.scheduler = type(event.scheduler).__name__
            self.places["schedule"] = event.place

    def stepped(self, number: int, optimizer: Any, step: int) -> None:
        held = self.rates.setdefault(number, [])
        if len(held) < MOST_RATES:
            held.append((step, [float(group.get("lr", math.nan)) for group in optimizer.param_groups]))
        self.steps = step + 1

    def told(self) -> dict[str, Any]:
        return {
            "clip": self.clip,
            "scheduler": self.scheduler,
            "rates": [[number, [list(rate) for rate in rates]] for number, rates in self.rates.items()],
            "steps": self.steps,
            "loader": self.loader,
            "places": {name: place.to_json() for name, place in self.places.items() if place is not None},
            "drawn": self.drawn,
        }


def augmenting(iterator: Any) -> str:
    """What a loader puts on its rows by chance, by name; nothing when nothing of the kind is seen."""
    parts = [getattr(iterator, "_dataset", None), getattr(iterator, "_collate_fn", None)]
    found = dict.fromkeys(name for part in parts if part is not None for name in _random_parts(part, DEEP))
    return ", ".join(list(found)[:4])


def _random_parts(value: Any, depth: int) -> Iterator[str]:
    kind = type(value)
    if AUGMENTS.search(kind.__name__):
        yield kind.__name__
        return
    code = getattr(value, "__code__", None) or getattr(getattr(kind, "__getitem__", None), "__code__", None)
    if isinstance(code, CodeType) and is_users(code.co_filename) and not DRAWS.isdisjoint(code.co_names):
        yield f"{code.co_qualname} at {shown(code.co_filename)}:{code.co_firstlineno}"
    if not depth:
        return
    for inner in _inside(value):
        yield from _random_parts(inner, depth - 1)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from (item for item in value[:16] if callable(item))
        return
    held = getattr(value, "__dict__", None)
    for name in INSIDE:
        if isinstance(held, dict) and held.get(name) is not None:
            yield held[name]
