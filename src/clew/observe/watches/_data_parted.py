"""Whether the classes are parted among the training steps, told from the labels at the loss.

This serves loops that cut their batches by hand: no loader says in which order the examples come, and only some steps
are looked at. Steps of random batches hold all classes in their shares; steps of sorted examples hold one class each.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from clew.observe.watches._loss_values import CLASSES, ignored, integers

if TYPE_CHECKING:
    from clew.observe.watch import LossCall
    from clew.records.place import Place

STEPS, SMALLEST, SITES = 8, 8, 16
MOST_STEPS, MOST_LABELS, KINDS = 256, 4096, 200
PURE = 0.5
"""How far steps must be of one class, from 0 (all classes in their shares) to 1 (one class each)."""


class Sorted(NamedTuple):
    z: float  # standard deviations above random batches of the same labels; 0 where steps are not nearly of one class
    labels: int
    steps: int
    of_one_class: int
    place: Place | None


class Parted:
    def __init__(self) -> None:
        self._sites: dict[Place | None, dict[int, Counter[int]]] = {}

    def note(self, event: LossCall, rows: int | None) -> None:
        """One label for each example that the model was given: the tokens of a text come in the order of the text."""
        target = event.target
        if event.name not in CLASSES or not integers(target) or target.dim() != 1 or event.input.dim() != 2:
            return
        if rows is None or target.shape[0] != rows or rows > MOST_LABELS:
            return
        steps = self._sites.get(event.place)
        if steps is None and len(self._sites) < SITES:
            steps = self._sites[event.place] = {}
        if steps is not None and (event.step in steps or len(steps) < MOST_STEPS):
            left_out = ignored(event)
            steps.setdefault(event.step, Counter()).update(
                label for label in target.detach().cpu().tolist() if label != left_out
            )

    def read(self) -> Sorted | None:
        found = [said for place, steps in self._sites.items() if (said := _told(place, list(steps.values())))]
        return max(found, key=lambda said: (said.z, said.labels)) if found else None


def _told(place: Place | None, steps: list[Counter[int]]) -> Sorted | None:
    steps = [step for step in steps if step.total() >= SMALLEST]
    whole = sum(steps, Counter[int]())
    labels = whole.total()
    if len(steps) < STEPS or not 2 <= len(whole) <= min(KINDS, labels // SMALLEST):
        return None
    one = sum(len(step) == 1 for step in steps)
    chance = sum((count / labels) ** 2 for count in whole.values())
    within = sum(sum((count / step.total()) ** 2 for count in step.values()) for step in steps) / len(steps)
    pure = (within - chance) / (1.0 - chance)
    return Sorted(apart_z(steps, whole) if pure >= PURE else 0.0, labels, len(steps), one, place)


def apart_z(steps: list[Counter[int]], whole: Counter[int]) -> float:
    """Pearson's statistic of the table of steps by classes, in standard deviations above its mean."""
    labels = whole.total()
    chi = sum(
        (step[kind] - expected) ** 2 / expected
        for step in steps
        for kind, count in whole.items()
        if (expected := step.total() * count / labels)
    )
    free = (len(steps) - 1) * (len(whole) - 1)
    return float((chi - free) / (2.0 * free) ** 0.5)
