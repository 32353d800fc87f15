"""Is what enters the loss cut off at zero, where the answers wanted lie below?

At the calls of loss functions in training, reads from the graph whether a rectifier made what they get. Then counts: in
a classification the examples whose own class has a score of exactly zero, in a regression the targets below zero.

Why it matters: where a rectifier gives zero it passes no gradient, so an example whose own class stands at zero cannot
raise it, and a class at zero for all examples is lost for good. A target below zero cannot be reached at all.
Cannot tell: losses written out by hand.
Silent when: the rectifier stands before another layer, next to no target is cut off, or the loss has another aim than
classes or differences.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.observe.watch import Answer, Backward, LossCall, ModuleCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_graph import origin
from clew.observe.watches._loss_values import by_class, integers, plain, some
from clew.observe.watches._network_graph import Calls
from clew.observe.watches._network_lines import line_of
from clew.observe.watches._network_units import is_rectifier, made_by_layer
from clew.observe.watches._where import layer_places
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

SCORES = ("cross_entropy", "multi_margin_loss")
DIFFERENCES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.Threshold)
SHARE = 0.1
LATEST = 8
ENOUGH = 4
TRIES = 12


class OutputRectified(Watch):
    test = "output_rectified"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.calls = 0
        self.cut: dict[str, deque[float]] = {}  # by loss: the share that cannot be reached, on the latest calls
        self.made: list[Any] = []  # rectifiers of this step
        self.modules = Calls()
        self.place: Place | None = None
        self.lines: tuple[Place, ...] = ()
        self.tries = TRIES

    def module(self, event: ModuleCall) -> None:
        if isinstance(event.module, RECTIFIERS) and not event.evaluation and not self.lines:
            self.modules.note(event, (event.model, event.name))

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or not plain(event.input) or not plain(event.target):
            return
        if event.name not in SCORES + DIFFERENCES or event.input.grad_fn is None:
            return
        self.calls += 1
        node = origin(event.input)
        if node is None or not is_rectifier(node) or not made_by_layer(node):
            self.cut.pop(event.name, None)
            return
        share = own_class_at_zero(event) if event.name in SCORES else below_zero(event)
        if share is not None:
            self.cut.setdefault(event.name, deque(maxlen=LATEST)).append(share)
            self.made, self.place = [node], event.place
            if not self.lines and self.modules.has(node):
                self.lines = layer_places(self.recorder, self.modules.get(node), None, None, False)

    @when_sampled
    def before_backward(self, event: Backward) -> None:
        if self.made and self.tries and not self.lines and event.loss.grad_fn is not None:
            self.tries -= 1
            line = line_of(self.recorder, self.made[0], event.loss)
            self.lines = (line,) if line is not None else ()
        self.made = []

    def read(self) -> Answer:
        if not self.calls:
            return Unclear("no call of a loss function with scores or differences was seen in training")
        for name, shares in self.cut.items():
            share = sum(shares) / len(shares)
            if len(shares) < ENOUGH or share < SHARE:
                continue
            places = (*self.lines, self.place)
            if name in SCORES:
                says = (
                    f"a ReLU produces the scores; {share:.0%} of the examples have a score of exactly 0 for their "
                    "own class"
                )
                return Saw("scores", share=share, loss=name).at(*places).saying(says)
            says = f"a ReLU produces the predictions; {share:.0%} of the targets are negative"
            return Saw("predictions", share=share, loss=name).at(*places).saying(says)
        return Saw("free", calls=self.calls)


def own_class_at_zero(event: LossCall) -> float | None:
    """The share of examples whose own class stands at exactly zero."""
    scores, target = event.input.detach(), event.target.detach()
    if not integers(target) or scores.dim() != target.dim() + 1 or scores.dim() < 2:
        return None
    joined = by_class(torch.cat([scores.float(), target.unsqueeze(1).float()], 1))
    rows, own = joined[:, :-1], joined[:, -1].long()
    held = (own >= 0) & (own < rows.shape[1])
    if int(held.sum()) < 2:
        return None
    return float((rows[held].gather(1, own[held, None]) == 0).float().mean())


def below_zero(event: LossCall) -> float | None:
    """The share of targets that lie clearly below zero. Those that are computed may be what another network aims at."""
    if event.target.requires_grad or event.target.shape != event.input.shape:
        return None
    values = some(event.target).float()
    size = float(values.abs().mean())
    return float((values < -0.05 * size).float().mean()) if size else None
