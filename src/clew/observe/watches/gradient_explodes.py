"""Does the gradient norm shoot up during training?

Why it matters: one update from a gradient a hundred times the usual throws the weights far away.
Cannot tell: where it starts, and spikes between the steps that are looked at.
Silent when: the norm was as large from the start, a GradScaler skipped the step, or a gradient that was next to nothing
against the weights has become an ordinary one (a generator whose judge has just begun to tell, a unit that woke up).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Clip, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._training_values import held_by, loss_scale, median, norm_of, skips, total_norm
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

EARLY = 10
FEWEST = 3
FAINT = 1e-3
"""A gradient below this part of the weights' own norm is no level to measure a rise from."""
MUCH = 100
"""From here on the step is named; what counts as an explosion is for the table to say."""


class Norms:
    """The early norms of one optimiser's gradients, and how far a later one rose above them."""

    def __init__(self, weights: float) -> None:
        self.floor = FAINT * weights if math.isfinite(weights) else 0.0
        self.early: list[float] = []
        self.rise = self.largest = 0.0
        self.step = 0

    def add(self, norm: float, step: int) -> None:
        """A norm is compared with those before it only: one that starts high and falls has not risen."""
        before = [early for early in self.early if early > 0]
        level = max(median(before), self.floor) if len(before) >= FEWEST else math.inf
        rise = norm / level if math.isfinite(norm) else math.nan
        if not (rise <= self.rise or math.isnan(self.rise)):
            self.rise, self.largest, self.step = rise, norm, step
        if len(self.early) < EARLY and math.isfinite(norm):
            self.early.append(norm)


class GradientExplodes(Watch):
    test = "gradient_explodes"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.norms: dict[int, Norms] = {}
        self.clipped: tuple[set[int], float] | None = None  # norm before clipping: what the step gets says less

    @when_sampled
    def clip(self, event: Clip) -> None:
        if event.sampled and event.norm is not None:
            self.clipped = ({id(parameter) for parameter in event.parameters}, float(event.norm))

    def before_step(self, event: OptimizerEvent) -> None:
        clipped, self.clipped = self.clipped, None
        if not event.sampled or skips(event.optimizer):
            return
        parameters = list(held_by(event.optimizer))
        norm = total_norm(parameters) / loss_scale(event.optimizer)
        if clipped is not None and norm and all(id(p) in clipped[0] for p in parameters if p.grad is not None):
            norm = max(norm, clipped[1]) if math.isfinite(clipped[1]) else clipped[1]
        if event.number not in self.norms:
            self.norms[event.number] = Norms(norm_of(parameters))
        self.norms[event.number].add(norm, event.step)
        self.recorder.record("gradient_norm", norm, of=str(event.number))

    def read(self) -> Answer:
        known = [held for held in self.norms.values() if len(held.early) > FEWEST or math.isnan(held.rise)]
        if not known:
            return Unclear("too few optimiser steps were checked")
        worst = max(known, key=lambda held: (math.isnan(held.rise), held.rise))
        reading = Reading(largest_over_early_median=worst.rise, largest=worst.largest)
        return reading.at(Place(step=worst.step)) if math.isnan(worst.rise) or worst.rise > MUCH else reading
