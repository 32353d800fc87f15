"""What the run did around the captured step, as it was kept: clipping, the course of the rate, augmentation."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable
from typing import Any

from clew.exams.subject import Clipping
from clew.records.place import Place

MOVES = 0.01
"""By what share of itself a rate must change to count as scheduled."""


class Around:
    """`optimizers` are the kept ones; a rate that the script sets by hand gets its peak for its plan, as a scheduler
    would have noted it."""

    def __init__(self, table: dict[str, Any], optimizers: list[dict[str, Any]], first: int) -> None:
        self.table = table
        self.first = first
        self.horizon = max(int(table.get("steps", 0)) - first, 0)
        self.course: list[tuple[int, float]] = []
        rates = {int(number): held for number, held in table.get("rates", [])}
        for held in optimizers:
            course = rates.get(int(held.get("number", -1)), [])
            for group, settings in enumerate(part["settings"] for part in held["groups"]):
                values = [float(rate[group]) for _, rate in course if group < len(rate)]
                if values and _moves(values) and "initial_lr" not in settings:
                    settings["initial_lr"] = max(values)
            self._follow(held, course)

    def _follow(self, held: dict[str, Any], course: list[Any]) -> None:
        """The factor by step of the group with the most parameters; of several optimisers, the first that moves."""
        if self.course or not course or not held["groups"]:
            return
        group = max(range(len(held["groups"])), key=lambda number: len(held["groups"][number]["parameters"]))
        planned = held["groups"][group]["settings"].get("initial_lr")
        values = [(int(step), float(rate[group])) for step, rate in course if group < len(rate)]
        if planned and _moves([value for _, value in values]):
            self.course = [(step, value / float(planned)) for step, value in values]

    def clipping(self) -> Clipping | None:
        held = self.table.get("clip")
        if not held:
            return None
        return Clipping(
            float(held["limit"]), held["kind"], float(held["norm_type"]), frozenset(held["parameters"]) - {""}
        )

    def schedule(self) -> Callable[[int], float] | None:
        """From the number of a step, counted from the captured one, to the factor of the rate. None where the rate
        stays, and where it has only risen so far: a start that is slow on purpose."""
        values = [value for _, value in self.course]
        if not values or min(value - before for before, value in itertools.pairwise(values)) > -MOVES:
            return None
        return self._factor

    def _factor(self, step: int) -> float:
        steps = [held[0] for held in self.course]
        at = bisect.bisect_right(steps, step + self.first) - 1
        if at < 0:
            return self.course[0][1]
        if at + 1 >= len(self.course):
            return self.course[-1][1]
        (left, low), (right, high) = self.course[at], self.course[at + 1]
        return low + (high - low) * (step + self.first - left) / (right - left)

    def place(self, part: str) -> Place | None:
        """Where the script does it: "clipping", "schedule", "augmentation"."""
        held = self.table.get("places", {}).get(part)
        return Place.from_json(held) if held else None

    def beyond(self) -> str:
        why = self.table.get("drawn", "")
        if why:
            return f"what {self.place('augmentation') or 'the script'} applies to the inputs at random: {why}"
        loader = self.table.get("loader", "")
        return f"random augmentation in the loader ({loader}): the rows before it were not observed" if loader else ""


def _moves(values: list[float]) -> bool:
    finite = [value for value in values if math.isfinite(value)]
    return bool(finite) and max(finite) - min(finite) > MOVES * max(abs(value) for value in finite)
