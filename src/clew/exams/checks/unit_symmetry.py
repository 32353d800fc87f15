"""Do different units of a layer stay equal after some training?

Trains a copy for a few steps and counts the rows of each hidden weight matrix that coincide with another row.

Why it matters: units with equal weights get equal gradients, so they stay one unit however wide the layer is.
Cannot tell: symmetry that dropout or a random mask breaks later; units tied on purpose.
Silent when: rows of the last layer agree, as those of classes that have not occurred do, or a layer starts at zero and
training moves it. Embeddings are left out.
"""

from __future__ import annotations

import torch

from clew.exams.checks._network_graph import all_trained, head_weights
from clew.exams.checks._network_layers import gradients, is_table, matrices, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Saw, Unclear
from clew.records.place import Place

STEPS = 20
UNITS = 3
SHARE = 0.5
CLOSE = 1e-5


@exam("unit_symmetry", needs=("loss",), seconds=2.0, steps=STEPS)
def examine(lab: Lab) -> Answer:
    model = lab.late()
    _, found = gradients(lab, model, [lab.batch])
    last = _last(lab)
    held = {
        name: parameter
        for name, parameter in matrices(lab, model, lab.batch)
        if name not in last
        and name in found
        and parameter.shape[0] >= UNITS
        and not is_table(parameter, found[name], lab.batch)
    }
    if not held:
        return Unclear("the model has no hidden weight matrix that the loss depends on")
    with lab.seeded():
        steps = train(lab, model, lab.batches, STEPS)
    shares = {name: twins(parameter.detach()) for name, parameter in held.items()}
    worst = max(shares, key=lambda name: shares[name])
    if shares[worst] < SHARE:
        return Saw("distinct", matrices=len(held), largest_share=shares[worst], steps=steps)
    count, units = round(shares[worst] * held[worst].shape[0]), held[worst].shape[0]
    told = Saw("identical_units", parameter=worst, share=shares[worst], units=units, steps=steps)
    return told.at(Place(parameter=worst)).saying(
        f"After {steps} steps {count} of the {units} units of {worst} have the same weights as another unit."
    )


def _last(lab: Lab) -> set[str]:
    """The names of the weights that make the output."""
    model = all_trained(lab.late())
    with lab.seeded():
        made = head_weights(lab.output(model, lab.batch))
    return {name for name, parameter in model.named_parameters() if id(parameter) in made}


def twins(weight: torch.Tensor) -> float:
    """The share of rows that coincide with another row. Equal rows are neighbours in any order of their projections."""
    rows = weight.reshape(weight.shape[0], -1).double().cpu()
    size = float(rows.square().mean().sqrt())
    if not torch.isfinite(rows).all():
        return 0.0
    if size == 0:
        return 1.0
    direction = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(0), dtype=rows.dtype) + 0.5
    order = (rows @ direction).argsort()
    ranked = rows[order]
    near = ((ranked[1:] - ranked[:-1]).abs() <= CLOSE * size).all(1)
    twin = torch.zeros(rows.shape[0], dtype=torch.bool)
    twin[:-1] |= near
    twin[1:] |= near
    return float(twin.double().mean())
