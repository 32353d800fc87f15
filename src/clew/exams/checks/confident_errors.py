"""Do the most confident mistakes have something in common?

Sorts the wrong predictions on validation batches (or on the training batches, where there are none) by confidence, and
looks at the top 50: which label was taken for which, and whether brightness, contrast or emptiness of the input sets
them apart from what was right. When the lab keeps files, they are written out for a person to look at.

Why it matters: wrong labels, different preprocessing and forgotten classes are at the top of this list.
Cannot tell: a wrong label from a wrong prediction without a look by a person; classes that really are alike.
Silent when: the mistakes are spread as the labels are. Unclear for a model that is no better than the most frequent
class, for targets that are values, for labels of positions, and for fewer than ten mistakes.
Sources: worst-mistakes
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch

from clew.exams.batches import Batch, rows
from clew.exams.checks._data_keep import Shown, keep
from clew.exams.checks._data_tables import by_example, inputs_of, labels_of, prediction
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

TOP = 50
FEWEST = 10
PAIR_SHARE, PAIR_EXCESS = 0.5, 0.35
SURE = 1e-4
MAPPED = 0.8
APART = 0.9


class Judged(NamedTuple):
    """Class probabilities and labels of all examples, on the CPU."""

    chances: torch.Tensor
    labels: torch.Tensor

    @property
    def named(self) -> torch.Tensor:
        return self.chances.argmax(1)

    @property
    def confidence(self) -> torch.Tensor:
        return self.chances.max(1).values


@exam("confident_errors", needs=("loss",), seconds=1.0)
def examine(lab: Lab) -> Answer:
    batches = lab.val_pairs or lab.batches
    labels = labels_of(lab, batches)
    if labels is None or labels.kind != "classes" or labels.dense:
        return Unclear("the batches hold no class label for each example")
    chances = probabilities(lab, batches, labels.classes)
    if chances is None:
        return Unclear("the output gives no score for each class")
    judged = Judged(chances, labels.y[:, 0].cpu())
    wrong = (judged.named != judged.labels).nonzero().flatten()
    wrong = wrong[judged.confidence[wrong].argsort(descending=True)][:TOP]
    _keep(lab, batches, judged, wrong)
    if len(wrong) < FEWEST:
        return Unclear(f"{len(wrong)} mistakes among {len(judged.labels)} examples are too few to show a pattern")
    return _judge(judged, wrong, batches)


def _judge(judged: Judged, wrong: torch.Tensor, batches: Sequence[Batch]) -> Answer:
    accuracy = float((judged.named == judged.labels).double().mean())
    frequent = float(judged.labels.bincount().max()) / len(judged.labels)
    figures = {"mistakes": len(wrong), "examples": len(judged.labels), "accuracy": round(accuracy, 4)}
    renamed = _renamed(judged)
    if renamed:
        return Saw("systematic", **figures).saying(renamed)
    noise = math.sqrt(frequent * (1 - frequent) / len(judged.labels))
    if accuracy <= frequent + 2 * noise:
        return Unclear(
            f"{100 * accuracy:.0f} % are right, no better than the most frequent class with "
            f"{100 * frequent:.0f} %: such mistakes are not informative yet"
        )
    pairs = Counter(zip(judged.labels[wrong].tolist(), judged.named[wrong].tolist(), strict=True))
    (label, said), most = pairs.most_common(1)[0]
    expected = expected_share(judged, label)
    share = most / len(wrong)
    if share >= max(PAIR_SHARE, expected + PAIR_EXCESS) and _tail(most, len(wrong), expected) < SURE:
        return Saw("systematic", **figures, label=label, said=said, share=round(share, 4)).saying(
            f"{most} of the {len(wrong)} most confident mistakes predict {said} for label {label}; "
            f"evenly spread it would be {expected * len(wrong):.2g}."
        )
    trait, apart = _trait(judged, wrong, batches)
    if max(apart, 1 - apart) >= APART:
        return Saw("systematic", **figures, trait=trait, separation=round(apart, 4)).saying(
            f"The mistakes differ from the correct predictions in the {trait} of their inputs (area under "
            f"curve {apart:.2f})."
        )
    return Saw("scattered", **figures, share=round(share, 4)).saying(
        f"The {len(wrong)} most confident mistakes share neither labels nor kinds of input."
    )


def probabilities(lab: Lab, batches: Sequence[Batch], classes: int) -> torch.Tensor | None:
    """(examples, classes) in eval mode; one output per example is read as a binary logit."""
    model = lab.late(training=False)
    found = []
    for number, batch in enumerate(batches):
        lab.check(number / len(batches))
        with torch.no_grad(), lab.seeded():
            outputs = prediction(lab.output(model, batch), rows(batch))
        held = by_example(outputs[0]).double().cpu() if outputs and outputs[0].is_floating_point() else None
        if held is None or held.shape[1] < (classes if classes > 2 else 1):
            return None
        if held.shape[1] == 1:
            held = held if bool(((held >= 0) & (held <= 1)).all()) else held.sigmoid()
            held = torch.cat([1 - held, held], 1)
        elif not bool((held >= 0).all() & ((held.sum(1) - 1).abs() < 1e-3).all()):
            held = held.softmax(1)
        found.append(held)
    return torch.cat(found)


def _renamed(judged: Judged) -> str:
    """Labels that are taken for another one throughout, each for a different one: off by one, or in another order."""
    right = judged.labels == judged.named
    if float(right.double().mean()) > 0.2:
        return ""
    said = {}
    for label in torch.unique(judged.labels).tolist():
        answers = judged.named[judged.labels == label]
        favourite = int(answers.mode().values)
        if favourite == label or float((answers == favourite).double().mean()) < MAPPED:
            return ""
        said[label] = favourite
    if len(said) < 3 or len(set(said.values())) < len(said):
        return ""
    few = ", ".join(f"{label} for {answer}" for label, answer in list(said.items())[:3])
    return f"Labels are consistently confused: {few}."


def expected_share(judged: Judged, label: int) -> float:
    """The share of mistakes that one pair would have if they fell on labels and answers by their numbers."""
    classes = len(torch.unique(judged.labels))
    return float((judged.labels == label).double().mean()) / max(1, classes - 1)


def _tail(least: int, tries: int, chance: float) -> float:
    """The probability of so many hits or more."""
    return sum(
        math.comb(tries, hits) * chance**hits * (1 - chance) ** (tries - hits) for hits in range(least, tries + 1)
    )


def _trait(judged: Judged, top: torch.Tensor, batches: Sequence[Batch]) -> tuple[str, float]:
    """The plain property of the inputs that sets mistakes apart the most, with the area under its curve."""
    inputs = inputs_of(batches)
    table = inputs.values if inputs.values is not None else inputs.tokens
    right = (judged.named == judged.labels).nonzero().flatten()
    if table is None or len(table) != len(judged.labels) or not len(right):
        return "", 0.5
    held = table.double().cpu()
    traits = {"mean": held.mean(1), "spread": held.std(1), "share of zeros": (held == 0).double().mean(1)}
    areas = {name: area(values[top], values[right]) for name, values in traits.items() if table.shape[1] > 1}
    if not areas:
        return "", 0.5
    name = max(areas, key=lambda name: abs(areas[name] - 0.5))
    return name, areas[name]


def area(one: torch.Tensor, two: torch.Tensor) -> float:
    """The probability that one of the first has a larger value than one of the second, ties counting half."""
    two = two.sort().values
    below = torch.searchsorted(two, one, right=False) + torch.searchsorted(two, one, right=True)
    return float(below.double().sum()) / (2 * len(one) * len(two))


def _keep(lab: Lab, batches: Sequence[Batch], judged: Judged, wrong: torch.Tensor) -> None:
    folder = getattr(lab, "keep", None)
    if not folder or not len(wrong):
        return
    starts = torch.tensor([0, *[rows(batch) for batch in batches]]).cumsum(0)
    for number, batch in enumerate(batches):
        inside = [int(place) for place in wrong if starts[number] <= place < starts[number + 1]]
        if inside:
            shown = [
                Shown(
                    place - int(starts[number]),
                    {
                        "label": str(int(judged.labels[place])),
                        "said": str(int(judged.named[place])),
                        "confidence": f"{float(judged.confidence[place]):.4f}",
                    },
                )
                for place in inside
            ]
            keep(os.path.join(str(folder), "confident_errors", f"batch_{number:03d}"), batch, shown)
