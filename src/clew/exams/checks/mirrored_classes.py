"""Do training examples look like another class because of random flips?

Fits a small model on validation examples of two classes at a time, on coarse pixels and on the sizes of the frequencies
along both axes; a signal is turned into its spectrum over time first. Where it distinguishes the two classes, and swaps
them once the examples are flipped along an axis, direction is what distinguishes them. Then it classifies the training
examples as the model got them.

Why it matters: a reversed rising call is a falling one, and a mirrored 2 resembles a 5. Half of the
training examples then carry the label of another class, and the two classes cannot be learned.
Cannot tell: which axis, where flipping along either has the same effect; classes that such a small model cannot
distinguish.
Silent when: flips leave the class unchanged, training examples are classified as well as validation examples, or
examples of other classes are also classified badly in training, as after any strong augmentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import torch

from clew.exams.batches import distinct
from clew.exams.checks._data_tables import labels_of, shown_inputs, stacked
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

MOST, VALUES, CLASSES = 1024, 20_000_000, 12
EACH = 12
"""Examples of a class, on either side."""
SIDE, LONG = 8, 256
"""The shortest axis of a picture, and the length from which on a row of values is taken for a signal."""
FRAMES, COARSE, WAVES, LARGE = 32, 8, 8, 64
"""Pictures whose sides are longer than the last are made smaller: low frequencies are enough."""
FOLDS, RIDGE = 4, 0.1
APART, TURNED = 0.85, 0.2
"""How often two classes are told apart as they are, and once they are turned round."""
LOST, LEAST = 0.72, 0.25
"""How often at most they are distinguished in training, and how often either of them is: half are unchanged."""
KEPT, ELSEWHERE = 0.7, 0.8
"""Classes that turning leaves as they are, and how well these are told in training."""


class Pair(NamedTuple):
    classes: tuple[int, int]
    plain: float
    turned: float
    training: tuple[float, float]

    @property
    def trained(self) -> float:
        return sum(self.training) / 2


@exam("mirrored_classes", needs=("validation",), seconds=0.8)
def examine(lab: Lab) -> Answer:
    sides = []
    for batches in (distinct(lab.batches), distinct(lab.val_pairs)):
        labels = labels_of(lab, batches) if batches else None
        if labels is None or labels.kind != "classes" or labels.dense:
            return Unclear("the batches hold no class for each example")
        shown = [shown_inputs(batch) for batch in batches]
        if any(len(held) != 1 for held in shown):
            return Unclear("the model takes more than one input")
        x = stacked([held[0].tensor for held in shown])
        if x is None or not x.is_floating_point() or len(x) != len(labels.y) or not _readable(x):
            return Unclear("the inputs are neither images nor signals")
        most = min(MOST, VALUES // max(1, x[0].numel()))
        sides.append((x[:most].float().cpu(), labels.y[:most, 0].cpu()))
    (x, y), (held, wanted) = sides
    if x.shape[1:] != held.shape[1:] or not bool(torch.isfinite(x).all() and torch.isfinite(held).all()):
        return Unclear("training and validation examples have different shapes")
    able = [name for name in range(int(wanted.max()) + 1) if min(_count(y, name), _count(wanted, name)) >= EACH]
    if not 2 <= len(able) <= CLASSES:
        return Unclear("there are too few examples per class, or too many classes")
    return _judge(lab, able, (x, y), (held, wanted))


def _judge(
    lab: Lab, able: list[int], training: tuple[torch.Tensor, torch.Tensor], held: tuple[torch.Tensor, torch.Tensor]
) -> Answer:
    (x, y), (others, wanted) = training, held
    known, plain = features(x), features(others)
    looked = False
    for axis in range(1, others.dim()):
        if others.shape[axis] < SIDE:
            continue
        lab.check(axis / others.dim())
        pairs = list(_pairs(able, plain, features(others.flip(axis)), wanted, known, y))
        looked = looked or bool(pairs)
        lost = [pair for pair in pairs if pair.turned <= TURNED and pair.trained <= LOST and min(pair.training) > LEAST]
        touched = {name for pair in lost for name in pair.classes}
        steady = [pair.trained for pair in pairs if pair.turned >= KEPT and not touched & set(pair.classes)]
        if steady and sum(steady) / len(steady) < ELSEWHERE:
            continue
        if lost:
            worst = max(lost, key=lambda pair: pair.plain - pair.turned)
            one, other = worst.classes
            says = (
                f"Classes {one} and {other} are distinguished in {worst.plain:.0%} of the validation "
                f"examples, and swapped once they are flipped along axis {axis} ({worst.turned:.0%} right). "
                f"Of the training examples, only {worst.trained:.0%} look like their class: they are flipped at random"
            )
            figures = {"plain": worst.plain, "turned": worst.turned, "training": worst.trained}
            return Saw("turned", axis=axis, classes=f"{one}, {other}", **figures).saying(says)
    if not looked:
        return Unclear("a small model cannot distinguish any two classes")
    return Saw("kept").saying("Training examples look as much like their class as validation examples do.")


def _pairs(
    able: list[int],
    plain: torch.Tensor,
    turned: torch.Tensor,
    wanted: torch.Tensor,
    known: torch.Tensor,
    labels: torch.Tensor,
) -> Iterator[Pair]:
    """The pairs of classes that validation examples tell apart."""
    for one, other in combinations(able, 2):
        rows, seen = (torch.where((held == one) | (held == other))[0] for held in (wanted, labels))
        sign = torch.where(wanted[rows] == one, 1.0, -1.0).double()
        own = [_standard(table[at]) for table, at in ((plain, rows), (turned, rows), (known, seen))]
        fold = torch.empty(len(rows), dtype=torch.long)
        for side in (sign > 0, sign < 0):  # as many of both in each fold, in whichever order they come
            fold[side] = torch.arange(int(side.sum())) % FOLDS
        right = [0.0, 0.0]
        for held in range(FOLDS):
            inside, outside = fold != held, fold == held
            for at in (0, 1):
                said = _told(own[0][inside], sign[inside], own[at][outside])
                right[at] += float((said.sign() == sign[outside]).sum()) / len(rows)
        if right[0] < APART:
            continue
        said = _told(own[0], sign, own[2])
        first = labels[seen] == one
        found = float((said[first] > 0).double().mean()), float((said[~first] < 0).double().mean())
        yield Pair((one, other), right[0], right[1], found)


def _standard(table: torch.Tensor) -> torch.Tensor:
    """By the examples themselves: noise and gain that training adds to all of them move every feature, and not the
    differences between classes."""
    return (table - table.mean(0)) / table.std(0).clamp_min(1e-9)


def _told(known: torch.Tensor, sign: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """What a linear model says that was fitted on the first: above zero for the one class, below for the other."""
    gram = known @ known.T
    gram += RIDGE * gram.diagonal().mean() * torch.eye(len(known), dtype=known.dtype)
    weights: torch.Tensor = known.T @ torch.linalg.solve(gram, sign - sign.mean())
    return asked @ weights


def _readable(x: torch.Tensor) -> bool:
    if x.dim() == 2:
        return x.shape[1] >= LONG
    return 3 <= x.dim() <= 4 and (min(x.shape[-2:]) >= SIDE or (x.dim() == 3 and x.shape[-1] >= LONG))


def features(x: torch.Tensor) -> torch.Tensor:
    """Coarse pixels, and the sizes of the low frequencies along both axes: these keep a slope wherever it stands."""
    picture = _spectrum(x) if x.dim() == 2 or x.shape[-2] < SIDE else x if x.dim() == 3 else x.mean(1)
    if max(picture.shape[1:]) > LARGE:
        sides = min(picture.shape[1], LARGE), min(picture.shape[2], LARGE)
        picture = torch.nn.functional.adaptive_avg_pool2d(picture[:, None], sides)[:, 0]
    picture = picture.double()
    picture = picture - picture.mean((1, 2), keepdim=True)
    coarse = torch.nn.functional.adaptive_avg_pool2d(picture[:, None], COARSE).flatten(1)
    waves = torch.fft.fft2(picture).abs()
    waves = torch.cat([waves[:, :WAVES], waves[:, 1 - WAVES :]], 1)[:, :, : WAVES + WAVES // 2]
    return torch.cat([coarse, waves.add(1e-6 * float(waves.mean()) + 1e-12).log().flatten(1)], 1)


def _spectrum(x: torch.Tensor) -> torch.Tensor:
    """A signal as a picture of frequencies over time."""
    wave = x if x.dim() == 2 else x.mean(1)
    width = 2 * (wave.shape[1] // FRAMES)
    frames = wave.unfold(1, width, width // 2)
    power: torch.Tensor = torch.fft.rfft(frames * torch.hann_window(width), dim=2).abs()[:, :, 1:]
    return (power + 1e-3 * power.mean() + 1e-12).log().transpose(1, 2)


def _count(labels: torch.Tensor, name: int) -> int:
    return int((labels == name).sum())
