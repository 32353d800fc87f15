"""How many targets are masked out?

Counts the targets equal to ignore_index at the training calls of cross_entropy and nll_loss on sampled steps. Where
there is one label for each example nothing is padded, and an ignore_index that is a class takes that class out.

Why it matters: where every target is ignored the mean is taken over nothing, the loss is NaN or zero, and nothing is
learnt.
Cannot tell: whether a high share is meant, as in fine-tuning on answers alone; masks multiplied by hand.
Silent when: at least a tenth of the targets counts, and the label that is left out is no class of whole examples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, LossCall, Saw, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, ignored, integers, some
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.records.place import Place


class LabelsMasked(Watch):
    test = "labels_masked"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.targets = self.batches = self.empty = 0
        self.masked = 0.0
        self.where: Place | None = None
        self.examples = 0  # of the forward call before the loss
        self.classes: set[int] = set()  # left out where they stand for whole examples

    def forward(self, event: Forward) -> None:
        if event.grad and self.recorder.sampled:
            first = next((held for held in tensors_in(event.inputs, torch) if held.dim()), None)
            self.examples = first.shape[0] if first is not None else 0

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name not in CLASSES or not integers(event.target):
            return
        share = float((some(event.target) == ignored(event)).float().mean())
        self.batches += 1
        self.empty += share == 1.0
        self.targets += event.target.numel()
        self.masked += share * event.target.numel()
        whole = event.target.dim() == 1 and len(event.target) == self.examples > 1
        if whole and 0 < share < 1 and 0 <= ignored(event) < event.input.shape[-1]:
            self.classes.add(ignored(event))
            self.where = event.place
        if self.where is None or share == 1.0:
            self.where = event.place

    def read(self) -> Answer:
        if not self.targets:
            return Unclear("no training call of a loss with class indices was seen")
        share = self.masked / self.targets
        if len(self.classes) == 1 and share <= 0.9:
            label = next(iter(self.classes))
            says = f"class {label} is ignore_index, so no example of it counts: {share:.0%} of the labels"
            return Saw("one_class", share_left_out=share, label=label).at(self.where).saying(says)
        reading = Reading(masked_share=share, batches=self.batches, empty_batches=self.empty)
        return reading.at(self.where) if self.where is not None and (share > 0.9 or self.empty) else reading
