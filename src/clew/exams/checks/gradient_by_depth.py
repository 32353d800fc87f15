"""How does the size of the gradient change from the last layer to the first, and where?

Takes the root mean square gradient of every weight matrix, in the order of use, and compares the largest in the
first quarter with the largest in the last. The place is the layer, counted from the loss, at which it is first lost.

Why it matters: layers that get no gradient, or a millionth of the others', stay at their initial values.
Cannot tell: a gradient that is too small or too large in all layers at once (see update_ratio); what Adam normalises
away.
Silent when: layers are frozen, the first gradients are zero only because a last layer starts at zero, or embeddings
have rows without a gradient.
"""

from __future__ import annotations

import math

import torch

from clew.exams.checks._network_layers import Matrix, gradients, is_table, matrices, rms, train
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place

BATCHES = 2
WARM = 5
FAR = 3.0


@exam("gradient_by_depth", needs=("loss",), seconds=1.0, steps=WARM + BATCHES)
def examine(lab: Lab) -> Answer:
    model = lab.fresh()
    layers = matrices(lab, model, lab.batch)
    if len(layers) < 2:
        return Unclear("the model has fewer than two weight matrices that train")
    sizes, loss = _sizes(lab, model, layers)
    if len(sizes) < 2:
        return Unclear("fewer than two weight matrices besides embeddings train")
    if not any(sizes.values()) and abs(loss) < 1e-8:
        return Unclear(f"the loss is {loss:.2g}: nothing is left to learn on this batch")
    if not next(iter(sizes.values())):
        # A last layer that starts at zero lets nothing pass on the first step, and on the next it does.
        with lab.seeded():
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            train(lab, model, lab.batches[:BATCHES], WARM, torch.optim.Adam(trained, lr=1e-3))
        sizes, loss = _sizes(lab, model, layers)
    value = decades(list(sizes.values()))
    names = list(sizes)
    figures = Reading(
        log10_first_over_last=value,
        first=names[0],
        last=names[-1],
        smallest=min(sizes.values()),
        largest=max(sizes.values()),
        layers=len(sizes),
    )
    if math.isfinite(value) and abs(value) <= FAR:
        return figures
    bad = first_bad(list(sizes.items()))
    return figures.at(_place(lab, bad)) if bad else figures


def _place(lab: Lab, parameter: str) -> Place:
    known = lab.place(parameter)
    return known._replace(module=None, parameter=parameter) if known is not None else Place(parameter=parameter)


def _sizes(lab: Lab, model: torch.nn.Module, layers: list[Matrix]) -> tuple[dict[str, float], float]:
    loss, found = gradients(lab, model, lab.batches[:BATCHES])
    sizes = {}
    for name, parameter in layers:
        gradient = found.get(name)
        if not is_table(parameter, gradient, lab.batch):
            sizes[name] = rms(gradient) if gradient is not None else 0.0
    return sizes, loss


def decades(sizes: list[float]) -> float:
    """log10 of the first over the last, from the sizes in order of use."""
    if not all(math.isfinite(size) for size in sizes):
        return math.nan
    part = max(1, len(sizes) // 4)
    first, last = max(sizes[:part]), max(sizes[-part:]) or max(sizes)
    return math.log10(first / last) if sizes[0] > 0 and last > 0 else -math.inf


def first_bad(sizes: list[tuple[str, float]]) -> str:
    """The layer nearest to the loss whose gradient is lost, blown up or not finite. Found by halving, as gradients get
    worse with the distance; where they do not, it is one of the places at which they turn bad."""
    scale = max((size for _, size in sizes[-max(1, len(sizes) // 4) :] if math.isfinite(size)), default=0.0)

    def bad(size: float) -> bool:
        if not math.isfinite(size) or size == 0 or scale == 0:
            return True
        return abs(math.log10(size / scale)) > FAR

    low, high = 0, len(sizes) - 1  # low is bad, high is sound
    if not bad(sizes[low][1]) or bad(sizes[high][1]):
        return next((name for name, size in reversed(sizes) if bad(size)), "")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if bad(sizes[middle][1]) else (low, middle)
    return sizes[low][0]
