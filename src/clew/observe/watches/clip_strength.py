"""By what factor does gradient clipping shorten the steps?

Why it matters: under plain SGD a limit far below every gradient is the step: the rate times the limit, whatever the
data say. Adam divides by the size of the gradient and takes such a factor out again, unless the limit leaves gradients
below the small number that it adds to their size: then its steps vanish.
Cannot tell: whether steps of one length were wanted.
Silent when: the limit is within a factor of thirty of the gradients (language models and recurrent ones clip most steps
by less), the optimiser evens the factor out, or the run is too short to tell a rule from a rough start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Clip, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._training_updates import adaptive
from clew.observe.watches._training_values import median
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

FEWEST = 12
"""Sampled calls: the dense ones at the start and some from later on."""


class ClipStrength(Watch):
    test = "clip_strength"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.factors: list[float] = []
        self.fresh = False
        self.place: Place | None = None
        self.limit = math.inf
        self.steps = 0
        self.by_value = self.adapts = False

    @when_sampled
    def clip(self, event: Clip) -> None:
        if event.kind != "norm":
            self.by_value = True
        elif event.norm is not None and float(event.limit) > 0:
            self.factors = [*self.factors, float(event.norm) / float(event.limit)][-400:]
            self.place, self.limit, self.fresh = event.place, float(event.limit), True

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        if self.fresh:
            self.adapts = self.adapts or (adaptive(event.optimizer) and not self._vanishes(event))
            self.fresh = False

    def _vanishes(self, event: OptimizerEvent) -> bool:
        """Whether what is left of a gradient is smaller, value by value, than what keeps a division by it apart from
        zero."""
        added = min((float(group.get("eps") or 0.0) for group in event.optimizer.param_groups), default=0.0)
        count = sum(parameter.numel() for group in event.optimizer.param_groups for parameter in group["params"])
        return self.limit < added * math.sqrt(max(count, 1))

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.by_value:
            return Unclear("single values are clipped, not the norm")
        if not self.factors:
            return Reading(shortened_by=1.0)
        if self.adapts:
            return Unclear("the optimiser normalises away a common factor of its gradients")
        if len(self.factors) < FEWEST:
            return Unclear(f"only {len(self.factors)} clipping calls were sampled")
        least = sorted(self.factors)[len(self.factors) // 10]  # nine in ten are shortened by this or more
        if not math.isfinite(least):
            return Unclear("the gradients are not finite")
        reading = Reading(shortened_by=max(1.0, least), limit=self.limit, median_factor=median(self.factors))
        return reading.at(self.place) if self.place is not None else reading
