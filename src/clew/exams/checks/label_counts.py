"""Does one class make up most of the labels?

Counts the labels of all available batches: class numbers, one-hot and soft targets by their largest entry, and binary
targets of a single output.

Why it matters: predicting the frequent class everywhere is the first thing that lowers the loss, and accuracy hides it.
Cannot tell: whether the imbalance hurts; the counts of examples beyond the batches given.
Silent when: no class holds over 80 %. Unclear when the loss weights the classes, when every pixel or token has a label
of its own, for targets that are values, and below 20 labels.
Sources: class-imbalance
"""

from __future__ import annotations

import torch

from clew.exams.checks._data_tables import labels_of
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

ENOUGH = 20


@exam("label_counts", seconds=0.2)
def examine(lab: Lab) -> Answer:
    labels = labels_of(lab, lab.distinct)
    if labels is None:
        return Unclear("the batches hold no label per example")
    if labels.kind == "values":
        return Unclear("the targets are values, not classes")
    if labels.dense:
        return Unclear("every position has its own label, where one class usually dominates")
    if any(getattr(lab.subject.loss, name, None) is not None for name in ("weight", "pos_weight")):
        return Unclear("the loss weights the classes, so class counts alone are not informative")
    y = labels.y[labels.y >= 0]
    if len(y) < ENOUGH:
        return Unclear(f"{len(y)} labels are too few to judge their balance")
    found, counts = torch.unique(y, return_counts=True)
    most = int(counts.argmax())
    reading = Reading(
        largest_class_share=int(counts[most]) / len(y), label=int(found[most]), labels=len(y), classes=len(found)
    )
    place = lab.place()
    return reading.at(place) if place is not None else reading
