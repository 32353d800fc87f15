"""How many targets are masked out?

Counts the targets equal to ignore_index at the training calls of cross_entropy and nll_loss on sampled steps. Where
there is one label for each example nothing is padded, and an ignore_index that is a class takes that class out. Where
all that counts is one and the same class, batch after batch, the others are behind ignore_index, as in masks that were
saved with 255 for a class.

Why it matters: where every target is ignored the mean is taken over nothing, the loss is NaN or zero, and nothing is
learnt.
Cannot tell: whether a high share is meant, as in fine-tuning on answers alone; masks multiplied by hand.
Silent when: at least a tenth of the targets counts, these are of several classes, or nothing at all is left out (a
contrastive loss whose target is always the first), and the label that is left out is no class of whole examples, or the
loss is called for one position of all sequences after the other, where it may be padding.
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


BATCHES, COUNT, LEFT_OUT = 8, 400, 0.02
"""From how many batches and targets on a single class is no accident, and the least share that must be left out."""


class Site:
    """What one call of a loss in the script was given."""

    def __init__(self) -> None:
        self.batches = self.count = self.targets = 0
        self.label: int | None = None
        self.several = False

    def add(self, targets: torch.Tensor, left_out: int) -> None:
        kept = targets[targets != left_out]
        self.targets += len(targets)
        if not len(kept) or self.several:
            return
        low, high = int(kept.min()), int(kept.max())
        self.several = low != high or self.label not in (None, low)
        self.label = low
        self.batches += 1
        self.count += len(kept)

    @property
    def share(self) -> float:
        return 1 - self.count / self.targets

    @property
    def one_left(self) -> bool:
        enough = self.batches >= BATCHES and self.count >= COUNT
        return enough and not self.several and LEFT_OUT < self.share <= 0.9


class LabelsMasked(Watch):
    test = "labels_masked"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.targets = self.batches = self.empty = 0
        self.masked = 0.0
        self.where: Place | None = None
        self.examples = 0  # of the forward call before the loss
        self.sites: dict[Place | None, Site] = {}
        self.last: tuple[Place | None, int] = (None, -1)
        self.by_position = False
        self.classes: set[int] = set()  # left out where they stand for whole examples

    def forward(self, event: Forward) -> None:
        if event.grad and self.recorder.sampled:
            first = next((held for held in tensors_in(event.inputs, torch) if held.dim()), None)
            self.examples = first.shape[0] if first is not None else 0

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad or event.name not in CLASSES or not integers(event.target):
            return
        targets = some(event.target)
        share = float((targets == ignored(event)).float().mean())
        if event.input.dim() > 1 and event.input.shape[1] > 1 and (event.place in self.sites or len(self.sites) < 32):
            self.sites.setdefault(event.place, Site()).add(targets.reshape(-1), ignored(event))
        self.batches += 1
        self.empty += share == 1.0
        self.targets += event.target.numel()
        self.masked += share * event.target.numel()
        if self.last == (event.place, event.step):
            self.by_position = True  # one position of all sequences after the other
            self.classes.clear()
        self.last = (event.place, event.step)
        whole = event.target.dim() == 1 and len(event.target) == self.examples > 1 and not self.by_position
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
            says = f"class {label} is ignore_index, so none of its examples counts: {share:.0%} of the labels"
            return Saw("one_class", share_left_out=share, label=label).at(self.where).saying(says)
        for place, site in self.sites.items():
            if site.one_left:
                says = (
                    f"every target that counts is class {site.label}, in {site.batches} batches; the other "
                    f"{site.share:.0%} equal ignore_index and are ignored, so no other class is ever learned"
                )
                saw = Saw("one_left", share_left_out=site.share, label=site.label, batches=site.batches)
                return saw.at(place).saying(says)
        reading = Reading(masked_share=share, batches=self.batches, empty_batches=self.empty)
        return reading.at(self.where) if self.where is not None and (share > 0.9 or self.empty) else reading
