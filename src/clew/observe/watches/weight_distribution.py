"""Do the weights look ordinary, layer by layer, after some training?

On sampled steps takes the norm of every trained weight matrix and compares it with the first one seen.

Why it matters: weights that collapse, run away or turn NaN say where training goes wrong before the loss does.
Cannot tell: why it happens, and the shape of the distribution beyond its width.
Silent when: the width changes as training widens it, a small head grows to its size, or a matrix started at zero.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple

import torch

from clew.observe.watch import Answer, OptimizerEvent, Saw, Watch, when_sampled
from clew.observe.watches._network_graph import norms
from clew.observe.watches._training_values import held_by
from clew.records.clue import Unclear
from clew.records.place import Place

GROWN, SHRUNK = 30.0, 1e-3
WIDE, NARROW = 30.0, 0.01
"""Root mean square times the root of the smaller side: 0.6 to 1.4 is usual, beyond these it is not."""
FROM_STEP = 5
MATRICES = 5000


class Width(NamedTuple):
    parameter: weakref.ref[torch.Tensor]
    name: str
    first: float
    now: float
    step: int


class WeightDistribution(Watch):
    test = "weight_distribution"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.widths: dict[int, Width] = {}
        self.steps = 0

    @when_sampled
    def before_step(self, event: OptimizerEvent) -> None:
        if event.sampled and event.step == 0:
            self._measure(event)

    @when_sampled
    def after_step(self, event: OptimizerEvent) -> None:
        if event.sampled:
            self._measure(event)

    def _measure(self, event: OptimizerEvent) -> None:
        held = [p for p in held_by(event.optimizer) if p.dim() > 1 and p.requires_grad and p.numel() >= 16]
        sizes = norms(held[:MATRICES])
        names: dict[int, str] | None = None
        self.steps = max(self.steps, event.step)
        for parameter, size in zip(held, sizes, strict=False):
            rms = size / math.sqrt(parameter.numel())
            known = self.widths.get(id(parameter))
            if known is not None and known.parameter() is parameter:
                self.widths[id(parameter)] = known._replace(now=rms, step=event.step)
            elif len(self.widths) < MATRICES:
                names = self.recorder.parameter_names() if names is None else names
                name = names.get(id(parameter), f"parameter of shape {tuple(parameter.shape)}")
                self.widths[id(parameter)] = Width(weakref.ref(parameter), name, rms, rms, event.step)

    def read(self) -> Answer:
        if not self.widths:
            return Unclear("no optimiser with weight matrices took a step")
        if self.steps < FROM_STEP:
            return Unclear(f"only {self.steps + 1} steps were seen, too few to see a trend in the weights")
        odd = [(width, why) for width in self.widths.values() if (why := oddity(width))]
        if not odd:
            return Saw("usual", matrices=len(self.widths))
        width, why = odd[0]
        text = f"{width.name} {why}: its root mean square went from {width.first:.3g} to {width.now:.3g}."
        places = [Place(parameter=held.name, step=held.step) for held, _ in odd[:5]]
        return Saw("odd", matrices=len(odd), first=width.first, now=width.now).at(*places).saying(text)


def oddity(width: Width) -> str:
    """What is odd about a matrix, "" when nothing is."""
    if not math.isfinite(width.now):
        return "is not finite"
    tensor = width.parameter()
    if tensor is None or not math.isfinite(width.first) or width.first == 0:
        return ""
    scale = math.sqrt(min(tensor.shape[0], tensor.numel() // tensor.shape[0]))
    if width.now > GROWN * width.first and width.now * scale > WIDE:
        return "runs away"
    if width.now < SHRUNK * width.first and width.now * scale < NARROW:
        return "has collapsed"
    return ""
