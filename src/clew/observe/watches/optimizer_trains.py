"""Does an optimiser hold anything that can train?

Why it matters: an optimiser skips parameters that require no gradient without a word. When those are all it holds,
every step does nothing, and the layers that do get gradients are in no optimiser.
Cannot tell: a stage of the run in which nothing is to train yet, if the run ends before the next.
Silent when: something that an optimiser holds requires a gradient or has one at any step that was looked at, in this or
in another optimiser: fine-tuning, GANs that switch their discriminator off in turn, staged unfreezing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_values import held_by
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

LOOKS = 2


class OptimizerTrains(Watch):
    test = "optimizer_trains"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.made: dict[int, Place | None] = {}
        self.idle: dict[int, int] = {}
        self.steps = 0
        self.works = False
        self.name = ""
        self.frozen = self.left = 0

    def optimizer_made(self, event: OptimizerEvent) -> None:
        if len(self.made) < 256:
            self.made[event.number] = event.place

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        """After the step, because a closure may make the gradients only inside it."""
        self.steps += 1
        held = list(held_by(event.optimizer))
        if self.works or not held:
            return
        if any(parameter.requires_grad or parameter.grad is not None for parameter in held):
            self.works = True
            return
        self.idle[event.number] = self.idle.get(event.number, 0) + 1
        names = self.recorder.parameter_names()
        self.name = names.get(id(held[0]), "")
        self.frozen = len(held)
        mine = {id(parameter) for parameter in held}
        models = [p for _, model in self.recorder.live_models() for p in model.parameters()]
        self.left = sum(1 for p in models if p.grad is not None and id(p) not in mine)

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.works:
            return Saw("something", steps=self.steps)
        number, steps = max(self.idle.items(), key=lambda item: item[1], default=(-1, 0))
        if steps < LOOKS:
            return Unclear(f"only {steps} optimiser steps with parameters were seen")
        beside = f", and the {self.left} parameters that do get gradients are in no optimiser" if self.left else ""
        named = Place(parameter=self.name) if self.name else None
        return (
            Saw("nothing", frozen=self.frozen, with_gradient_elsewhere=self.left)
            .at(self.made.get(number), named)
            .saying(f"All {self.frozen} parameters in the optimiser are frozen{beside}: no step trains anything.")
        )
