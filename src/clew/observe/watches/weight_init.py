"""Are the initial weights random and of the usual size?

At the first training pass, before any step, multiplies the standard deviation of each trained weight matrix by the
square root of its fan-in. A matrix whose rows are all equal is followed over the next steps, and so is one of zeros
that an optimiser holds for the first time later on, as where adapters are put into a trained model.

Why it matters: equal units compute the same and stay equal; a scale that is off by a large factor is off again at every
further layer.
Cannot tell: whether an unusual scale is made up for elsewhere, by a normalisation for instance.
Silent when: zeros are wanted: a layer of zeros whose rows get different gradients will leave them (the last layer of a
residual branch, the second LoRA matrix, a head). Heads and the ends of residual branches may be small. Embeddings and
norm scales are no matrices here.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import torch

from clew.observe.watch import Answer, Backward, ModuleCall, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._network_graph import AFFINE, Calls, layer_name, whole_graph
from clew.observe.watches._network_init import Matrix, branch_ends, by_graph, by_module, heads, rows_equal, spread
from clew.observe.watches._training_values import held_by
from clew.observe.watches._where import parameter_places
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

USUAL = 0.58
LARGE, SMALL = 10 * USUAL, 0.05
NARROWEST = 8
"""Fan-ins below this say little about a scale."""
WALKS = 8
JUDGED_FROM = 2
"""Steps after which equal rows with equal gradients will stay equal: a head of zeros has moved by then."""
LEAST_ZEROS, MOST_ZEROS, MOST_MET = 16, 500, 5000


class Seen(NamedTuple):
    """One matrix as it was first seen. `scale` is the standard deviation times the root of the fan-in."""

    layer: tuple[int, str]
    parameter: weakref.ref[torch.Tensor]
    matrix: Matrix
    low: float
    high: float
    constant: float | None  # the value of all entries, when they are equal
    equal: bool
    places: tuple[Place, ...]


class WeightInit(Watch):
    test = "weight_init"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.made = Calls()
        self.seen: dict[int, Seen] = {}
        self.heads: set[int] = set()
        self.ends: set[int] = set()
        self.reached = False
        self.walks = 0
        self.stays: dict[int, bool] = {}
        self.met: dict[int, weakref.ref[torch.Tensor]] = {}  # parameters that some optimiser was seen to hold
        self.zeros: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}  # those that began at zero, and at which step
        self.zero_places: dict[int, tuple[Place, ...]] = {}
        self.stuck: dict[int, bool] = {}
        self.marks: list[tuple[weakref.ref[torch.Tensor], float]] = []
        self.moved = False

    def module(self, event: ModuleCall) -> None:
        if event.step > 0 or event.evaluation or event.name == "?":
            return
        for tensor, matrix in by_module(event.module):
            self._first_sight((event.model, f"{event.name}.{matrix.name}".lstrip(".")), tensor, matrix)
        if isinstance(event.module, AFFINE):
            self.made.note(event, id(event.module.weight))

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if event.step > 0 or not event.sampled or event.loss.grad_fn is None or self.walks >= WALKS:
            return
        self.walks += 1
        nodes = whole_graph(event.loss.grad_fn)
        if nodes is None:
            return
        self.reached = True
        names = self.recorder.parameter_names()
        for tensor, matrix in by_graph(nodes):
            if id(tensor) in names:
                self._first_sight((-1, names[id(tensor)]), tensor, matrix)
        self.heads |= heads(event.loss.grad_fn, self.made, self.seen)
        self.ends |= branch_ends(nodes, self.made, self.seen)

    def _first_sight(self, layer: tuple[int, str], tensor: torch.Tensor, matrix: Matrix) -> None:
        if id(tensor) in self.seen or not tensor.requires_grad or len(self.seen) > 5000:
            return
        deviation, constant = spread(tensor)
        low, high = (deviation * math.sqrt(fan) for fan in sorted(matrix.fans))
        equal = constant is not None or rows_equal(tensor, matrix.units)
        places = self._lines(layer, tensor)
        self.seen[id(tensor)] = Seen(layer, weakref.ref(tensor), matrix, low, high, constant, equal, places)
        if constant is None and len(self.marks) < 8:
            self.marks.append((weakref.ref(tensor), float(tensor.detach().double().sum())))

    def _lines(self, layer: tuple[int, str], tensor: torch.Tensor) -> tuple[Place, ...]:
        """Asked while the model is there."""
        number, path = layer
        if number < 0:
            return self._made(id(tensor))
        return parameter_places(self.recorder, self.recorder.models[number](), path, tensor)

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if not event.sampled:
            return
        self._meet(event)
        self._moved()  # the model may be gone by the end
        for mark, (ref, first) in self.zeros.items():
            tensor = ref() if event.step >= first + JUDGED_FROM else None
            if tensor is not None and tensor.grad is not None and not tensor.grad.is_sparse:
                self.zero_places.setdefault(mark, self._made(mark))
                self.stuck[mark] = not bool(tensor.grad.any()) and not bool(tensor.any())
        if event.step < JUDGED_FROM:
            return
        waiting = {mark for mark, seen in self.seen.items() if seen.equal}
        for tensor in held_by(event.optimizer) if waiting else ():
            seen = self.seen.get(id(tensor))
            if seen is not None and seen.equal and seen.parameter() is tensor and tensor.grad is not None:
                units = seen.matrix.units
                self.stays[id(tensor)] = rows_equal(tensor, units) and rows_equal(tensor.grad, units)

    def _meet(self, event: OptimizerEvent) -> None:
        """Which parameters begin at zero: also those of a later stage, such as adapters put into a trained model."""
        for tensor in held_by(event.optimizer):
            known = self.met.get(id(tensor))
            if (known is not None and known() is tensor) or tensor.dim() < 2 or tensor.numel() < LEAST_ZEROS:
                continue
            if len(self.met) < MOST_MET:
                self.met[id(tensor)] = weakref.ref(tensor)
                if len(self.zeros) < MOST_ZEROS and not tensor.any():
                    self.zeros[id(tensor)] = (weakref.ref(tensor), event.step)

    def _moved(self) -> bool:
        """Whether training has changed anything: with a rate of zero every symmetry stays."""
        held = [] if self.moved else [(ref(), before) for ref, before in self.marks]
        self.moved = self.moved or any(t is not None and float(t.detach().double().sum()) != b for t, b in held)
        return self.moved or not self.marks

    def _symmetric(self, mark: int, seen: Seen) -> bool:
        if not seen.equal or seen.matrix.rows < 2 or mark in self.heads or not self.reached:
            return False
        if seen.constant:
            return True
        return self.stays.get(mark, False) and self._moved()

    def read(self) -> Answer:
        stuck = [mark for mark, still in self.stuck.items() if still]
        if stuck and self._moved():
            places = self.zero_places[stuck[0]]
            return Reading(std_times_root_fan_in=0.0, layer=places[0].parameter).at(*places)
        if not self.seen:
            return Unclear("no weight matrix was seen in training before the first step")
        for mark, seen in self.seen.items():
            if self._symmetric(mark, seen):
                return self._tell(seen, 0.0)
        random = {mark: seen for mark, seen in self.seen.items() if seen.constant is None}
        wide = [seen for seen in random.values() if min(seen.matrix.fans) >= NARROWEST]
        large = [seen for seen in wide if seen.low > LARGE]
        if large:
            worst = max(large, key=lambda seen: seen.low)
            return self._tell(worst, worst.low)
        small = [s for mark, s in random.items() if s in wide and s.high < SMALL and mark not in self.heads | self.ends]
        if small and self.reached:
            worst = min(small, key=lambda seen: seen.high)
            return self._tell(worst, max(worst.high, 1e-5))
        usual = [seen.low for seen in random.values() if SMALL <= seen.low <= LARGE]
        figure = max(usual, key=lambda scale: abs(math.log(scale / USUAL)), default=USUAL)
        return Reading(std_times_root_fan_in=figure, matrices=len(self.seen))

    def _made(self, mark: int) -> tuple[Place, ...]:
        """Where the parameter comes from, asked while its model is there."""
        for _, module in self.recorder.live_models():
            for name, held in module.named_parameters():
                if id(held) == mark:
                    return parameter_places(self.recorder, module, name, held)
        return (Place(parameter=self.recorder.parameter_names().get(mark, "a parameter")),)

    def _tell(self, seen: Seen, figure: float) -> Answer:
        model, path = seen.layer
        name = path if model < 0 else layer_name(self.recorder, seen.layer)
        reading = Reading(std_times_root_fan_in=figure, layer=name, fan_in=min(seen.matrix.fans))
        return reading.at(*(place._replace(parameter=name) for place in seen.places or (Place(),)))
