"""How far apart are the losses of the same batches in training mode and in eval mode?

First lets the running statistics settle on these batches, as they lag in the first hundred steps of any training: the
weights stay as they are. Losses below a twentieth of the first one count as that, since there any ratio is large.

Why it matters: a gap on the same data comes from dropout and normalisation, and validation then measures another model.
Cannot tell: weights that were fitted to statistics that never moved (see mode_in_training).
Silent when: running statistics only lag, or dropout makes training mode the worse one, as it should.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from clew.exams.batches import Batch, is_values
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

PASSES = 60
BATCHES = 4
DRAWS = 3
FLOOR = 0.05
GAP = 1.5


@exam("train_eval_same_batch", needs=("loss",), seconds=2.0, steps=PASSES // 2)
def examine(lab: Lab) -> Answer:
    model = lab.late()
    batches = lab.batches[:BATCHES]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = _losses(lab, model, batches)
    if _moved(model, state):
        with lab.seeded():
            for number in range(PASSES):
                lab.check(number / PASSES)
                model.train()
                lab.output(model, lab.batches[number % len(lab.batches)])
    training, evaluation, varies = _losses(lab, model, batches)
    figures = {"training": training, "eval": evaluation, "eval_at_first": before[1]}
    if not math.isfinite(training) and not math.isfinite(evaluation):
        return Unclear("the loss is not finite in either mode")
    if not math.isfinite(training) or not math.isfinite(evaluation):
        return Reading(larger_over_smaller_loss=math.nan, **figures)
    if min(training, evaluation) <= 0:
        return Unclear(f"the losses are {training:.3g} and {evaluation:.3g}: below zero their ratio is not informative")
    ratio = apart(training, evaluation, FLOOR * before[0])
    if ratio > GAP and varies and training > evaluation:
        quiet = without_dropout(model)
        if not quiet:
            return Unclear(
                f"training mode has {ratio:.2g} times the loss of eval mode and draws random numbers: dropout does this"
            )
        training, evaluation, _ = _losses(lab, model, batches, keep=quiet)
        ratio = apart(training, evaluation, FLOOR * before[0])
        figures["training_without_dropout"] = training
    return Reading(larger_over_smaller_loss=ratio, **figures)


def apart(first: float, second: float, floor: float) -> float:
    low, high = sorted((max(first, floor), max(second, floor)))
    return high / low if low > 0 else 1.0


def _moved(model: nn.Module, state: dict[str, torch.Tensor]) -> bool:
    """Whether passes in training mode have moved anything, running statistics above all."""
    return any(is_values(value) and not torch.equal(value, state[name]) for name, value in model.state_dict().items())


def _losses(
    lab: Lab, model: nn.Module, batches: list[Batch], keep: list[nn.Module] | None = None
) -> tuple[float, float, bool]:
    """The mean loss in training and in eval mode, and whether training mode draws random numbers.

    The statistics are put back after each pass in training mode, so that all see the same."""
    held = {name: value.clone() for name, value in model.state_dict().items()}
    rates: list[list[float]] = []
    still: list[float] = []
    for batch in batches:
        values = []
        for draw in range(DRAWS):
            model.train()
            for part in keep or []:
                part.eval()
            with lab.seeded(draw):
                values.append(float(lab.loss(model, batch).detach()))
        rates.append(values)
        lab.check()
    moved = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(held)
    model.eval()
    for batch in batches:
        with lab.seeded():
            still.append(float(lab.loss(model, batch).detach()))
    model.load_state_dict(moved)
    varies = any(max(values) - min(values) > 1e-5 * abs(max(values, key=abs)) for values in rates)
    return sum(map(sum, rates)) / (DRAWS * len(rates)), sum(still) / len(still), varies


def without_dropout(model: nn.Module) -> list[nn.Module]:
    """The parts that drop values at random; none in a model without parts."""
    return [part for part in model.modules() if "drop" in type(part).__name__.lower()]
