"""How do training and validation error change with more data?

Trains copies from the same weights, for the same number of steps, on a quarter, a half and all of the available
examples, and measures both errors in eval mode: as shares of the mistakes of the most frequent class, of the variance
of the targets, or of the loss before training.

Why it matters: high errors on both sets call for another model or for a search for the bug; a gap calls for more data;
a gap that more data does not close means that the two sets differ.
Cannot tell: a weak model from a bug that weakens it; what far more data than the available batches would do.
Silent when: both errors are low. Unclear without validation batches, and for fewer than 64 training examples.
Sources: learning-curves-bias-variance
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, rows
from clew.exams.checks._data_runs import RATES, pool_of, starting, train, trained_parameters
from clew.exams.checks._data_tables import Labels, by_example, labels_of, prediction
from clew.exams.checks._training_runs import MOST_FROZEN, frozen_share
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

STEPS = 150
TRIAL = 40
SHARES = (0.25, 0.5, 1.0)
FEWEST, FEWEST_HELD_OUT = 64, 16
MOST_MEASURED = 16
HIGH = 0.5
GAP = 0.25
FALLS = 0.9
WORSE = 1.25
"""Training that ends this far above an answer without inputs aimed at another error, as a loss that weighs classes."""


class Errors(NamedTuple):
    training: float
    validation: float


@exam("learning_curve", needs=("loss", "validation"), seconds=8.0, steps=len(SHARES) * STEPS + len(RATES) * TRIAL)
def examine(lab: Lab) -> Answer:
    pool = pool_of(lab.batches)
    held_out = sum(rows(batch) for batch in lab.val_pairs)
    if pool is None or pool.examples < FEWEST or held_out < FEWEST_HELD_OUT:
        return Unclear("a curve over the amount of data needs 64 training and 16 validation examples of equal shape")
    model = starting(lab, pool)
    if not trained_parameters(model):
        return Unclear("no parameter of the model takes a gradient")
    if frozen_share(model) > MOST_FROZEN:
        return Unclear("much of the model is frozen in the captured step")
    state = {name: value.clone() for name, value in model.state_dict().items()}
    order = torch.randperm(pool.examples, generator=lab.generator())
    untrained = _measure(lab, model, lab.val_pairs, 1.0)

    def run(index: torch.Tensor, steps: int, rate: float) -> list[float]:
        model.load_state_dict(state)
        model.train()
        with lab.seeded():
            return train(lab, model, pool.feed(index), steps, rate)

    ends = {rate: run(order, TRIAL, rate)[-1] for rate in RATES}
    rate = min(ends, key=lambda rate: ends[rate] if math.isfinite(ends[rate]) else math.inf)
    curve = []
    for share in SHARES:
        index = order[: max(pool.size if share < 1 else 1, int(share * pool.examples))]
        losses = run(index, STEPS, rate)
        if not math.isfinite(losses[-1]):
            return Unclear("the loss is not finite after some steps, so there is no error to compare")
        seen = [pool.feed(index)(turn) for turn in range(min(MOST_MEASURED, -(-len(index) // pool.size)))]
        model.eval()
        curve.append(
            Errors(
                _measure(lab, model, seen, untrained), _measure(lab, model, lab.val_pairs[:MOST_MEASURED], untrained)
            )
        )
    if not all(math.isfinite(value) for errors in curve for value in errors):
        return Unclear("the error has no reference scale")
    return _judge(curve, pool.examples)


def _judge(curve: Sequence[Errors], examples: int) -> Answer:
    last = curve[-1]
    figures = {
        "training_error": round(last.training, 4),
        "validation_error": round(last.validation, 4),
        "validation_error_quarter": round(curve[0].validation, 4),
        "examples": examples,
    }
    said = (
        f"With {examples} examples the training error is {last.training:.2f} and the validation error "
        f"{last.validation:.2f} of the error of a prediction without inputs; with a quarter of the data it "
        f"was {curve[0].validation:.2f}."
    )
    if last.training > HIGH and last.validation <= HIGH:
        return Unclear(
            "the validation error is low and the training error is not, so they measure different quantities"
        )
    if last.training > WORSE:
        return Unclear(
            f"the training error is {last.training:.2f} times that of a prediction without inputs, so the loss aims at "
            "another quantity"
        )
    if last.training > HIGH:
        return Saw("both_high", **figures).saying(said)
    if last.validation <= HIGH or last.validation - last.training < GAP:
        return Saw("both_low", **figures).saying(said)
    falls = last.validation < FALLS * curve[0].validation
    return Saw("gap_closes" if falls else "gap_stays", **figures).saying(said)


def _measure(lab: Lab, model: nn.Module, batches: Sequence[Batch], untrained: float) -> float:
    """The error in eval mode, 1 for an answer that ignores the input."""
    labels = labels_of(lab, batches)
    if labels is not None:
        error = against_constant(lab, model, batches, labels)
        if error is not None:
            return error
    model.eval()
    with lab.seeded():
        losses = [lab.loss_value(model, batch) for batch in batches]
    mean = sum(losses) / len(losses)
    return mean / untrained if untrained > 0 and mean >= 0 else math.nan


def against_constant(lab: Lab, model: nn.Module, batches: Sequence[Batch], labels: Labels) -> float | None:
    """Mistakes over those of the most frequent class; squared errors over the variance. None when the output has
    neither classes nor the shape of the target."""
    model.eval()
    found = []
    for batch in batches:
        with torch.no_grad(), lab.seeded():
            outputs = prediction(lab.output(model, batch), rows(batch))
        if not outputs:
            return None
        found.append(by_example(outputs[0]))
    if len({held.shape[1] for held in found}) > 1:
        return None
    output = torch.cat(found)
    if labels.kind == "classes" and not labels.dense:
        truth = labels.y[:, 0]
        if output.shape[1] >= max(2, labels.classes):
            said = output.argmax(1)
        elif output.shape[1] == 1 and labels.classes == 2:
            middle = 0.5 if bool(((output >= 0) & (output <= 1)).all()) else 0.0
            said = (output[:, 0] > middle).long()
        else:
            return None
        constant = 1 - float(truth.clamp_min(0).bincount().max()) / len(truth)
        return float((said != truth).double().mean()) / constant if constant > 0 else None
    if labels.kind == "values" and output.shape == labels.y.shape:
        truth = labels.y.double()
        whole = float((truth - truth.mean(0)).square().sum())
        return float((output.double() - truth).square().sum()) / whole if whole > 0 else None
    return None
