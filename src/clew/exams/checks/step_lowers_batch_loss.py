"""Does one small step along the user's own update lower the loss on the same batch?

Takes one step of the optimiser on a copy, goes a tenth of that way from the old weights, and computes the loss of the
same batch with the same random numbers. In double precision where the model bears it.

Why it matters: an update that does not lower the loss it is made from goes nowhere or uphill, and nothing else matters.
Cannot tell: a step that is too long, since a tenth is taken; whether the loss is the one that should be lowered.
Silent when: the loss is at its end already, which is unclear.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from clew.exams.batches import Batch, mapped
from clew.exams.checks._training_runs import own_optimizer, vector
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

PART = 0.1
AT_THE_END = 1e-7


@exam("step_lowers_batch_loss", needs=("loss",), seconds=0.3, steps=3)
def examine(lab: Lab) -> Answer:
    model, batch, exact = _exact(lab)
    named = [(name, held) for name, held in model.named_parameters() if held.requires_grad]
    if not named:
        return Unclear("no parameter of the model takes a gradient")
    with lab.seeded():
        loss = lab.loss(model, batch)
        slope = float(vector(loss, [held for _, held in named]).norm())
    before = float(loss.detach())
    if not math.isfinite(before):
        return Unclear(f"the loss is {before}")
    if abs(before) < AT_THE_END or (not slope and abs(before) < 1e-3):
        return Unclear(f"the loss is {before:.2g}: there is nothing left to lower on this batch")
    optimizer = own_optimizer(lab, model) or lab.optimizer(model)
    old = [held.detach().clone() for _, held in named]
    with lab.seeded():
        lab.one_step(model, batch, optimizer)
    with torch.no_grad():
        length = math.sqrt(
            sum(float((held - was).double().square().sum()) for (_, held), was in zip(named, old, strict=True))
        )
        for (_, held), was in zip(named, old, strict=True):
            held.copy_(was + PART * (held - was))
    with lab.seeded():
        after = float(lab.loss(model, batch).detach())
    found = Reading(
        relative_change=(after - before) / abs(before),
        before=before,
        after=after,
        update_norm=length,
        gradient_norm=slope,
        double_precision=exact,
    )
    place = lab.place()
    return found.at(place) if place is not None and after >= before else found


def _exact(lab: Lab) -> tuple[nn.Module, Batch, bool]:
    """Model and batch in double precision, or as they are where that is not possible or not the same."""
    batch = lab.batch
    with lab.seeded():
        plain = float(lab.loss(lab.fresh(), batch).detach())
    try:
        model = lab.fresh().double()
        wide = Batch(mapped(batch.inputs, _wide), mapped(batch.target, _wide))
        with lab.seeded():
            value = float(lab.loss(model, wide).detach())
        if abs(value - plain) <= 1e-2 * abs(plain):
            return lab.fresh().double(), wide, True
    except (RuntimeError, TypeError, ValueError):
        pass
    return lab.fresh(), batch, False


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
