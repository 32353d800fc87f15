"""When gradients are accumulated over k batches, is the loss divided by k?

Why it matters: k mean losses that are summed give a gradient k times that of the large batch they stand for. With SGD
that is a k times higher rate, and every clipping limit is off by the same factor.
Cannot tell: a learning rate that was tuned with the sum in place.
Silent when: the loss is divided or multiplied by a constant, summed over examples, different loss terms have a
backward of their own (a discriminator on real and fake data), batches come from several loaders or tensors (one per
task), the gradients are rescaled before the step, or the optimiser divides every gradient by its size. Without a
loader, batches count that were picked from one tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import (
    Answer,
    Backward,
    Batch,
    Clip,
    Forward,
    LossCall,
    OptimizerEvent,
    Saw,
    Watch,
    when_sampled,
)
from clew.observe.watches._training_updates import adaptive
from clew.observe.watches._training_values import held_by, total_norm
from clew.records.clue import Unclear
from clew.records.place import Place

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

WINDOWS = 2
DEPTH = 6
SUMS = ("SumBackward0",)
SCALED, MEAN, OTHER = "scaled", "mean", "other"


class AccumulationScaling(Watch):
    test = "accumulation_scaling"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.summed = False  # the latest loss function was told to sum
        self.loaders: list[int] = []  # of the batches since the last step; below zero for one picked by hand
        self.backwards: list[tuple[Place | None, str]] = []
        self.fresh = False
        self.norm = math.nan  # after the latest backward
        self.scale = 1.0  # of a GradScaler, in the latest loss
        self.rescaled = False
        self.known = True
        self.evened = False
        self.steps = self.windows = self.unscaled = self.most = 0
        self.place: Place | None = None

    def batch(self, event: Batch) -> None:
        self.fresh = True
        if len(self.loaders) < 512:
            self.loaders.append(event.loader)

    def forward(self, event: Forward) -> None:
        """A batch that no loader gave, where it is seen which tensor it was picked from."""
        if event.evaluation or (self.loaders and self.loaders[-1] >= 0):
            return
        first = next(iter(tensors_in(event.inputs, torch)), None)
        source = self.recorder.picked.source_of(first) if first is not None else None
        if source is not None and first is not None and first.dim() == source.dim() and len(self.loaders) < 512:
            self.fresh = True
            self.loaders.append(-id(source))

    def loss(self, event: LossCall) -> None:
        self.summed = event.options.get("reduction", "mean") in ("sum", "none")

    def before_backward(self, event: Backward) -> None:
        if not event.sampled:
            self.known = False
        elif len(self.backwards) < 512:
            kind, self.scale = _kind(event.loss.grad_fn)
            self.backwards.append((event.place, kind if self.fresh and not self.summed else OTHER))
            self.fresh = False

    @when_sampled
    def after_backward(self, event: Backward) -> None:
        if event.sampled and len(self.backwards) > 1:
            self.norm = self._norm()

    def _norm(self) -> float:
        return sum(total_norm(held_by(optimizer)) for _, optimizer in self.recorder.live_optimizers())

    @when_sampled
    def clip(self, event: Clip) -> None:
        if event.sampled and event.norm is not None and len(self.backwards) > 1:
            self._compare(float(event.norm), total=len(self.recorder.live_optimizers()) == 1)

    def _compare(self, now: float, total: bool = True) -> None:
        if total and math.isfinite(self.norm):
            expected = (self.norm, self.norm / self.scale)
            self.rescaled = self.rescaled or not any(math.isclose(now, norm, rel_tol=0.05) for norm in expected)
        self.norm = math.nan

    def zero_grad(self, event: OptimizerEvent) -> None:
        del event
        latest = self.loaders[-1:]  # the batch that this clearing came after belongs to the new window
        self._begin()
        self.loaders = latest

    def before_step(self, event: OptimizerEvent) -> None:
        self.steps += 1
        self.evened = self.evened or adaptive(event.optimizer)
        if event.sampled and self.known and len(self.backwards) > 1:
            self._compare(self._norm())
            self._judge()
        self._begin()

    def _judge(self) -> None:
        places = {place for place, _ in self.backwards}
        if len(places) > 1 or len(set(self.loaders)) != 1 or len(self.loaders) < len(self.backwards):
            return
        self.windows += 1
        self.most = max(self.most, len(self.backwards))
        if not self.rescaled and all(kind == MEAN for _, kind in self.backwards):
            self.unscaled += 1
            self.place = self.backwards[0][0]

    def _begin(self) -> None:
        self.loaders.clear()
        self.backwards.clear()
        self.norm = math.nan
        self.rescaled = False
        self.known = True

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        if self.unscaled >= WINDOWS and self.unscaled >= self.windows / 2:
            if self.evened:
                return Unclear("the backward passes are summed undivided, a factor that this optimiser normalises away")
            return (
                Saw("unscaled", backwards_per_step=self.most, windows=self.unscaled)
                .at(self.place)
                .saying(f"{self.most} backward passes of a mean loss are summed for one step, and none is divided")
            )
        return Saw("scaled_or_none", windows=self.windows, backwards_per_step=self.most)


def _kind(node: Any) -> tuple[str, float]:
    """What the loss was made of at its root, a mean as it stands or something scaled, and a GradScaler's factor."""
    scale = 1.0
    for _ in range(DEPTH):
        if node is None:
            return OTHER, scale
        name = node.name()
        if name.startswith(("MulBackward", "DivBackward")):
            factor = _loss_scale(node, name)
            if not factor:
                return SCALED, scale
            scale *= factor
            node = node.next_functions[0][0]
        elif name.startswith(("AddBackward", "SqueezeBackward", "ViewBackward", "ToCopyBackward", "NegBackward")):
            kinds = {_kind(following)[0] for following, _ in node.next_functions if following is not None}
            return SCALED if SCALED in kinds else MEAN if MEAN in kinds else OTHER, scale
        else:
            return OTHER if name in SUMS else MEAN, scale
    return OTHER, scale


def _loss_scale(node: Any, name: str) -> float:
    """The factor of a GradScaler: a power of two, two or more; 0 for any other multiplication."""
    held = getattr(node, "_saved_other", None) if name.startswith("Mul") else None
    if held is None or (isinstance(held, torch.Tensor) and held.numel() != 1):
        return 0.0
    factor = float(held.detach() if isinstance(held, torch.Tensor) else held)
    return factor if factor >= 2 and math.frexp(factor)[0] == 0.5 else 0.0
