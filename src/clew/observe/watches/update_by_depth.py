"""Do the first layers move as the last ones do?

Compares update over weight in the first quarter of the weight matrices with that in the last, over the sampled steps.

Why it matters: a gradient that dies out over depth leaves the first layers at their random start. Whether it does shows
in how far they move, and not in the size of the gradient: Adam divides that out, and narrow or normalised networks
train well with gradients that differ a thousandfold.
Cannot tell: why the first layers stand still; a lower rate for them on purpose (they are then in another group).
Silent when: layers have a rate of their own, are frozen, begin at zero, or are embeddings.
"""

from __future__ import annotations

import math
import weakref
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, ModuleCall, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._network_graph import TABLES, layer_name
from clew.observe.watches._training_values import median, real, skips
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from torch import nn

VALUES = 2048
FEWEST = 4
DEEP = 4
"""Fewer layers than this have no depth to lose a gradient over."""


class UpdateByDepth(Watch):
    test = "update_by_depth"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.order: dict[int, dict[str, weakref.ref[torch.Tensor]]] = {}
        self.before: dict[int, torch.Tensor] = {}
        self.found: dict[int, list[float]] = {}
        self.ends: dict[int, tuple[str, str]] = {}

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or event.name == "?" or isinstance(event.module, TABLES):
            return
        order = self.order.setdefault(event.model, {})
        held: nn.Module = event.module
        for name, parameter in held._parameters.items():
            if parameter is not None and parameter.dim() > 1 and "weight" in name and len(order) < 400:
                order.setdefault(f"{event.name}.{name}".lstrip("."), weakref.ref(parameter))

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        self.before = {}
        if skips(event.optimizer) or len({group.get("lr") for group in event.optimizer.param_groups}) > 1:
            return
        mine = {id(p) for group in event.optimizer.param_groups for p in group["params"] if p.requires_grad}
        for order in self.order.values():
            for held in order.values():
                weight = held()
                values = real(weight, VALUES) if weight is not None and id(weight) in mine else None
                if values is not None and weight is not None and weight.grad is not None:
                    self.before[id(weight)] = values.clone()

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        del event
        for number, order in self.order.items():
            ratios: list[tuple[str, float]] = []
            for name, held in order.items():
                weight = held()
                old = self.before.get(id(weight)) if weight is not None else None
                new = real(weight, VALUES) if weight is not None and old is not None else None
                if old is None or new is None or new.shape != old.shape:
                    continue
                size = float(torch.linalg.vector_norm(old))
                if size > 0:
                    ratios.append((name, float(torch.linalg.vector_norm(new - old)) / size))
            if len(ratios) >= DEEP:
                self._compare(number, ratios)
        self.before = {}

    def _compare(self, number: int, ratios: list[tuple[str, float]]) -> None:
        part = max(1, len(ratios) // 4)
        first = max(ratio for _, ratio in ratios[:part])
        last = max(ratio for _, ratio in ratios[-part:])
        if last > 0 and math.isfinite(first) and math.isfinite(last):
            value = math.log10(first / last) if first > 0 else -math.inf
            self.found[number] = [*self.found.get(number, []), value][-200:]
            self.ends[number] = (ratios[0][0], ratios[-1][0])

    def read(self) -> Answer:
        known = {number: median(values) for number, values in self.found.items() if len(values) >= FEWEST}
        if not known:
            return Unclear(f"no model with {DEEP} or more layers ran for {FEWEST} or more steps")
        number, value = min(known.items(), key=lambda item: item[1])
        first, last = (layer_name(self.recorder, (number, name)) for name in self.ends[number])
        reading = Reading(log10_first_over_last=value, first=first, last=last)
        return reading.at(Place(parameter=first)) if value < -3 else reading
