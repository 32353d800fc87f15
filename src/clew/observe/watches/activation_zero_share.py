"""Which share of the units in a layer is zero for every example of a batch?

Looks at what rectifiers give out on sampled training steps: modules by their output, functions by the graph of what the
next layer gets. A unit counts as silent when it was zero for all examples of the latest sampled steps.

Why it matters: such a unit passes no gradient back, so its own weights cannot bring it back.
Cannot tell: what killed the units; units silent on these batches may answer to others.
Silent when: values are zero by design, as in one-hot codes, masks and dropout: only rectifiers count. Also while the
set of silent units still shrinks from batch to batch, as in sparse codes, and after too few examples. A network
without rectifiers has no silent units.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from clew.observe.watch import Answer, ModuleCall, Watch
from clew.observe.watches._loss_graph import inputs
from clew.observe.watches._network_graph import Calls, first_tensor, layer_name, median, readable
from clew.observe.watches._network_units import as_made, is_rectifier, made_by_layer, rectifier, silent_units, unit_axis
from clew.observe.watches._where import layer_places
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    import torch

MODULES = (nn.ReLU, nn.ReLU6, nn.Threshold)
LATEST = 8
ENOUGH = 3
ROWS = 64
UNITS = 4
LAYERS = 500
FEWEST = 20
"""Calls of modules among which a rectifier would have been seen."""
DEAD = 0.88  # sound networks that are wider than they need be have three quarters of a layer silent now and then


class Seen(NamedTuple):
    silent: torch.Tensor  # one flag per unit, on the CPU
    rows: int
    step: int


class ActivationZeroShare(Watch):
    test = "activation_zero_share"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.made = Calls()
        self.layers: dict[tuple[int, str], deque[Seen]] = {}
        self.places: dict[tuple[int, str], tuple[Place, ...]] = {}
        self.done: set[int] = set()
        self.calls = 0

    def module(self, event: ModuleCall) -> None:
        if event.evaluation:
            return
        if event.step != self.made.step:
            self.done.clear()
        self.calls += 1
        given, got = first_tensor(event.output), first_tensor(event.inputs)
        if isinstance(event.module, MODULES) and given is not None and given.grad_fn is not None:
            if is_rectifier(given.grad_fn):
                self._look(given, given.grad_fn, given.grad_fn, (event.model, event.name))
        elif event.module._parameters and got is not None and got.grad_fn is not None:
            maker = rectifier(got.grad_fn)
            if maker is not None:
                self._look(got, got.grad_fn, maker, self._named(maker, event.model))
        self.made.note(event, (event.model, event.name))

    def _look(self, values: torch.Tensor, node: Any, maker: Any, layer: tuple[int, str]) -> None:
        mark = int(maker._sequence_nr())
        if not readable(values) or mark in self.done or (layer not in self.layers and len(self.layers) >= LAYERS):
            return
        self.done.add(mark)
        made = as_made(values, node, maker)
        if made is None or made.dim() < 2 or not made_by_layer(maker):
            return
        axis = unit_axis(maker, made.dim())
        if made.shape[axis] < UNITS:
            return
        seen = Seen(*silent_units(made, axis), self.recorder.step)
        if layer not in self.places:
            odd = float(seen.silent.float().mean()) >= DEAD
            self.places[layer] = layer_places(self.recorder, layer, self.recorder.place(), self._fed_by(maker), odd)
        held = self.layers.setdefault(layer, deque(maxlen=LATEST))
        if held and held[-1].step == seen.step and held[-1].silent.numel() == seen.silent.numel():
            last = held.pop()
            seen = Seen(last.silent & seen.silent, last.rows + seen.rows, seen.step)
        held.append(seen)

    def _fed_by(self, maker: Any) -> tuple[int, str] | None:
        fed = inputs(maker)
        held = self.made.get(fed[0]) if fed else None
        return (int(held[0]), str(held[1])) if held else None

    def _named(self, maker: Any, model: int) -> tuple[int, str]:
        """A function has no name: call it after the layer before it."""
        fed = inputs(maker)
        before = self.made.get(fed[0]) if fed else None
        return (before[0], f"{before[1]} (relu)".strip()) if before else (model, "(relu)")

    def _hidden(self) -> bool:
        """Whether a layer may rectify where it cannot be seen."""
        parts = [part for _, model in self.recorder.live_models() for part in model.modules()]
        return any(isinstance(part, MODULES) or getattr(part, "nonlinearity", "") == "relu" for part in parts)

    def read(self) -> Answer:
        shares = {layer: share for layer, held in self.layers.items() if (share := silent_share(held)) is not None}
        if not self.calls:
            return Unclear("no module ran in training")
        if not self.layers and (self.calls < FEWEST or self._hidden()):
            return Unclear("no ReLU-like activation was seen")
        if not self.layers:
            return Reading(largest_share_of_silent_units=0.0, layers=0)
        if not shares:
            return Unclear(f"fewer than {ROWS} examples on {ENOUGH} sampled steps went through a ReLU-like activation")
        worst = max(shares, key=lambda layer: shares[layer])
        name = layer_name(self.recorder, worst)
        reading = Reading(largest_share_of_silent_units=shares[worst], layer=name, layers=len(shares))
        if shares[worst] < DEAD:
            return reading
        first, *rest = self.places[worst] or (Place(),)
        return reading.at(first._replace(module=name), *rest)


def silent_share(held: deque[Seen]) -> float | None:
    """The share of units silent on all the latest looks; None when that is too little to say."""
    width = held[-1].silent.numel()
    same = [seen for seen in held if seen.silent.numel() == width]
    if len(same) < ENOUGH or sum(seen.rows for seen in same) < ROWS:
        return None
    throughout = same[0].silent
    for seen in same[1:]:
        throughout = throughout & seen.silent
    share = float(throughout.float().mean())
    once = median([float(seen.silent.float().mean()) for seen in same])
    # Where more examples keep waking more units, the rest are rare and not known to be dead.
    return None if share >= DEAD and share < 0.9 * once else share
