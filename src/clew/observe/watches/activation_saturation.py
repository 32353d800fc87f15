"""Which share of the hidden tanh and sigmoid values is pinned at its limit?

Looks on sampled training steps at what tanh, sigmoid and hardtanh give to a following linear or convolution layer.

Why it matters: at its limit such a unit has no slope, and little gradient passes through the layer.
Cannot tell: what pushes the values out, be it inputs, weights or a rate.
Silent when: the values are gates or an output: only what a weight layer of the same model takes in counts. What one
model hands to another (a generator's picture) and pictures of at most four channels are no hidden units.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.observe.watch import Answer, ModuleCall, Watch
from clew.observe.watches._loss_graph import MOVES, bare, inputs
from clew.observe.watches._network_graph import AFFINE, Calls, first_tensor, layer_name, median, readable, way
from clew.observe.watches._network_units import POOLS, drops
from clew.observe.watches._where import layer_places
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = 30
ENOUGH = 3
LAYERS = 500
PINNED = 0.75
VALUES = 200_000
MODULES = (nn.Tanh, nn.Sigmoid, nn.Hardtanh, nn.Hardsigmoid)
NODES = ("Tanh", "Sigmoid", "Hardtanh", "Hardsigmoid")


class ActivationSaturation(Watch):
    test = "activation_saturation"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.made = Calls()
        self.pinned: dict[int, tuple[tuple[int, str], float, tuple[int, str] | None]] = {}
        self.layers: dict[tuple[int, str], deque[float]] = {}
        self.places: dict[tuple[int, str], tuple[Place, ...]] = {}
        self.calls = 0

    def module(self, event: ModuleCall) -> None:
        if event.evaluation:
            return
        self.calls += 1
        if event.step != self.made.step:
            self.pinned.clear()
        given, got = first_tensor(event.output), first_tensor(event.inputs)
        if isinstance(event.module, MODULES) and given is not None and given.grad_fn is not None:
            share = pinned_share(given, given.grad_fn)
            if share is not None:
                before = self._layer_before(given.grad_fn)
                self.pinned[int(given.grad_fn._sequence_nr())] = ((event.model, event.name), share, before)
        elif isinstance(event.module, AFFINE) and got is not None and got.grad_fn is not None:
            self._taken_in(got, event.model)
        self.made.note(event, (event.model, event.name))

    def _taken_in(self, values: torch.Tensor, model: int) -> None:
        """A weight layer takes these values in: if a squashing function of its model made them, they are hidden."""
        scaled = False
        for node in way(values.grad_fn, lambda held: bare(held) in MOVES or bare(held) in POOLS or drops(held)):
            known = self.pinned.pop(int(node._sequence_nr()), None)
            before = self._layer_before(node) if known is None and bare(node) in NODES and not scaled else None
            share = pinned_share(values, node) if before is not None else None
            if known is not None and known[0][0] == model:
                self._note(*known)
            elif before is not None and before[0] == model and share is not None:
                self._note((model, f"{before[1]} ({bare(node).lower()})".strip()), share, before)
            scaled = scaled or drops(node) or bare(node) in POOLS

    def _layer_before(self, node: Any) -> tuple[int, str] | None:
        """The module that a squashing function got its values from, at most a sum or so away."""
        near = [node]
        for _ in range(4):
            near = [fed for held in near for fed in inputs(held)][:8]
            for held in near:
                known = self.made.get(held)
                if known is not None:
                    return (int(known[0]), str(known[1]))
        return None

    def _note(self, layer: tuple[int, str], share: float, before: tuple[int, str] | None) -> None:
        if layer in self.layers or len(self.layers) < LAYERS:
            self.layers.setdefault(layer, deque(maxlen=KEPT)).append(share)
            if layer not in self.places:
                used = self.recorder.place()
                self.places[layer] = layer_places(self.recorder, layer, used, before, share > PINNED)

    def read(self) -> Answer:
        if not self.calls:
            return Unclear("no module ran in training")
        late = {
            layer: median(list(held)[len(held) // 2 :]) for layer, held in self.layers.items() if len(held) >= ENOUGH
        }
        if not late and self.layers:
            return Unclear(f"hidden tanh or sigmoid units ran on fewer than {ENOUGH} sampled steps")
        if not late:
            return Reading(largest_share_of_pinned_values=0.0, layers=0)
        worst = max(late, key=lambda layer: late[layer])
        name = layer_name(self.recorder, worst)
        reading = Reading(largest_share_of_pinned_values=late[worst], layer=name, layers=len(late))
        if late[worst] <= PINNED:
            return reading
        first, *rest = self.places[worst] or (Place(),)
        return reading.at(first._replace(module=name), *rest)


def limits(node: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    name = bare(node)
    if name == "Tanh":
        return lambda values: values.abs() > 0.99
    if name in ("Sigmoid", "Hardsigmoid"):
        return lambda values: (values < 0.01) | (values > 0.99)
    low, high = float(getattr(node, "_saved_min_val", 0.0)), float(getattr(node, "_saved_max_val", 0.0))
    if name != "Hardtanh" or low == 0.0:
        return None  # relu6 is written as a hardtanh from 0
    return lambda values: (values <= low) | (values >= high)


FEW_UNITS = 4
"""Of so few units a share says nothing: one that bends where it should is pinned on most of its inputs."""


def pinned_share(values: torch.Tensor, node: Any) -> float | None:
    pinned = limits(node)
    if pinned is None or not readable(values) or (values.dim() >= 2 and values.shape[1] <= FEW_UNITS):
        return None
    with torch.no_grad():
        flat = values.detach().reshape(-1)
        return float(pinned(flat[:: -(-flat.numel() // VALUES)]).float().mean())
