"""Does mirroring turn one class into another that the model cannot tell from it?

Looks for two classes that the trained model confuses at nearly the rate of a coin on validation examples, or on those
of training where none were kept: there flips that are part of the step are still to come. A simple model is fitted to
some of these examples as they are, and asked about the others, as they are and mirrored along each axis. Where it tells
the two apart, and takes the mirrored ones for the other class, flips swap the classes.

Why it matters: a flip or a reversal in training gives left turns the look of right turns and keeps their label. The
model can then only guess between the two, and nothing else in the run looks wrong.
Cannot tell: whether the program flips; a model that confuses two mirrored classes for a reason of its own.
Silent when: no two classes are confused, a simple model does not tell them apart either, or mirroring does not swap
them. Unclear without one label for each example, for tokens, and with fewer than twenty of a class.
"""

from __future__ import annotations

from itertools import combinations, product

import torch

from clew.exams.batches import distinct
from clew.exams.checks._data_signal import linear, nearest
from clew.exams.checks._data_tables import Labels, inputs_of, labels_of
from clew.exams.checks.confident_errors import probabilities
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

FEWEST = 20
COIN = 0.65
"""The share of the answers within a pair that are right, at most, for the pair to count as confused."""
WITHIN = 0.7
"""The share of the examples of a pair that the model gives to either of its classes."""
LEARNED = 0.15
"""By so much the other classes are told better than the pair."""
TOLD, SWAPPED = 0.8, 0.25
FOLDS = 4
SHORTEST = 8
LONG, WINDOW = 256, 64
"""Of an axis that is taken for a signal, whose spectra make a picture."""
DIRECTIONS = 12
MOST = 400


@exam("mirrored_classes", needs=("loss",), seconds=1.0)
def examine(lab: Lab) -> Answer:
    batches = distinct(lab.val_pairs or lab.batches)
    labels = labels_of(lab, batches)
    if labels is None or labels.kind != "classes" or labels.dense:
        return Unclear("the batches hold no class label for each example")
    inputs = inputs_of(batches)
    if inputs.values is None or not any(size >= SHORTEST for size in inputs.shape):
        return Unclear("the inputs have no axis to mirror")
    chances = probabilities(lab, batches, labels.classes)
    if chances is None or len(chances) != inputs.examples:
        return Unclear("the output gives no score for each class")
    named, truth = chances.argmax(1), labels.y[:, 0].cpu()
    pair = _confused(named, truth, labels)
    if pair is None:
        return Saw("told_apart").saying("No two classes are confused at the rate of a coin.")
    chosen = torch.cat([(truth == label).nonzero().flatten()[:MOST] for label in pair])
    examples = inputs.values.cpu()[chosen].reshape(len(chosen), *inputs.shape)
    first = (truth[chosen] == pair[0]).double()
    plain, axis, mirrored = _mirrored(lab, examples, first)
    right = float((named[chosen] == truth[chosen]).double().mean())
    figures = {"label": pair[0], "other": pair[1], "model": right, "simple": plain, "mirrored": mirrored}
    if plain < TOLD:
        return Unclear(f"a simple model does not tell {pair[0]} and {pair[1]} apart either")
    if mirrored > SWAPPED:
        return Saw("told_apart", **figures).saying(f"Mirrored, {pair[0]} and {pair[1]} do not become each other.")
    return Saw("swapped", **figures, axis=axis).saying(
        f"Mirrored along axis {axis}, {pair[0]} looks like {pair[1]}: a simple model tells {100 * plain:.0f} % of them "
        f"right as they are and {100 * mirrored:.0f} % mirrored, and the trained model {100 * right:.0f} % as they are."
    )


def _confused(named: torch.Tensor, truth: torch.Tensor, labels: Labels) -> tuple[int, int] | None:
    """The two classes of which the model gives each for the other most often, where it does so all but at random."""
    counts = torch.bincount(truth.clamp_min(0), minlength=labels.classes)
    known = [label for label in range(labels.classes) if counts[label] >= FEWEST]
    found = []
    for pair in combinations(known[:64], 2):
        mine = (truth == pair[0]) | (truth == pair[1])
        within = mine & ((named == pair[0]) | (named == pair[1]))
        if int(within.sum()) < WITHIN * int(mine.sum()):
            continue
        right = float((named[within] == truth[within]).double().mean())
        rest = (named[~mine] == truth[~mine]).double()
        if right <= COIN and (not len(rest) or float(rest.mean()) >= right + LEARNED):
            found.append((right, pair))
    return min(found)[1] if found else None


def _mirrored(lab: Lab, examples: torch.Tensor, first: torch.Tensor) -> tuple[float, int, float]:
    """How often a simple model is right about examples that it was not fitted on, and about the same mirrored along the
    axis that costs it most; of the best one of such models."""
    order = torch.randperm(len(examples), generator=lab.generator(3))
    pictures = examples.dim() > 2 or examples.shape[-1] >= LONG
    axes = [axis for axis, size in enumerate(examples.shape) if axis and size >= SHORTEST]
    best = (0.0, 0, 1.0)
    for fit, features in product((linear, nearest), (_values, _edges) if pictures else (_values,)):
        right = dict.fromkeys([0, *axes], 0)
        for fold in range(FOLDS):
            held = order[fold::FOLDS]
            known = order[~torch.isin(order, held)]
            x, centre, spread = _standard(features(examples[known]))
            y = torch.stack([first[known], 1 - first[known]], 1).float()
            for axis in right:
                shown = examples[held].flip(axis) if axis else examples[held]
                said = fit(x, y, (features(shown) - centre) / spread)
                right[axis] += int(((said[:, 0] > said[:, 1]).double() == first[held]).sum())
        worst = min(axes, key=lambda axis: right[axis])
        share = right[0] / len(examples)
        if share > best[0]:
            best = (share, worst, right[worst] / len(examples))
        lab.check(0.5)
    return best


def _values(examples: torch.Tensor) -> torch.Tensor:
    return examples.flatten(1).float()


def _edges(examples: torch.Tensor) -> torch.Tensor:
    """How much of each direction the edges have, wherever they stand: of pictures, or of the spectra of a signal."""
    maps = examples.flatten(0, -2).float() if examples.shape[-1] >= LONG else examples.flatten(0, -3).float()
    if examples.shape[-1] >= LONG:
        hop = max(WINDOW // 4, maps.shape[-1] // 64)
        maps = torch.stft(maps, WINDOW, hop, window=torch.hann_window(WINDOW), return_complex=True).abs()
        maps = torch.log1p(maps / maps.mean().clamp_min(1e-12))
    across, down = maps[:, 1:, 1:] - maps[:, 1:, :-1], maps[:, 1:, 1:] - maps[:, :-1, 1:]
    bins = ((torch.atan2(down, across) / torch.pi + 1) * (DIRECTIONS / 2)).long().clamp(0, DIRECTIONS - 1)
    size = (across.square() + down.square()).sqrt()
    found = torch.zeros(len(maps), DIRECTIONS).scatter_add_(1, bins.flatten(1), size.flatten(1))
    return found.reshape(len(examples), -1)


def _standard(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    centre, spread = x.mean(0), x.std(0).clamp_min(1e-3 * float(x.std()) + 1e-12)
    return (x - centre) / spread, centre, spread
