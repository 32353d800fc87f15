"""On which share of the steps does gradient clipping bind?

Why it matters: a limit that always binds sets the length of every step, so it has become the learning rate, and the
size of the raw gradient is hidden.
Cannot tell: harm from habit: language models clip on most early steps and are well, and Adam hardly notices a constant
factor.
Silent when: the limit is infinite (the call is used to measure), single values are clipped instead of the norm, the
run is too short to tell a limit that always binds from a start with large gradients, or Adam and its like even out a
limit that is not far below the gradients, or one of an agent, whose value targets are as large as its returns, that is
of the usual size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, Clip, OptimizerEvent
from clew.observe.watches._rl_study import Studied
from clew.observe.watches._training_updates import adaptive
from clew.observe.watches._training_values import median
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

FEWEST = 5
SETTLED = 50
"""Calls after which a limit that has always bound can no longer be put down to the start of training."""
FAR = 30.0
"""A limit that is so many times below the gradients is no habit, whatever the optimiser makes of it."""
AGENTS = 0.1
"""Policy methods clip at a norm of about 0.5, which binds on every step. A limit below this is no habit of theirs."""


class ClipActivity(Studied):
    test = "clip_activity"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.calls = self.read_calls = self.bound = self.by_value = self.steps = 0
        self.factors: list[float] = []
        self.limit = math.inf  # the lowest
        self.evened = False
        self.place: Place | None = None

    def clip(self, event: Clip) -> None:
        if event.kind != "norm":
            self.by_value += 1
            return
        self.calls += 1
        norm = event.norm
        free = not isinstance(norm, torch.Tensor) or norm.device.type == "cpu"
        if norm is None or not (event.sampled or free):
            return
        size = float(norm)
        self.read_calls += 1
        self.bound += size > float(event.limit)
        if float(event.limit) > 0 and math.isfinite(size):
            self.factors = [*self.factors, size / float(event.limit)][-400:]
        self.limit = min(self.limit, float(event.limit))
        self.place = event.place
        if event.sampled and math.isfinite(size):
            self.recorder.record("norm_before_clipping", size)

    def after_step(self, event: OptimizerEvent) -> None:
        if event.sampled:
            super().after_step(event)
        self.steps += 1
        self.evened = self.evened or adaptive(event.optimizer)

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.by_value and not self.calls:
            return Unclear("single values are clipped, not the norm")
        if not self.calls:
            return Reading(share_of_steps_clipped=0.0, clips=0)
        if self.read_calls < FEWEST:
            return Unclear(f"only {self.read_calls} clipping calls were sampled")
        if self.bound >= 0.9 * self.read_calls and self.calls < SETTLED:
            return Unclear(
                f"the limit was active in nearly all of the first {self.calls} calls, which is common early in training"
            )
        usual = self.study.experience.steps and self.limit >= AGENTS
        if self.evened and self.bound >= 0.9 * self.read_calls and (usual or median(self.factors) < FAR):
            return Unclear("the limit is nearly always active, by a factor that this optimiser normalises away")
        reading = Reading(share_of_steps_clipped=self.bound / self.read_calls, clips=self.calls)
        return reading.at(self.place) if self.place is not None else reading
