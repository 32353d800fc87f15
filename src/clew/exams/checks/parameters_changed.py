"""Which parameters change in some steps of the subject's own optimiser?

Trains a copy for a dozen steps over its batches, and lists the trainable parameters that are bit-identical afterwards.

Why it matters: a layer that the optimiser does not hold, or that no gradient reaches, looks like any other from
outside.
Cannot tell: why a parameter does not change: not in the optimiser, cut off, an exactly zero gradient, an update lost to
rounding. A parameter that weight decay alone moves counts as training.
Silent when: a parameter is frozen by requires_grad, or moves late because the next layer starts at zero.
"""

from __future__ import annotations

import math

from clew.exams.checks.loss_reaches_parameters import listed, places, unchanged
from clew.exams.exam import exam
from clew.exams.lab import FALLBACK_RATE, Lab
from clew.records.clue import Answer, Saw, Unclear

STEPS = 12


@exam("parameters_changed", needs=("loss",), seconds=1.0, steps=STEPS)
def examine(lab: Lab) -> Answer:
    model = lab.fresh()
    before = {name: held.detach().clone() for name, held in model.named_parameters() if held.requires_grad}
    if not before:
        return Unclear("no parameter of the model takes a gradient")
    optimizer = lab.optimizer(model)
    # A warm-up begins with a rate of zero, and that is no fault.
    if all(float(group["lr"]) == 0 for group in optimizer.param_groups if "lr" in group):
        optimizer = lab.optimizer(model, FALLBACK_RATE)
    with lab.seeded():
        losses = lab.fit(model, lab.batches, STEPS, optimizer=optimizer)
    if not all(math.isfinite(loss) for loss in losses):
        return Unclear(f"the loss is not finite after {len(losses) - 1} steps")
    still = unchanged(before, model)
    figures = {"unchanged": len(still), "trainable": len(before), "steps": len(losses) - 1}
    if len(still) == len(before):
        if losses[0] == 0:
            return Unclear("the loss is zero: there is nothing left to learn")
        says = f"No parameter changed in {STEPS} steps."
        return Saw("none", **figures).at(lab.place()).saying(says)
    if still:
        says = f"{len(still)} of {len(before)} trainable parameters have not changed in {STEPS} steps: {listed(still)}."
        return Saw("some_never", **figures).at(*places(lab, still)).saying(says)
    return Saw("all", **figures)
