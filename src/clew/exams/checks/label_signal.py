"""Can anything simple predict the labels from the inputs better than chance?

Fits a nearest-neighbour rule, a linear model and, where neither finds anything, trees on half of the examples as the
model gets them, and predicts the other half. The same predictions are compared with labels dealt out anew. Where there
are validation batches, the same is done within as many examples of these: what can be predicted there and hardly in
training was lost in training. Of pictures it is asked whether those that do not show their label do so when they are
mirrored back.

Why it matters: no relation at all means that labels and inputs have parted: shuffled separately, shifted, or the
inputs were emptied on the way. No model can fix that.
Cannot tell: a relation that only a deep model finds from no relation, such as the parity of many bits or the meaning of
a long text.
Silent when: any of the three predicts better than 99.5 % of the permutations, and validation is not far better.
Unclear with few examples, with few per class or per name where names are all that the inputs hold, where every batch is
a task of its own, and when positions of labels and inputs do not meet.
Sources: labels-match-inputs
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from clew.exams.batches import distinct
from clew.exams.checks._data_signal import Signal, examples_of, linear, measure, nearest, trees, within_batches
from clew.exams.checks._data_tables import Inputs, Labels, by_batch, inputs_of, labels_of, named_seldom, some_rows
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear, Value

MOST_ROWS = 512
FEWEST = 16
ENOUGH = 96
ENOUGH_POSITIONS = 256
PER_CLASS = 6
FOUND, HINT = 0.005, 0.05
CLEAR, LOST, DEVIATIONS = 0.6, 0.5, 6.0
"""A clear relation in validation, of which training keeps so little, and how far that is beyond chance."""


TURNS = {"upside down": (-2,), "left for right": (-1,), "by half a turn": (-2, -1)}
KEPT, BACK = 0.75, 0.8
"""Of the share that neighbours tell right within validation: what training pictures must stay below as they are, and
what those that do not show their label reach when turned back."""


@exam("label_signal", needs=("loss",), seconds=0.8)
def examine(lab: Lab) -> Answer:
    labels, inputs = labels_of(lab, lab.distinct), inputs_of(lab.distinct)
    if labels is None:
        return Unclear("the batches hold no label per example")
    if inputs.examples != len(labels.y):
        return Unclear("no input matches the labels example by example")
    if inputs.examples < FEWEST:
        return Unclear(f"{inputs.examples} examples are too few to compare with permuted labels")
    if bool((labels.y == labels.y[:1]).all()):
        return Unclear("all examples have the same label")
    answer = _judge(lab, *_some(lab, inputs, labels, MOST_ROWS))
    kept = _kept(lab, inputs, labels)
    if kept is None:
        return answer
    training, validation, count = kept
    way = _turned(inputs, labels, lab)
    if way is not None:
        return Saw("turned", as_they_are=way.right, turned_back=way.back, examples=count).saying(
            f"By their nearest neighbours in validation {way.right:.0%} of the training images match their "
            f"label; of the others {way.back:.0%} do once flipped back ({way.name})."
        )
    figures: dict[str, Value] = {"in_training": training, "in_validation": validation, "examples": count}
    return Saw("lost_in_training", **figures).saying(
        f"Within {count} validation examples a simple model predicts held-out labels with correlation "
        f"{validation:.2f}, within as many training examples with {training:.2f}."
    )


def _some(lab: Lab, inputs: Inputs, labels: Labels, most: int) -> tuple[Inputs, Labels]:
    index = some_rows(inputs.examples, most, lab.generator()).to(labels.y.device)
    inputs = inputs._replace(
        values=inputs.values[index] if inputs.values is not None else None,
        tokens=inputs.tokens[index] if inputs.tokens is not None else None,
    )
    return inputs, labels._replace(y=labels.y[index])


def _kept(lab: Lab, inputs: Inputs, labels: Labels) -> tuple[float, float, int] | None:
    """How far labels can be predicted in training and in validation, where the first is far below the second."""
    held_out = distinct(lab.val_batches)
    if not held_out:
        return None
    theirs, others = labels_of(lab, held_out), inputs_of(held_out)
    if theirs is None or others.examples != len(theirs.y) or theirs.kind != labels.kind or labels.dense:
        return None
    count = min(inputs.examples, others.examples, MOST_ROWS)
    if count < ENOUGH or bool((theirs.y == theirs.y[:1]).all()):
        return None
    found = []
    for given, wanted in ((inputs, labels), (others, theirs)):
        examples = examples_of(*_some(lab, given, wanted, count), lab.generator(1))
        if examples is None:
            return None
        found.append(max(measure(examples, fit, lab.generator(2), 1).agreement for fit in (linear, nearest)))
    training, validation = found
    apart = math.atanh(min(validation, 0.999)) - math.atanh(min(max(training, 0.0), 0.999))
    error = math.sqrt(2 / max(1, count // 2 - 3))
    lost = validation >= CLEAR and training <= LOST * validation and apart >= DEVIATIONS * error
    return (round(training, 4), round(validation, 4), count) if lost else None


class Way(NamedTuple):
    """A turn that explains what was lost: the pictures that show their label as they are, and of the rest those that
    show it when they are turned back."""

    name: str
    right: float
    back: float


def _turned(inputs: Inputs, labels: Labels, lab: Lab) -> Way | None:
    """Whether part of the training pictures were turned into those of other classes."""
    held_out = distinct(lab.val_batches)
    theirs, others = labels_of(lab, held_out), inputs_of(held_out)
    if labels.kind != "classes" or theirs is None or inputs.values is None or others.values is None:
        return None
    if len(inputs.spans) != 1 or inputs.spans != others.spans or len(inputs.spans[0][1]) != 3:
        return None
    shape = inputs.spans[0][1]
    known, wanted = others.values[:MOST_ROWS], theirs.y[:MOST_ROWS, 0]
    pictures, y = inputs.values[:MOST_ROWS].reshape(-1, *shape), labels.y[:MOST_ROWS, 0]
    among = torch.cdist(known, known).fill_diagonal_(math.inf)
    sound = float((wanted[among.argmin(1)] == wanted).float().mean())
    right = wanted[torch.cdist(pictures.flatten(1), known).argmin(1)] == y
    found = []
    for name, axes in TURNS.items():
        back = wanted[torch.cdist(pictures.flip(axes).flatten(1), known).argmin(1)] == y
        if not bool(right.all()):
            found.append(Way(name, float(right.float().mean()), float(back[~right].float().mean())))
    best = max(found, key=lambda way: way.back, default=None)
    clear = best is not None and best.right < KEPT * sound and best.back > BACK * sound
    constant = float(torch.bincount(wanted.clamp(min=0)).max()) / len(wanted)
    return best if clear and sound > (1 + constant) / 2 else None


def _judge(lab: Lab, inputs: Inputs, labels: Labels) -> Answer:
    examples = examples_of(inputs, labels, lab.generator(1))
    if examples is None:
        return Unclear("every position has a label, and positions of labels and inputs do not match")
    found: dict[str, Signal] = {}
    for name, fit in (("linear", linear), ("neighbours", nearest), ("trees", trees)):
        lab.check(len(found) / 3)
        found[name] = measure(examples, fit, lab.generator(2))
        if found[name].p <= FOUND:
            break
    best, signal = min(found.items(), key=lambda item: (item[1].p, -item[1].z))
    count = len(examples.x)
    figures: dict[str, Value] = {
        "p": signal.p,
        "z": round(signal.z, 3),
        "correlation": round(signal.agreement, 4),
        "examples": count,
        "best": best,
    }
    if signal.p <= FOUND:
        return Saw("some", **figures).saying(
            f"A {_called(best)} predicts held-out labels better than {100 * (1 - signal.p):.1f} % of the permutations "
            f"({signal.z:.1f} deviations, {count} examples)."
        )
    reason = named_seldom(inputs) or _too_little(labels, count, examples.y.shape[1])
    if reason:
        return Unclear(reason)
    if signal.p <= HINT:
        return Unclear(f"a {_called(best)} nearly predicts the labels (p = {signal.p:.3f}), which may be chance")
    if _within(lab):
        return Unclear(OWN_TASK)
    return Saw("none", **figures).saying(
        f"Neither a linear model nor neighbours nor trees predict held-out labels of {count} examples better than "
        f"permuted ones (best p = {signal.p:.2f})."
    )


OWN_TASK = "labels match inputs differently in each batch: every batch is a task of its own"


def _within(lab: Lab) -> bool:
    parts = by_batch(lab, lab.distinct)
    return len(parts) > 1 and within_batches(parts, lab.generator(3)) <= FOUND


def tasks(lab: Lab) -> bool:
    """Whether a relation holds within every batch that none of them shares with the others, as in learning to learn."""
    if not _within(lab):
        return False
    labels, inputs = labels_of(lab, lab.distinct), inputs_of(lab.distinct)
    if labels is None or inputs.examples != len(labels.y):
        return False
    examples = examples_of(*_some(lab, inputs, labels, MOST_ROWS), lab.generator(1))
    if examples is None:
        return False
    return all(measure(examples, fit, lab.generator(2)).p > HINT for fit in (linear, nearest))


def _called(name: str) -> str:
    return {"linear": "linear model", "neighbours": "nearest-neighbour rule", "trees": "random forest"}[name]


def _too_little(labels: Labels, count: int, positions: int) -> str:
    """Why finding nothing would say nothing."""
    if count < ENOUGH and (not labels.dense or count * positions < ENOUGH_POSITIONS or count < FEWEST):
        return f"no simple model predicts the labels, and {count} examples are too few to rule out a relation"
    classes = len(torch.unique(labels.y))
    if labels.kind == "classes" and int((labels.y >= 0).sum()) < PER_CLASS * classes:
        return f"no simple model predicts the labels, and {count} examples are too few for {classes} classes"
    return ""
