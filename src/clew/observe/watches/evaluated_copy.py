"""Does the copy that is evaluated follow the model that is trained?

A model that is only ever called without gradients, has the shapes of a trained model and began with its very values is
a copy of it: an average of weights, a snapshot, a model to serve. Its weights are compared between evaluations.

Why it matters: every figure then speaks of a network that nothing trains, while the loss goes on falling.
Cannot tell: whether a copy that was made late is meant to stand still.
Silent when: the copy is called on the training steps themselves (a reference policy, a teacher, a target network), the
trained model itself is evaluated as well, or there are fewer than three evaluations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.watch import Answer, Forward, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._training_values import fingerprint, held_by, sample
from clew.records.clue import Unclear

if TYPE_CHECKING:
    import torch

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

LOOKS = 3
STEPS = 20  # between the first look and the last
IN_A_ROW = 3  # rounds of the optimisers, one after the other, in which a copy is called: it takes part in the training
VALUES, TENSORS = 1024, 4
MODELS = 16


class Held:
    """What is known of one model."""

    def __init__(self, module: torch.nn.Module, step: int) -> None:
        self.shapes = tuple(weight.shape for weight in module.parameters())
        self.first = self.last = mark(module)
        self.began = self.at = step
        self.trained = self.takes_part = False
        self.evaluated = self.row = 0
        self.copied: int | None = None  # the number of the trained model that it began as a copy of
        self.place: Place | None = None


class EvaluatedCopy(Watch):
    test = "evaluated_copy"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.models: dict[int, Held] = {}
        self.step_place: Place | None = None

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        self.step_place = event.place or self.step_place

    def forward(self, event: Forward) -> None:
        held = self.models.get(event.model)
        if held is None:
            if len(self.models) >= MODELS:
                return
            held = self.models[event.model] = Held(event.module, event.step)
        held.trained = held.trained or event.grad
        if held.trained or (held.evaluated and held.at == event.step):
            held.evaluated += event.evaluation
            return
        held.row = held.row + 1 if 0 < event.step - held.at <= self._round() else 0
        held.takes_part = held.takes_part or held.row >= IN_A_ROW
        held.evaluated += 1
        held.place = event.place
        held.at = event.step
        held.last = mark(event.module) if held.last == held.first else held.last
        if event.step - held.began >= STEPS and held.copied is None:
            self._compare(held)

    def _round(self) -> int:
        """Steps from one update to the next: an actor and a critic, or two players, have an optimiser each."""
        return max(1, len(self.recorder.live_optimizers()))

    def _compare(self, copy: Held) -> None:
        """Whose copy it is, and whether that one has moved: asked while both are there."""
        trained = {id(parameter) for _, held in self.recorder.live_optimizers() for parameter in held_by(held)}
        for number, module in self.recorder.live_models():
            held = self.models.get(number)
            if held is None or not held.trained or held.shapes != copy.shapes or held.first != copy.first:
                continue
            if trained & {id(parameter) for parameter in module.parameters()} and mark(module) != held.first:
                copy.copied = number

    def read(self) -> Answer:
        followed = 0
        for copy in self.models.values():
            if copy.trained or copy.takes_part or copy.copied is None or copy.evaluated < LOOKS:
                continue
            if self.models[copy.copied].evaluated >= LOOKS:
                continue
            followed += 1
            if copy.last == copy.first:
                says = (
                    "the evaluated model began as a copy of the trained one and has not changed after "
                    f"{copy.at} steps: nothing copies the trained weights to it"
                )
                saw = Saw("stands_still", evaluations=copy.evaluated, steps=copy.at - copy.began)
                return saw.at(self.step_place, copy.place).saying(says)
        if followed:
            return Saw("follows", copies=followed)
        return Unclear("no copy of the trained model was seen evaluated three times")


def mark(module: torch.nn.Module) -> int:
    """A number that changes with the values of some of the larger weights."""
    weights = sorted(module.parameters(), key=lambda weight: -weight.numel())[:TENSORS]
    return hash(tuple(fingerprint(part) for weight in weights if (part := sample(weight, VALUES)) is not None))
