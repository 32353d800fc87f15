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

from clew.observe.watch import Answer
from clew.observe.watches._physics_terms import Solved
from clew.records.clue import Saw, Unclear

UPDATES = 8
OFTEN = 0.9
RAMPS = 0.5


class DerivativesUsed(Solved):
    test = "derivatives_used"

    def read(self) -> Answer:
        held = self.equations
        if held.broken or not held.is_equation():
            return Unclear(self.unseen())
        if held.steps < UPDATES:
            return Unclear("too few updates with derivatives by the inputs were seen")
        for place, times in held.cut.items():
            if times >= OFTEN * held.steps:
                return Saw("cut", updates=times).at(place)
        if not held.updates:
            return Unclear(self.unseen())
        if held.ramps + held.bends and held.twice and held.ramps >= RAMPS * (held.ramps + held.bends):
            return Saw("ramps", ramps=held.ramps, others=held.bends).at(held.twice_place, held.place)
        return Saw("used", updates=held.steps).at(held.place)
