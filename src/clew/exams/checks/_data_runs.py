"""Short trainings that differ in their data alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from clew.exams.batches import Batch, distinct, rows, take
from clew.exams.checks._data_tables import pooled
from clew.exams.lab import Lab

RATES = (1e-2, 1e-3)
LEARNED = 0.9
"""A model whose loss on its own pairs is below this share of that on mixed ones has learned something before."""

Feed = Callable[[int], Batch]
"""feed(step) -> the batch of that step."""


class Pool(NamedTuple):
    """All examples as one batch, and how many go into one step."""

    batch: Batch
    examples: int
    size: int

    def draw(self, index: torch.Tensor) -> Batch:
        return take(self.batch, index)

    def feed(self, index: torch.Tensor) -> Feed:
        """Batches of the size that the model was made for, going round through these rows."""

        def batch(step: int) -> Batch:
            return self.draw(index[(torch.arange(self.size) + step * self.size) % len(index)])

        return batch


def pool_of(batches: Sequence[Batch]) -> Pool | None:
    whole = pooled(distinct(batches))
    return Pool(whole, rows(whole), rows(batches[0])) if whole is not None else None


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def train(lab: Lab, model: nn.Module, feed: Feed, steps: int, rate: float) -> list[float]:
    """The loss before every step, by Adam: the user's rate may be what is wrong. Ends when a loss is not finite."""
    optimizer = torch.optim.Adam(trained_parameters(model), lr=rate)
    losses: list[float] = []
    for step in range(steps):
        lab.check(step / steps)
        losses.append(lab.one_step(model, feed(step), optimizer))
        if not math.isfinite(losses[-1]):
            break
    return losses


def level(losses: Sequence[float]) -> float:
    """The mean of the second half, NaN when any of it is not finite: steadier than the last value."""
    held = losses[len(losses) // 2 :]
    return sum(held) / len(held) if held else math.nan


def knows(lab: Lab, pool: Pool) -> bool:
    """Whether the model, as it is, does better on its pairs than on pairs mixed up: it was trained."""
    model = lab.fresh(training=False)
    index = torch.arange(pool.size)
    mixed = torch.randperm(pool.size, generator=lab.generator(11))
    batch = pool.draw(index)
    with lab.seeded():
        real = lab.loss_value(model, batch)
    with lab.seeded():
        other = lab.loss_value(model, Batch(batch.inputs, take(batch, mixed).target))
    return math.isfinite(real) and math.isfinite(other) and real < LEARNED * other


def starting(lab: Lab, pool: Pool) -> nn.Module:
    """A copy that knows nothing yet: where the model was trained, the entries of each of its matrices change places,
    which keeps their scale and forgets what they say."""
    model = lab.fresh()
    if knows(lab, pool):
        scramble(model, lab.generator(12))
    return model


def scramble(model: nn.Module, generator: torch.Generator) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
                parameter.copy_(parameter.flatten()[order].view_as(parameter))
