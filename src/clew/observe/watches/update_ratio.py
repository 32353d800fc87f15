"""How large is one update compared with the weights it changes?

Why it matters: about 1e-3 is usual. Far below it nothing is learned in the time there is, far above it ten steps
replace the weights.
Cannot tell: a wrong rate from a wrong gradient; small updates are right at the end of a schedule.
Silent when: a tensor starts as zeros, so that any update is huge against it. The rest is measured across the step
itself, on a sample of each weight matrix. A step that evaluates its closure many times (LBFGS) makes as many updates,
and counts by the part of one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, OptimizerEvent, Watch
from clew.observe.watches._training_values import matrices, median, real, skips
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

FIRST_STEPS = 100
"""The reading is about the first steps; the series goes on."""
VALUES = 4096
MOST = 10_000
OPTIMISERS = 64


class UpdateRatio(Watch):
    test = "update_ratio"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.before: dict[int, list[tuple[int, torch.Tensor]]] = {}
        self.steps: dict[int, int] = {}
        self.medians: dict[int, list[tuple[int, float]]] = {}  # per optimiser: its step, and the median over matrices
        self.tensors = 0
        self.from_zero: dict[int, bool] = {}  # tensors that were all zeros when first seen: any update is huge there

    def before_step(self, event: OptimizerEvent) -> None:
        self.before.pop(event.number, None)
        if not event.sampled or skips(event.optimizer):
            return
        held = [(id(parameter), real(parameter, VALUES)) for parameter in matrices(event.optimizer)]
        self.before[event.number] = [(key, values.clone()) for key, values in held if values is not None]

    def after_step(self, event: OptimizerEvent) -> None:
        taken = self.steps[event.number] = self.steps.get(event.number, 0) + 1
        before = self.before.pop(event.number, None)
        updates = max(1, self.recorder.evaluations)  # a closure may run backward many times within a step
        if not before:
            return
        now = {id(parameter): parameter for parameter in matrices(event.optimizer)}
        names = self.recorder.parameter_names()
        ratios = []
        for key, old in before:
            new = real(now[key], VALUES) if key in now else None
            size = float(torch.linalg.vector_norm(old))
            starts_at_zero = self.from_zero.setdefault(key, size == 0) if len(self.from_zero) < MOST else False
            if new is None or new.shape != old.shape or size == 0 or starts_at_zero:
                continue
            ratio = float(torch.linalg.vector_norm(new - old)) / size / updates
            ratios.append(ratio)
            if key in names:
                self.recorder.record("update_ratio", ratio, of=names[key])
        if (
            not any(ratios)
            and _stopped(event.optimizer)
            and any(value for _, value in self.medians.get(event.number, ()))
        ):
            return
        if ratios and taken <= FIRST_STEPS and len(self.medians) < OPTIMISERS:
            self.medians.setdefault(event.number, []).append((taken, median(ratios)))
            self.tensors = max(self.tensors, len(ratios))

    def read(self) -> Answer:
        if not self.medians:
            return Unclear("no optimiser step over non-zero weights was checked")
        spread = [value for number in self.medians for value in self._each_step(number)]
        middle = median(spread) if all(math.isfinite(value) for value in spread) else math.nan
        looked = sum(len(held) for held in self.medians.values())
        return Reading(median_update_over_weight=middle, steps=looked, matrices=self.tensors)

    def _each_step(self, number: int) -> list[float]:
        """One value per step taken: the first ones are all looked at, and would outvote the others."""
        held = self.medians[number]
        ends = [step for step, _ in held[1:]] + [min(self.steps[number], FIRST_STEPS) + 1]
        return [value for (step, value), end in zip(held, ends, strict=True) for _ in range(max(1, end - step))]


def _stopped(optimizer: Any) -> bool:
    """L-BFGS ends by itself where it finds nothing more to gain, and then takes no further step."""
    return isinstance(optimizer, torch.optim.LBFGS)
