"""Does the loss depend, through autograd, on every parameter that should train?

Runs a forward and a backward pass on a few batches from cleared gradients and lists the parameters that never get one.

Why it matters: a detach, a layer that is never called or a loss made of numbers leaves parameters at their initial
values.
Cannot tell: a path that carries a zero gradient (see parameters_changed); a branch that is detached on purpose.
Silent when: a parameter is frozen, or takes part in any batch.
"""

from __future__ import annotations

import torch

from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import Place

BATCHES = 4
NAMED = 3


@exam("loss_reaches_parameters", needs=("loss",), seconds=0.5, steps=BATCHES)
def examine(lab: Lab) -> Answer:
    model = lab.fresh()
    trained = {name: held for name, held in model.named_parameters() if held.requires_grad}
    if not trained:
        return Unclear("no parameter of the model takes a gradient")
    reached = False
    for number, batch in enumerate(lab.batches[:BATCHES]):
        lab.check(number / BATCHES)
        with lab.seeded(number):
            loss = lab.loss(model, batch)
            reached = reached or loss.requires_grad
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
    lost = [name for name, held in trained.items() if held.grad is None]
    if not reached or len(lost) == len(trained):
        says = (
            "The loss depends on no parameter: its graph leads elsewhere."
            if reached
            else "The loss has no graph: autograd sees a plain number."
        )
        return Saw("none", missing=len(lost), trainable=len(trained)).at(lab.place()).saying(says)
    if lost:
        says = f"{len(lost)} of {len(trained)} trainable parameters get no gradient: {listed(lost)}."
        return Saw("some_missing", missing=len(lost), trainable=len(trained)).at(*places(lab, lost)).saying(says)
    return Saw("all", trainable=len(trained))


def listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def places(lab: Lab, names: list[str]) -> list[Place]:
    found = []
    for name in names[:NAMED]:
        known = lab.place(name)
        made = known._replace(module=None, parameter=name) if known is not None else Place(parameter=name)
        found.append(made)
    return found


def unchanged(before: dict[str, torch.Tensor], model: torch.nn.Module) -> list[str]:
    """The parameters with the same bits as before."""
    return [name for name, held in model.named_parameters() if name in before and torch.equal(before[name], held)]
