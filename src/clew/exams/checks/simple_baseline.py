"""Does the trained model beat a linear model and nearest neighbours on the validation examples?

Fits both on the available training batches, predicts the validation batches, and sets the better one against the model
as it is late in its training, in eval mode. Errors are shares of the mistakes of the most frequent class, or of the
variance of the targets.

Why it matters: simple models see a few batches and are fitted at once. A network that stays far behind them has not
learned what is there, whatever its own curve looks like.
Cannot tell: why; a network that is at the beginning of its training from one that will never get there.
Silent when: the model is as good, or the simple ones are no good either, as for pictures and texts. Unclear without
validation batches, for labels of positions, for several labels at once, and for a model that rebuilds its input.
"""

from __future__ import annotations

import torch

from clew.exams.batches import distinct, rows
from clew.exams.checks._data_signal import Examples, Fit, examples_of, linear, nearest
from clew.exams.checks._data_tables import Labels, inputs_of, labels_of
from clew.exams.checks.capacity_doubling import rebuilds_input
from clew.exams.checks.learning_curve import against_constant
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear, Value

FEWEST, FEWEST_HELD_OUT = 64, 64
MOST = 2048
GOOD = 0.5
"""The error of a simple model that is worth being set against."""
FAR = {"classes": (2.0, 0.15), "values": (3.0, 0.05)}
"""The model is far behind beyond so many times the simple error and so much more."""
LEARNED = 0.85
"""Below this the model has found something in the inputs that holds for other examples."""
NO_USE = {"classes": 1.2, "values": 1.5}


@exam("simple_baseline", needs=("loss", "validation"), seconds=0.8)
def examine(lab: Lab) -> Answer:
    training, held_out = distinct(lab.batches), distinct(lab.val_batches)
    known, others = sum(map(rows, training)), sum(map(rows, held_out))
    if known < FEWEST or others < FEWEST_HELD_OUT:
        return Unclear("comparing with simple models needs 64 training and 64 validation examples")
    both = [*training, *held_out]
    labels, inputs = labels_of(lab, both), inputs_of(both)
    wanted = labels_of(lab, held_out)
    if labels is None or wanted is None or labels.dense or wanted.kind != labels.kind:
        return Unclear("the batches hold no label for each example")
    if inputs.examples != len(labels.y) or len(labels.y) != known + others or bool((labels.y == labels.y[:1]).all()):
        return Unclear("no input matches the labels example by example")
    if rebuilds_input(lab.batch):
        return Unclear("the model is an autoencoder, whose task any linear model solves")
    if labels.kind == "values" and bool(((labels.y == 0) | (labels.y == 1)).all()):
        return Unclear("the examples are multi-label")
    examples = examples_of(inputs, labels, lab.generator(1))
    error = against_constant(lab, lab.late(training=False), held_out, wanted)
    if examples is None or error is None:
        return Unclear("the output gives no score for each class and no value for each target")
    return _judge(lab, examples, labels, known, error)


def _judge(lab: Lab, examples: Examples, labels: Labels, known: int, error: float) -> Answer:
    order = torch.randperm(known, generator=lab.generator())[:MOST].to(examples.x.device)
    found: dict[str, float] = {}
    for name, fit in (("linear model", linear), ("nearest-neighbour rule", nearest)):
        lab.check(len(found) / 2)
        found[name] = simple_error(examples, fit, order, known, labels.kind)
    best = min(found, key=lambda name: found[name])
    factor, more = FAR[labels.kind]
    figures: dict[str, Value] = {"model_error": round(error, 4), "simple_error": round(found[best], 4), "simple": best}
    said = (
        f"Relative to a constant prediction, the trained model has error {error:.2f} on validation examples, and a "
        f"{best} fitted on {len(order)} training examples {found[best]:.2f}."
    )
    if error >= NO_USE[labels.kind] and found[best] < 1:
        return Saw("worse_than_constant", **figures).saying(said)
    if found[best] <= GOOD and error >= factor * found[best] + more:
        return Saw("simple_better", **figures).saying(said)
    return Saw("model_better" if error < LEARNED else "neither", **figures).saying(said)


def simple_error(examples: Examples, fit: Fit, order: torch.Tensor, known: int, kind: str) -> float:
    """What a simple model that was fitted on these rows gets wrong of those after the first `known`."""
    x, y = examples.x[:, 0], examples.y[:, 0]
    said, truth = fit(x[order], y[order], x[known:][:MOST]), y[known:][:MOST]
    if kind == "values":
        whole = float((truth - truth.mean(0)).square().sum())
        return float((said - truth).square().sum()) / whole if whole > 0 else float("inf")
    right = truth.argmax(1)
    constant = 1 - float(right.bincount().max()) / len(right)
    return float((said.argmax(1) != right).double().mean()) / constant if constant > 0 else float("inf")
