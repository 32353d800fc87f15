"""Do the derivatives by the inputs reach the loss, and can the network have them at all?

A derivative that is taken with its graph kept is meant to be trained through. It is looked for in the graph of the
loss, unless another derivative is taken of it. Where derivatives of second order are taken, the activations that lie
below the network's output are counted.

Why it matters: a derivative that is cut off is a constant for the optimiser, which then fits a moving number; second
derivatives of a network of ramps are zero, whatever it learns.
Cannot tell: a cut that is meant. Derivatives of first order of a network of ramps, which are steps.
Silent when: a derivative is taken now and then only, as for a picture; few of the activations are ramps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from clew.observe.watch import Answer
from clew.observe.watches._physics_terms import Solved
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

KINKED = (nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ReLU6, nn.Hardtanh)
UPDATES = 8
OFTEN = 0.9
RAMPS = 0.5


class DerivativesUsed(Solved):
    test = "derivatives_used"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.kinked: list[Place] = []  # a model may be gone before the last word is said

    def _ramps(self) -> list[Place]:
        """Where the first layer of ramps was made."""
        held = [model for ref in self.recorder.models if (model := ref()) is not None]
        parts = [part for model in held for part in model.modules() if isinstance(part, KINKED)]
        found = [place for part in parts if (place := self.recorder.origins.made(part)) is not None]
        self.kinked = found[:1] or self.kinked
        return self.kinked

    def read(self) -> Answer:
        held = self.equations
        if held.broken or not held.is_equation():
            return Unclear(self.unseen())
        if held.steps < UPDATES:
            return Unclear("too few updates with derivatives with respect to the inputs were seen")
        for place, times in held.cut.items():
            if times >= OFTEN * held.steps:
                return Saw("cut", updates=times).at(place)
        if not held.updates:
            return Unclear(self.unseen())
        if held.ramps + held.bends and held.twice and held.ramps >= RAMPS * (held.ramps + held.bends):
            saw = Saw("ramps", ramps=held.ramps, others=held.bends)
            return saw.at(*self._ramps(), held.twice_place, held.place)
        return Saw("used", updates=held.steps).at(held.place)
