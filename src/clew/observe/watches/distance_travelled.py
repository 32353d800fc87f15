"""How far has the whole run carried the weights from where they began?

After a hundred steps and more, compares the weight matrices with how they were before the first step. Gradients must be
there and of ordinary size against the weights, nothing may be clipped away and the rate must not be on its way up, so
that it is the rate alone that keeps the weights where they are.

Why it matters: weights that are within a thousandth of their start are the untrained model, whatever else is said.
Cannot tell: fine-tuning that needs hardly any change; a rate that was meant to be small until later.
Silent when: the rate rises (warm-up), gradients are tiny themselves, or the loss falls all the same.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, Backward, Clip, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._training_updates import Course, adaptive
from clew.observe.watches._training_values import matrices, median, real
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

ENOUGH = 100
VALUES = 1024
MOST = 64
ORDINARY = 1e-4
"""A gradient this large against its weight: at a rate of a tenth, a hundred steps move the weight by a thousandth."""
FALLEN = 0.97


class DistanceTravelled(Watch):
    test = "distance_travelled"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.start: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self.number = -1  # the optimiser that is followed: the first that steps
        self.steps = 0
        self.distance: float | None = None
        self.gradients: list[float] = []
        self.rates: list[float] = []
        self.adapts = False
        self.clips = 0
        self.made: dict[int, Place | None] = {}
        self.course = Course()

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if len(self.made) < 64:
            self.made[event.number] = event.place

    @when_sampled
    def clip(self, event: Clip) -> None:
        norm = event.norm
        if event.kind == "value" or (norm is not None and float(norm) > 10 * float(event.limit)):
            self.clips += 1

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        self.course.note(event)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if self.number < 0:
            self.number, self.adapts = event.number, adaptive(event.optimizer)
            for matrix in matrices(event.optimizer)[:MOST]:
                values = real(matrix, VALUES)
                if matrix.requires_grad and values is not None and bool((values != 0).any()):
                    self.start[id(matrix)] = (weakref.ref(matrix), values.clone())
        if event.number != self.number:
            return
        self.steps = event.step + 1
        self.rates = [*self.rates, max(float(group.get("lr") or 0.0) for group in event.optimizer.param_groups)][-200:]
        sizes = []
        for held, old in self.start.values():
            weight = held()
            gradient = real(weight.grad, VALUES) if weight is not None and weight.grad is not None else None
            if gradient is not None:
                sizes.append(float(torch.linalg.vector_norm(gradient) / torch.linalg.vector_norm(old)))
        if sizes:
            self.gradients = [*self.gradients, median(sizes)][-200:]

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        if event.number != self.number or self.steps < ENOUGH:
            return
        found = []
        for held, old in self.start.values():
            matrix = held()
            new = real(matrix, VALUES) if matrix is not None else None
            if new is not None and new.shape == old.shape:
                found.append(float(torch.linalg.vector_norm(new - old) / torch.linalg.vector_norm(old)))
        self.distance = median(found) if found else None

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.distance is None:
            return Unclear(f"only {self.steps} steps were seen; {ENOUGH} are needed")
        if not math.isfinite(self.distance):
            return Unclear("the weights are not finite any more")
        if not self.gradients or median(self.gradients) < (0.0 if self.adapts else ORDINARY):
            return Unclear("the gradients themselves are too small to blame the learning rate")
        if self.clips:
            return Unclear("clipping shrinks the gradients strongly, which shortens the steps too")
        if self.rates[-1] > 1.01 * self.rates[0]:
            return Unclear("the learning rate is still rising")
        fallen = self.course.over_first()
        if fallen < FALLEN and self.distance < 1e-3:
            return Unclear("the weights have hardly moved, yet the loss falls")
        reading = Reading(distance_over_weight=self.distance, steps=self.steps, rate=self.rates[-1])
        place = self.made.get(self.number)
        return reading.at(place) if place is not None and self.distance < 1e-3 else reading
