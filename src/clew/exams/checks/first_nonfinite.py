"""Where does the first NaN or infinity come from?

Trains a copy for a few steps. When loss or gradients stop being finite, makes that step once more and watches every
operation: the place is the first one with finite inputs and a non-finite result that the bad loss depends on. When
only gradients are bad, the first operation of the backward pass that makes one is.

Why it matters: one bad value spreads through every later operation, and one step later to every weight.
Cannot tell: what drove the values there, and what happens after these few steps.
Silent when: infinities are masked out on purpose and loss and gradients stay finite.
"""

from __future__ import annotations

import math

import torch

from clew.exams.batches import Batch, is_values, tensors
from clew.exams.checks._network_finite import Found, backward_origin, forward_origin
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear

STEPS = 30
BLOWN_UP = 1e6


@exam("first_nonfinite", needs=("loss",), seconds=3.0, steps=STEPS)
def examine(lab: Lab) -> Answer:
    model = lab.fresh()
    poisoned = [name for name, held in model.named_parameters() if not _finite(held)]
    if poisoned:
        return Unclear(f"{poisoned[0]} was not finite before the first step; its cause can no longer be observed")
    optimizer = lab.optimizer(model)
    losses: list[float] = []
    for step in range(max(STEPS, min(len(lab.batches), 2 * STEPS))):
        lab.check(step / STEPS)
        batch = lab.batches[step % len(lab.batches)]
        optimizer.zero_grad()
        with lab.seeded(step):
            loss = lab.loss(model, batch)
        value = float(loss.detach())
        if math.isfinite(value) and loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        bad_gradient = not all(_finite(held.grad) for held in model.parameters() if held.grad is not None)
        if not math.isfinite(value) or bad_gradient:
            return _investigate(lab, model, batch, step, losses, value)
        losses.append(value)
        if isinstance(optimizer, torch.optim.LBFGS):
            lab.one_step(model, batch, optimizer)
        else:
            optimizer.step()
        if not all(_finite(held) for held in model.parameters()):
            return _after_update(losses, step)
    late = lab.subject.trained()
    if late is not None and not all(_finite(held) for held in late.parameters()):
        return Unclear(
            f"the weights of the run are not finite at its end, and {len(losses)} steps from its start stay finite"
        )
    return Saw("none", steps=len(losses))


def _finite(tensor: torch.Tensor) -> bool:
    return not is_values(tensor) or bool(torch.isfinite(tensor).all())


def _diverged(losses: list[float]) -> bool:
    return bool(losses) and abs(losses[-1]) > BLOWN_UP * max(min(abs(value) for value in losses), 1e-3)


def _after_update(losses: list[float], step: int) -> Unclear:
    return Unclear(
        f"loss ({losses[-1]:.3g}) and gradients were finite at step {step}, the weights after the update were not"
    )


def _investigate(
    lab: Lab, model: torch.nn.Module, batch: Batch, step: int, losses: list[float], value: float
) -> Answer:
    if math.isfinite(value):
        found = backward_origin(lab, model, batch, step)
        when = f"The loss is finite at step {step} ({value:.3g}), the gradient is not: it"
    else:
        for name, held in (("inputs", batch.inputs), ("target", batch.target)):
            wrong = [tensor for tensor in tensors(held) if not _finite(tensor)]
            if wrong:
                count = sum(int((~torch.isfinite(tensor)).sum()) for tensor in wrong)
                return Saw("in_data", step=step, values=count).saying(
                    f"The {name} of the batch at step {step} hold {count} values that are not finite."
                )
        found = forward_origin(lab, model, batch, step)
        when = f"The first value that is not finite, at step {step},"
    if isinstance(found, str):
        return Unclear(f"at step {step} {found}")
    if found.outcome == "in_overflow" and _diverged(losses) and "exp" not in found.operation:
        return Unclear(
            f"the loss had grown to {losses[-1]:.3g} before step {step}: the run diverged until the numbers overflowed"
        )
    return _told(found, step, when)


def _told(found: Found, step: int, when: str) -> Saw:
    told = Saw(found.outcome, step=step, operation=found.operation, fed=found.fed).at(found.place)
    where = f" in {found.place.module}" if found.place and found.place.module else ""
    return told.saying(f"{when} arises in {found.operation}{where}, with input {found.fed}.")
