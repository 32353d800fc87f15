"""Does a stronger penalty raise the training loss, as it must?

Memorises one batch twice from the same weights with the user's optimiser, once with weight decay a hundred times
as strong, or strong enough to shrink weights to a seventh in these steps, and compares the losses at the end. Dropout
is off in both.

Why it matters: a penalty without effect does not act on the model, and one that lowers the loss shows that weights
diverge.
Cannot tell: a decay that is wired wrongly from a model that does not train at all (see update_ratio); penalties that
are terms of the loss.
Silent when: the loss is higher with the penalty. Unclear where the optimiser has no weight decay, training without the
penalty ends in NaN, or little was fitted and small weights help.
"""

from __future__ import annotations

import math

import torch

from clew.exams.checks._training_quiet import quiet, quiet_loss
from clew.exams.checks._training_runs import own_optimizer, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

STEPS = 100
STRONGER = 100.0
SHRINKS = 2.0
MOST_PER_STEP = 0.3
HIGHER = 1e-4
FITTED, RUNS_AWAY = 0.5, 1.05


@exam("regularisation_raises_loss", needs=("loss", "optimizer"), seconds=2.0, steps=2 * STEPS)
def examine(lab: Lab) -> Answer:
    start = quiet_loss(lab, lab.fresh(), lab.batch)
    plain, _ = _final(lab, strong=False)
    strong, decay = _final(lab, strong=True)
    if decay is None:
        return Unclear("the user's optimiser could not be rebuilt, or has no weight decay to increase")
    if not decay:
        return Unclear("the rate is zero, so weight decay has no effect either")
    if not math.isfinite(plain):
        return Unclear(f"the loss is {plain} at the end of a training without the penalty")
    figures = {"initial": start, "without": plain, "with_penalty": strong, "decay": decay}
    said = f"After {STEPS} steps on one batch the loss is {plain:.3g}, with a weight decay of {decay:.3g} {strong:.3g}."
    rounding = HIGHER * max(abs(start), abs(plain))
    if not math.isfinite(strong) or strong - plain > rounding:
        return Saw("yes", **figures).saying(said)
    if strong < plain - rounding and FITTED * start < plain < RUNS_AWAY * start:
        return Unclear(
            f"the loss goes from {start:.3g} to {plain:.3g}, and to {strong:.3g} with the penalty: small "
            "weights may help where so little was learned"
        )
    return Saw("no", **figures).at(lab.place()).saying(said)


def _final(lab: Lab, strong: bool) -> tuple[float, float | None]:
    """The loss at the end, and the decay in use; None where there is no such setting."""
    model = lab.fresh()
    optimizer = own_optimizer(lab, model)
    if optimizer is None or not any("weight_decay" in group for group in optimizer.param_groups):
        return math.nan, None
    decay = _strengthen(optimizer) if strong else 0.0
    with lab.seeded(), quiet(model):
        losses = train(lab, model, [lab.batch], STEPS, optimizer)
    if not math.isfinite(losses[-1]):
        return losses[-1], decay
    return quiet_loss(lab, model, lab.batch), decay


def _strengthen(optimizer: torch.optim.Optimizer) -> float:
    """Make the decay strong in the groups that have one, in all where none has. What shrinks weights by more than a
    third in a step would break them and not hold them back."""
    groups = [group for group in optimizer.param_groups if float(group.get("weight_decay", 0.0)) > 0]
    used = 0.0
    for group in groups or [group for group in optimizer.param_groups if "weight_decay" in group]:
        rate = float(group["lr"])
        if rate <= 0:
            continue
        decay = max(STRONGER * float(group["weight_decay"]), SHRINKS / (rate * STEPS))
        group["weight_decay"] = min(decay, MOST_PER_STEP / rate)
        used = max(used, group["weight_decay"])
    return used
