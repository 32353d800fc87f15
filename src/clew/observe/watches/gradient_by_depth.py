"""How does the size of the gradient change from the last layer to the first?

On sampled steps, as the optimiser is about to use the gradients, takes the norm of each and compares the root mean
square in the first quarter of the weight matrices with that in the last, by the largest of each, in the order in which
the layers were executed. The largest, because queries and keys of attention have tiny gradients in sound models too.

Why it matters: a gradient that dies out or blows up over depth leaves the first layers untrained or throws them away.
Cannot tell: a gradient that is too small or too large everywhere; Adam evens out what SGD would suffer from.
Silent when: layers are frozen or left out of the optimiser, or the first steps only see zeros because the last layer
was set to zero on purpose. Embeddings are left out, since most of their rows get no gradient in any one step.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.watch import Answer, Backward, ModuleCall, OptimizerEvent, Watch, when_sampled
from clew.observe.watches._network_graph import LAYERS, TABLES, layer_name, median, norms
from clew.observe.watches._training_values import held_by
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from torch import nn

KEPT = 100
ENOUGH = 2
WITHOUT_OPTIMIZER, SEARCHING = 20, 2
"""How many backward passes are read in a run that has no optimiser, where no step ends the dense sampling; and of
LBFGS, which asks for many within one step and soon brings the gradient of the last layers to nothing."""


class GradientByDepth(Watch):
    test = "gradient_by_depth"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.order: dict[int, dict[str, weakref.ref[torch.Tensor]]] = {}
        self.tables: set[int] = set()
        self.decades: dict[tuple[int, str, str], deque[float | None]] = {}
        self.late = self.searches = False
        self.free_passes = 0

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or event.name == "?":
            return
        if isinstance(event.module, TABLES):
            self.tables.add(id(event.module.weight))
            return
        order = self.order.setdefault(event.model, {})
        for name, parameter in event.module._parameters.items():
            if parameter is not None and parameter.dim() > 1 and is_matrix(event.module, name):
                order.setdefault(f"{event.name}.{name}".lstrip("."), weakref.ref(parameter))

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        self.searches = isinstance(event.optimizer, torch.optim.LBFGS)
        if event.sampled and not self.searches:
            held = list(held_by(event.optimizer))
            # A closure (LBFGS) makes the gradients only inside the step: look after it instead.
            self.late = all(parameter.grad is None for parameter in held)
            if not self.late:
                self._measure(held)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        if event.sampled and self.late:
            self.late = False
            self._measure(list(held_by(event.optimizer)))

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        most = SEARCHING if self.searches else 0 if self.recorder.optimizers else WITHOUT_OPTIMIZER
        if event.sampled and self.free_passes < most:
            self.free_passes += 1
            self._measure([p for _, module in self.recorder.live_models() for p in module.parameters()])

    def _measure(self, held: list[torch.Tensor]) -> None:
        with_gradient = [(p, p.grad) for p in held if p.grad is not None]
        sizes = norms([gradient for _, gradient in with_gradient])
        names = self.recorder.parameter_names()
        for (parameter, _), size in zip(with_gradient, sizes, strict=True):
            self.recorder.record("grad_norm", size, of=names.get(id(parameter), "?"))
        rms = {id(p): size / math.sqrt(max(1, p.numel())) for (p, _), size in zip(with_gradient, sizes, strict=True)}
        trained = {id(parameter) for parameter in held if parameter.requires_grad}
        for number, order in self.order.items():
            self._compare(number, order, trained, rms)

    def _compare(
        self, number: int, order: dict[str, weakref.ref[torch.Tensor]], trained: set[int], rms: dict[int, float]
    ) -> None:
        layers = [(name, id(ref())) for name, ref in order.items() if id(ref()) in trained - self.tables]
        if len(layers) < 2:
            return
        live = [layer for layer in layers if rms.get(layer[1], 0.0) != 0]
        if not live and not any(rms.values()):
            return  # nothing has a gradient: a loss that is at its bottom, say
        last = live[-1] if live else layers[-1]
        if layers[0] == last:
            return
        key = (number, layers[0][0], last[0])
        if key in self.decades or len(self.decades) < 16:
            part = max(1, len(layers) // 4)
            held = self.decades.setdefault(key, deque(maxlen=KEPT))
            held.append(decades([rms.get(mark) for _, mark in layers], part))

    def read(self) -> Answer:
        found = []
        for key, held in self.decades.items():
            if len(held) < ENOUGH:
                continue
            # Once values are NaN all gradients are: what they were before that says more.
            known = [value for value in held if value is None or not math.isnan(value)]
            late = [value for value in known[len(known) // 2 :] if value is not None]
            if late:
                found.append((median(late), key))
            elif known:
                if all(value is None for value in known):
                    found.append((-math.inf, key))
            else:
                found.append((math.nan, key))
        if not found:
            return Unclear("no two layers with gradients were seen on as many as two sampled steps")
        value, (model, *ends) = max(found, key=lambda item: math.inf if math.isnan(item[0]) else abs(item[0]))
        first, last = (layer_name(self.recorder, (model, str(end))) for end in ends)
        reading = Reading(log10_first_over_last=value, first=first, last=last)
        return reading if abs(value) <= 3 else reading.at(Place(parameter=first))


def is_matrix(module: nn.Module, name: str) -> bool:
    """Whether a parameter is a layer's weight, and not a token, a table of positions or a decay."""
    return "weight" in name or not any(True for part in module.modules() if isinstance(part, LAYERS))


def decades(sizes: list[float | None], part: int) -> float | None:
    """First over last, from the sizes of the gradients in order of depth.

    None when the first layer has no gradient at all: on a later step it may, as with branches chosen by the data.
    """
    known = [size for size in sizes if size is not None]
    if sizes[0] is None or not known:
        return None
    if not all(math.isfinite(size) for size in known):
        return math.nan
    first = max(size for size in sizes[:part] if size is not None)
    last = max((size for size in sizes[-part:] if size), default=max(known))
    return math.log10(first / last) if sizes[0] > 0 and last > 0 else -math.inf
