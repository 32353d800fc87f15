"""Do the conditions count beside the residual for as long as they are not met?

Follows the terms of a loss that holds derivatives of a network by its inputs: those with derivatives are residuals, the
others are conditions and data, as are those whose derivatives are taken at a tenth of the points or fewer.

Why it matters: most equations have a trivial solution; with conditions that weigh too little the network finds that
one, and the residual falls as it should.
Cannot tell: whether the weights, the units or a factor in the residual are to blame; conditions that hold derivatives
only; the size of gradients, which can differ where the values do not.
Silent when: the condition falls as well; the residual has not fallen much yet.
"""

from __future__ import annotations

import math
import statistics

from clew.observe.watch import Answer
from clew.observe.watches._physics_terms import Part, Solved
from clew.records.clue import Saw, Unclear

LOOKS = 8
STEPS = 60
FIRST = 10
FALLEN = 0.01
LEFT = 0.25
SMALL = 0.02
UNMET, MET, BESIDE = 0.7, 1e-4, 0.2
"""A condition that has not moved, beside a residual that fell ten thousandfold, was outweighed at any smaller size."""
WEIGHED = 0.1
NOTHING, CREPT, APART = 1e-3, 0.05, 0.01
"""A condition of a thousandth creeps along behind the residual; it may well have moved."""


class ConditionOutweighed(Solved):
    test = "condition_outweighed"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = [(step, parts) for step, parts in self.equations.parts if all(map(readable, parts))]
        if len(held) < LOOKS or held[-1][0] < STEPS:
            return Unclear(f"seeing which terms fall takes about {STEPS} steps")
        looks = [parts for _, parts in held if len(parts) == len(held[-1][1])]
        conditions = [number for number, part in enumerate(looks[-1]) if not part.residual]
        if len(looks) < LOOKS or not conditions:
            return Unclear("no boundary or initial condition was seen beside the residual at every step")
        fallen = residual(looks[-1]) / max(residual(parts) for parts in looks[:FIRST])
        answers = [self._of(looks, number, fallen) for number in conditions]
        return next((saw for saw in answers if saw.outcome == "outweighed"), answers[0])

    def _of(self, looks: list[list[Part]], number: int, fallen: float) -> Saw:
        early = [parts[number] for parts in looks[:FIRST]]
        share = statistics.median(
            part.value * part.weight / max(1e-300, residual(parts))
            for part, parts in zip(early, looks[:FIRST], strict=True)
        )
        left = looks[-1][number].value / max(1e-300, statistics.median(part.value for part in early))
        figures = {"condition_over_residual": share, "condition_left": left, "residual_left": fallen}
        small = share < SMALL and left > LEFT and fallen < FALLEN
        given_up = share < BESIDE and left > UNMET and fallen < MET
        behind = share < NOTHING and left > CREPT and fallen < APART * left
        # Where nobody weighed the condition down, the size of the residual is to blame.
        heaviest = max((part.weight for part in looks[-1] if part.residual), default=0.0)
        light = looks[-1][number].weight < WEIGHED * heaviest
        places = (None if light else self.equations.formula, looks[-1][number].place, self.equations.place)
        return Saw("outweighed" if small or given_up or behind else "counts", **figures).at(*places)


def residual(parts: list[Part]) -> float:
    """The largest term with derivatives, as it enters the loss."""
    return max((part.value * part.weight for part in parts if part.residual), default=0.0)


def readable(part: Part) -> bool:
    return math.isfinite(part.value) and math.isfinite(part.weight)
