"""Does all that the model makes of its inputs pass through a single number, or through a dropout that leaves next to
nothing?

Looks for layers that are given one computed number for each example, and follows the graph of the output past them: if
no layer that reads the inputs can be reached on another way, that number is all the rest of the model knows.

Why it matters: one number cannot tell apart what several can. Training then settles for the best of what fits through,
and its curve looks like any other that levels off.
Cannot tell: how many numbers the task needs; a single number by design, as in a calibration of scores.
Silent when: the number is the output itself, stands beside other ways (a gate, a score of attention), or is wider than
one; dropout of up to 0.9.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, ModuleCall, Saw, Watch
from clew.observe.watches._loss_graph import inputs
from clew.observe.watches._network_graph import LAYERS, TABLES, WALKED, first_tensor, number
from clew.observe.watches._reach import where_made
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

PASSES = 4
DROPPED = 0.9
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)


class NarrowPass(Watch):
    test = "narrow_pass"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.passes: dict[int, int] = {}
        self.step = -1
        self.narrow: dict[int, dict[int, str]] = {}  # model -> node of the number -> layer that is given it
        self.first: dict[int, set[int]] = {}  # model -> parameters of layers that are given what nothing computed
        self.found: dict[int, tuple[str, Place]] = {}
        self.dropping: dict[str, tuple[float, Place]] = {}

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or self.passes.get(event.model, 0) >= PASSES:
            return
        if event.step != self.step:
            self.step = event.step
            self.narrow.clear()
            self.first.clear()
        module = event.module
        if isinstance(module, DROPOUTS) and module.training and module.p > DROPPED:
            self.dropping.setdefault(event.name, (module.p, self._place(event.model, event.name)))
        if not isinstance(module, LAYERS + TABLES):
            return
        given = first_tensor(event.inputs)
        made = number(given)
        if given is None or made < 0:
            self.first.setdefault(event.model, set()).update(id(held) for held in module.parameters())
        elif given.dim() > 1 and given.numel() == given.shape[0] > 1:
            self.narrow.setdefault(event.model, {})[made] = event.name

    def forward(self, event: Forward) -> None:
        if event.evaluation or not event.grad or self.passes.get(event.model, 0) >= PASSES:
            return
        self.passes[event.model] = self.passes.get(event.model, 0) + 1
        nodes = self.narrow.get(event.model)
        if not nodes or not self.first.get(event.model) or event.step != self.step:
            return
        outputs = [held.grad_fn for held in tensors_in(event.output, torch) if held.grad_fn is not None]
        whole, past = _leaves(outputs, {}), _leaves(outputs, nodes)
        first = self.first[event.model]
        if whole is not None and past is not None and first & whole and not first & past:
            name = next(iter(nodes.values()))
            self.found[event.model] = (name, self._place(event.model, name))

    def _place(self, model: int, name: str) -> Place:
        held = dict(self.recorder.live_models()).get(model)
        where = where_made(held, f"{name}.weight") if held is not None else Place()
        return where._replace(parameter=None, module=name)

    def read(self) -> Answer:
        if not self.passes:
            return Unclear("no training pass of a model was seen")
        if self.found:
            name, place = next(iter(self.found.values()))
            says = f"only one number per example reaches {name or 'the last layer'}"
            return Saw("one_number", layer=name).at(place).saying(says)
        if self.dropping:
            name, (p, place) = max(self.dropping.items(), key=lambda item: item[1][0])
            says = f"{name} drops {p:.0%} of its values in training"
            return Saw("nearly_all_dropped", layer=name, dropped=p).at(place).saying(says)
        return Saw("wide", models=len(self.passes))


def _leaves(roots: list[Any], shut: dict[int, str]) -> set[int] | None:
    """The leaves under these nodes, on ways that pass none of the shut ones; None for a graph too large to walk."""
    waiting, seen, found = list(roots), set(), set()
    while waiting:
        node = waiting.pop()
        if node in seen or int(node._sequence_nr()) in shut:
            continue
        seen.add(node)
        if len(seen) > WALKED:
            return None
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            found.add(id(leaf))
        waiting += inputs(node)
    return found
