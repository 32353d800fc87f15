"""Does a model of twice the width fit the same batch clearly better?

The wider model is two copies side by side whose outputs are averaged; the second copy's weights are those of the first
in another order. Both memorise one batch for as many steps, and the better of two rates counts. Losses below a
twentieth of the first one count as that: there the batch is already fitted.

Why it matters: what the parameterisation cannot express, no training will find.
Cannot tell: a ceiling that width does not lift, such as a fixed output range, a missing input or a narrow layer that
both copies share.
Silent when: the model as it is fits the batch, or does not for reasons that a second copy shares. A model that rebuilds
its input, through a bottleneck by design, is unclear.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from clew.errors import ClewError
from clew.exams.batches import Batch, is_values, mapped, rows, tensors
from clew.exams.checks._network_rows import fewer, is_given
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

STEPS = 200
ROWS = 32
RATES = (1e-2, 2e-3)
FITTED = 0.05


@exam("capacity_doubling", needs=("loss",), seconds=10.0, steps=3 * len(RATES) * STEPS)
def examine(lab: Lab) -> Answer:
    if is_given(lab) and lab.subject.loss is None:
        return Unclear("the model computes its own loss, so two outputs cannot be averaged before it")
    batch = fewer(lab.batch, ROWS)
    try:
        start = _first_loss(lab, batch)
    except RuntimeError:
        batch = lab.batch  # a captured step may know one size only
        start = _first_loss(lab, batch)
    if not math.isfinite(start) or start <= 0:
        return Unclear(f"the loss starts at {start:.3g}, and its lower bound is unknown")
    narrow = _best(lab, batch, 1, FITTED * start)
    if narrow <= FITTED * start:
        # Nothing is left to gain, so the wider model is not even tried.
        return Reading(wide_over_narrow_loss=1.0, fitted=True, narrow=narrow, initial=start)
    if several_outputs(lab, batch):
        return Unclear("the model has several outputs, which cannot be averaged over two copies")
    wide = _best(lab, batch, 2, FITTED * start)
    if wide < narrow / 2 and rebuilds_input(batch):
        return Unclear(
            f"twice the width brings the loss from {narrow:.3g} to {wide:.3g}; an autoencoder is narrow on purpose"
        )
    floor = FITTED * start
    ratio = max(wide, floor) / max(narrow, floor)
    return Reading(wide_over_narrow_loss=ratio, narrow=narrow, wide=wide, initial=start, fitted=False)


def _first_loss(lab: Lab, batch: Batch) -> float:
    with lab.seeded():
        return float(lab.loss(lab.fresh(), batch).detach())


def several_outputs(lab: Lab, batch: Batch) -> bool:
    """Whether more than one value goes into the loss that the inputs have a part in: weights themselves may go there
    too, for a penalty."""
    size = rows(batch)
    turned = Batch(
        mapped(batch.inputs, lambda held: held.roll(1, 0) if held.dim() and len(held) == size else held), None
    )
    with lab.seeded():
        own = list(tensors(lab.output(lab.fresh(), batch)))
    with lab.seeded():
        other = list(tensors(lab.output(lab.fresh(), turned)))
    depends = [value.requires_grad and not torch.equal(value, held) for value, held in zip(own, other, strict=True)]
    return sum(depends) > 1


def rebuilds_input(batch: Batch) -> bool:
    """Whether the target is the input, or is made from it by the loss."""
    wanted = list(tensors(batch.target))
    given = list(tensors(batch.inputs))
    return not wanted or any(
        one.numel() == other.numel() and bool(torch.equal(one.reshape(-1), other.reshape(-1).to(one.dtype)))
        for one in wanted
        for other in given
    )


def _best(lab: Lab, batch: Batch, copies: int, enough: float) -> float:
    """The lowest loss that so many copies together reach, with any of the rates."""
    best = math.inf
    for number, rate in enumerate(RATES):
        models = [lab.fresh() for _ in range(copies)]
        for more, model in enumerate(models[1:]):
            reorder(model, lab.generator(more + 1))
        trained = [held for model in models for held in model.parameters() if held.requires_grad]
        if not trained:
            raise ClewError("no parameter of the model takes a gradient")
        optimizer = torch.optim.Adam(trained, lr=rate)
        with lab.seeded(number):
            for step in range(STEPS):
                lab.check((number + step / STEPS) / len(RATES))
                optimizer.zero_grad()
                loss = together(lab, models, batch)
                value = float(loss.detach())
                if not math.isfinite(value) or not loss.requires_grad:
                    break
                best = min(best, value)
                if best <= enough:
                    return best
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return best


def together(lab: Lab, models: list[nn.Module], batch: Batch) -> torch.Tensor:
    outputs = [lab.output(model, batch) for model in models]
    output = outputs[0] if len(outputs) == 1 else averaged(outputs)
    return lab.subject.value(output, batch.target)


def averaged(trees: list[Any]) -> Any:
    """One nest of the same form with the mean of every value; what is no floating point value is the first one's."""
    first = trees[0]
    if isinstance(first, torch.Tensor):
        return torch.stack(trees).mean(0) if is_values(first) else first
    if isinstance(first, dict):
        return {name: averaged([tree[name] for tree in trees]) for name in first}
    if isinstance(first, list | tuple):
        held = [averaged(list(values)) for values in zip(*trees, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*held)
        return held if isinstance(first, list) else tuple(held)
    if first is None or isinstance(first, int | float | str | bool):
        return first
    raise ClewError(f"outputs of type {type(first).__name__} cannot be averaged")


FEW = 8


def reorder(model: nn.Module, generator: torch.Generator) -> None:
    """The same weights in another order: as if they had been drawn again."""
    with torch.no_grad():
        for parameter in model.parameters():
            if 0 < parameter.numel() <= FEW:  # hardly any other orders
                size = parameter.detach().double().square().mean().sqrt().to(parameter.device)
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.double).to(parameter.device)
                parameter.copy_(size * drawn)
            elif parameter.dim() > 1:
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.reshape(-1)[order].reshape(parameter.shape))
