"""Does one class make up most of the labels?

Counts the labels at the training calls of classification losses on sampled steps: class indices, and binary targets of
a single output.

Why it matters: naming the frequent class everywhere is the first thing that lowers the loss, and accuracy then shows
nothing else.
Cannot tell: whether the imbalance hurts; labels of steps that were not sampled.
Silent when: the loss weights the classes, labels are ignored by ignore_index, every pixel or token has a label of its
own on further axes, one call site always gets one and the same label (a discriminator's "real" and "fake"), or the one
label that there is was made by the script and came with no batch (the place of the positive in a contrastive loss).
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch

from clew.observe.watch import Answer, Batch, LossCall, Watch, when_sampled
from clew.observe.watches._loss_values import CLASSES, ignored, integers, plain, some
from clew.records.clue import Reading, Unclear
from clew.records.place import Place

BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
ENOUGH = 20
HELD = 512


class LabelCounts(Watch):
    test = "label_counts"

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self.by_site: dict[tuple[str, Place | None], Counter[int]] = {}
        self.weighted = False
        self.given: list[weakref.ref[torch.Tensor]] = []  # integers in the last batch of a loader
        self.loaders = False
        self.from_data: set[tuple[str, Place | None]] = set()

    @when_sampled
    def batch(self, event: Batch) -> None:
        self.loaders = True
        self.given = [weakref.ref(held) for held in event.tensors if not held.is_floating_point()]

    @when_sampled
    def loss(self, event: LossCall) -> None:
        if not event.sampled or not event.grad:
            return
        labels = self._labels(event)
        if labels is None:
            return
        if event.options.get("weight") is not None or event.options.get("pos_weight") is not None:
            self.weighted = True
            return
        site = (event.name, event.place)
        if site not in self.by_site and len(self.by_site) >= 64:
            return
        counts = self.by_site.setdefault(site, Counter())
        values, numbers = torch.unique(labels, return_counts=True)
        counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
        if len(counts) == 1 and self._came_with_the_batch(event.target):
            self.from_data.add(site)
        if len(counts) > HELD:
            self.by_site[site] = Counter(dict(counts.most_common(HELD // 2)))

    def _labels(self, event: LossCall) -> torch.Tensor | None:
        if event.name in CLASSES and integers(event.target):
            if event.input.dim() != 2:
                return None
            labels = some(event.target)
            return labels[labels != ignored(event)]
        if event.name in BINARY and plain(event.target) and event.target.numel() == event.target.shape[:1].numel():
            labels = some(event.target)
            return labels.round().long() if bool(((labels == 0) | (labels == 1)).all()) else None
        return None

    def _came_with_the_batch(self, target: torch.Tensor) -> bool:
        held = [tensor for tensor in (ref() for ref in self.given) if tensor is not None]
        return any(tensor.numel() == target.numel() and tensor.flatten()[0] == target.flatten()[0] for tensor in held)

    def read(self) -> Answer:
        counts: Counter[int] = Counter()
        where: list[Place] = []
        for (name, place), held in self.by_site.items():
            made_here = self.loaders and (name, place) not in self.from_data
            if len(held) < 2 and (name in BINARY or made_here):
                continue
            counts.update(held)
            where += [place] if place is not None else []
        labels = counts.total()
        if labels < ENOUGH:
            if self.weighted:
                return Unclear("the loss weights the classes, so label counts alone say little")
            return Unclear("too few labels of one class per example were seen")
        (label, most), *_ = counts.most_common(1)
        reading = Reading(largest_class_share=most / labels, label=label, labels=labels, classes=len(counts))
        return reading.at(*where[:1]) if most > 0.8 * labels else reading
