"""Is the equation solved in raw physical units?

Looks at the coordinates by which derivatives are taken, at what enters the first layer of the network, at the values
that conditions and data ask for, and at the weighted terms of the loss on the first steps.

Why it matters: terms in raw units differ by many orders of magnitude, the optimiser sees the largest, and inputs far
from one leave the first layer linear or saturated.
Cannot tell: units that happen to be of order one; coefficients that are badly chosen.
Silent when: the terms are within a factor of a thousand as they enter the loss, whatever their units, unless the first
layer gets numbers beyond a hundred.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import torch

from clew.observe.watch import Answer, ModuleCall
from clew.observe.watches._data_values import float_tensors
from clew.observe.watches._physics_terms import Solved
from clew.records.clue import Saw, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

FIRST = 10
LARGE = 1_000_000
APART = 1e3
NEAR = 10.0
ASKED = 30.0


class PhysicalUnits(Solved):
    test = "physical_units"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.entering: dict[int, tuple[float, Place | None]] = {}  # by model, where its first layer is called

    def module(self, event: ModuleCall) -> None:
        """The first layer with weights of its own that a model calls; a few calls say how large its inputs are."""
        if event.model in self.entering or event.evaluation or len(self.entering) >= 16:
            return
        if next(event.module.parameters(recurse=False), None) is None or "norm" in type(event.module).__name__.lower():
            return
        given = next(iter(float_tensors(event.inputs)), None)
        if given is not None and 0 < given.numel() <= LARGE:
            with torch.no_grad():
                size = float(given.detach().abs().max())
            self.entering[event.model] = size if math.isfinite(size) else 0.0, self.recorder.place()

    def read(self) -> Answer:
        why = self.unseen()
        if why:
            return Unclear(why)
        held = self.equations
        ratios, wanted = [], []
        for _, parts in held.parts[:FIRST]:
            sizes = [part.value * part.weight for part in parts if part.value * part.weight > 0]
            if len(sizes) > 1:
                ratios.append(max(sizes) / min(sizes))
            wanted += [part.value for part in parts if not part.residual]
        if not ratios:
            return Unclear("the loss has only one term whose value can be read")
        coordinates = held.coordinates()
        ratio = statistics.median(ratios)
        asked = math.sqrt(max(wanted, default=0.0))  # a fresh network gives values of order one at most
        spread = 1.0 if coordinates is None else coordinates.largest / coordinates.smallest
        largest = 1.0 if coordinates is None else coordinates.largest
        smallest = 1.0 if coordinates is None else coordinates.smallest
        entering, line = max(self.entering.values(), key=lambda held: held[0], default=(1.0, None))
        # The last layer of a network grows to values of some tens by itself.
        raw = asked > ASKED or max(largest, entering) > NEAR or smallest < 1 / NEAR**2 or spread > NEAR**2
        figures = {
            "largest_over_smallest_term": ratio,
            "largest_coordinate": largest,
            "smallest_coordinate": smallest,
            "condition_rms": asked,
            "largest_at_first_layer": entering,
        }
        if (ratio > APART and raw) or entering > NEAR**2:
            at_network = line if entering > NEAR * max(1.0, largest) else None
            return Saw("raw", **figures).at(at_network, self._largest(), held.place)
        return Saw("of_order_one", **figures).at(held.place)

    def _largest(self) -> Place | None:
        """The line of the term that is largest at the start."""
        first = [part for _, parts in self.equations.parts[:1] for part in parts if math.isfinite(part.value)]
        return max(first, key=lambda part: part.value * part.weight).place if first else None
