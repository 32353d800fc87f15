"""Do the weights look ordinary, layer by layer, before and after a few steps?

Looks at every trained weight matrix as it is, trains a copy for a few steps as the user does, and looks again.

Why it matters: weights that are all alike, collapse, run away or turn NaN say where training goes wrong.
Cannot tell: why it happens. Matrices that are sparse or quantised by design; embeddings are left out.
Silent when: a matrix starts at zero and training moves it, or a small head grows to its size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.checks._network_layers import gradients, is_table, matrices, rms, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import Place

STEPS = 20
SMALLEST = 16
GROWN, SHRUNK = 30.0, 1e-3
WIDE, NARROW = 30.0, 1e-3
"""Root mean square times the root of the fan-in: 0.6 to 1.4 is usual, beyond these it is not."""


class Width(NamedTuple):
    rms: float
    spread: float
    scaled: float


@exam("weight_distribution", needs=("loss",), seconds=2.0, steps=STEPS)
def examine(lab: Lab) -> Answer:
    model = lab.late()
    _, found = gradients(lab, model, [lab.batch])
    held = {
        name: parameter
        for name, parameter in matrices(lab, model, lab.batch)
        if parameter.numel() >= SMALLEST and not is_table(parameter, found.get(name), lab.batch)
    }
    if not held:
        return Unclear("the model has no weight matrix that trains")
    before = {name: width(parameter) for name, parameter in held.items()}
    with lab.seeded():
        steps = train(lab, model, lab.batches, STEPS)
    after = {name: width(parameter) for name, parameter in held.items()}
    odd = {name: why for name in held if (why := oddity(before[name], after[name]))}
    if not odd:
        return Saw("usual", matrices=len(held), steps=steps)
    name, why = next(iter(odd.items()))
    places = [Place(parameter=name) for name in list(odd)[:5]]
    told = Saw("odd", matrices=len(odd), first=before[name].rms, now=after[name].rms, steps=steps)
    return told.at(*places).saying(
        f"{name} {why}: its root mean square is {before[name].rms:.3g} at the start and {after[name].rms:.3g} after "
        f"{steps} steps."
    )


def width(parameter: nn.Parameter) -> Width:
    with torch.no_grad():
        values = parameter.detach().double()
        size = rms(values)
        return Width(size, float(values.max() - values.min()), size * math.sqrt(values.numel() / values.shape[0]))


def oddity(before: Width, after: Width) -> str:
    """What is odd about a matrix, "" when nothing is."""
    if not math.isfinite(after.rms):
        return "is not finite"
    if before.spread <= 1e-6 * before.rms and after.spread <= 1e-6 * after.rms:
        return "has one value throughout"
    if before.rms > 0 and before.spread <= 1e-6 * before.rms:
        return "starts with one value throughout"
    if before.rms > 0 and after.rms > GROWN * before.rms and after.scaled > WIDE:
        return "runs away"
    if before.rms > 0 and after.rms < SHRUNK * before.rms:
        return "has collapsed"
    if before.scaled > WIDE:
        return "is far wider than its fan-in requires"
    if 0 < before.scaled < NARROW and after.scaled < NARROW:
        return "is far narrower than its fan-in requires"
    return ""
