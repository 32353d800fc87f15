"""Are the loss terms of comparable size before any weighting?

Reads the terms of a loss that holds derivatives of a network by its inputs, on the sampled ones of the first steps, and
takes the step at which they were nearest to each other: the residual of a fresh network is often small by chance.

Why it matters: squares of raw physical units differ by many orders of magnitude, and the optimiser sees the largest.
Cannot tell: raw units from badly chosen weights; terms of other kinds than means and sums of squares.
Silent when: the derivatives serve a penalty on gradients; every term falls below a quarter of its start.
"""

from __future__ import annotations

import math

from clew.observe.watch import Answer
from clew.observe.watches._loss_values import all_fell
from clew.observe.watches._physics_terms import Solved
from clew.records.clue import Reading, Saw, Unclear

FIRST = 50


class ResidualScale(Solved):
    test = "residual_scale"

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        found = []
        early = [parts for step, parts in self.equations.parts if step < FIRST]
        for parts in early:
            sizes = [part.value for part in parts if part.value > 0]
            if len(sizes) > 1:
                found.append(math.log10(max(sizes) / min(sizes)))
        if not found:
            return Unclear("the loss has only one term whose value can be read")
        if all_fell([[part.value for part in parts] for _, parts in self.equations.parts]):
            says = f"the largest is 10^{min(found):.2g} times the smallest, and each falls below a quarter of its start"
            return Saw("comparable", log10_term_ratio=min(found)).at(self.equations.place).saying(says)
        reading = Reading(log10_term_ratio=min(found), terms=max(map(len, early)))
        return reading if self.equations.place is None else reading.at(self.equations.place)
