"""Is the batch large enough for its gradient to carry a signal?

Estimates the simple noise scale, the summed variance of the gradients of single examples over the squared length of
their mean, from gradients at two batch sizes: those of parts, and that of all of them together. It is about the batch
size up to which doubling the batch halves the steps. The standard error is that of the jackknife over the parts.

Why it matters: far below the noise scale single updates are nearly all noise; far above it larger batches are wasted.
Cannot tell: noise of wrong labels from noise of a small batch. It is the noise scale of these weights, and grows in
training.
Silent when: the batch is within reach of the noise scale. Unclear with too few examples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from clew.exams.batches import Batch
from clew.exams.checks._network_rows import Layout, layout, picked
from clew.exams.checks._training_runs import gradient, trained_parameters
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear

ENOUGH, MOST = 8, 32
PARTS = 4
FAR_BELOW = 0.005


class Noise(NamedTuple):
    """`signal` is the squared length of the true gradient, `spread` the summed variance of one example's."""

    signal: float
    spread: float

    @property
    def scale(self) -> float:
        return self.spread / self.signal if self.signal > 0 else math.inf


@exam("noise_scale", needs=("loss",), seconds=1.0, steps=MOST)
def examine(lab: Lab) -> Answer:
    if not trained_parameters(lab.fresh()):
        return Unclear("no parameter of the model takes a gradient")
    held = layout(lab.batch)
    if isinstance(held, str):
        return Unclear(held)
    batches = [batch for batch in lab.batches[:MOST] if layout(batch) == held]
    size, parts = _parts(batches, held)
    if len(parts) < PARTS or size < 1:
        return Unclear("the available batches hold too few examples to compare two batch sizes")
    table = _products(lab, parts, held)
    if table is None:
        return Unclear("the gradient is not finite")
    whole = estimate(table, size)
    if whole.spread <= 0:
        return Unclear("all examples have the same gradient, or a zero one")
    ratio = held.examples * whole.signal / whole.spread
    error = held.examples * jackknife(table, size)
    figures = {
        "batch_over_noise_scale": ratio,
        "standard_error": error,
        "noise_scale": whole.scale,
        "noise_scale_error": whole.scale * error / ratio if ratio > 0 else math.inf,
        "critical_batch_size": whole.scale,
        "batch": held.examples,
        "small": size,
        "large": size * len(parts),
    }
    if abs(ratio - FAR_BELOW) < 2 * error:
        return Unclear(
            f"batch over noise scale is {ratio:.2g} ± {error:.2g} from {size * len(parts)} examples, too few "
            "to distinguish it from zero"
        )
    return Reading(**figures)


def _parts(batches: list[Batch], held: Layout) -> tuple[int, list[tuple[Batch, torch.Tensor]]]:
    """Whole batches when there are enough, quarters of them otherwise; each with the numbers of its examples."""
    if len(batches) >= ENOUGH:
        return held.examples, [(batch, torch.arange(held.examples)) for batch in batches]
    size = held.examples // PARTS
    return size, [(batch, torch.arange(size) + at * size) for batch in batches for at in range(PARTS)] if size else []


def _products(lab: Lab, parts: list[tuple[Batch, torch.Tensor]], held: Layout) -> torch.Tensor | None:
    """The inner products of the gradients of the parts, all that the estimate needs."""
    model = lab.fresh()
    vectors = []
    for number, (batch, index) in enumerate(parts):
        lab.check(number / len(parts))
        vectors.append(_part_gradient(lab, model, batch, index, held))
    stacked = torch.stack(vectors)
    table = (stacked @ stacked.T).cpu()
    return table if bool(table.isfinite().all()) else None


def _part_gradient(lab: Lab, model: torch.nn.Module, batch: Batch, index: torch.Tensor, held: Layout) -> torch.Tensor:
    if len(index) == held.examples:
        return gradient(lab, model, batch)
    try:
        return gradient(lab, model, picked(batch, index, held))
    except RuntimeError:
        # A captured step may know one size only. The mean over examples that come several times is the same.
        filled = index.repeat(-(-held.examples // len(index)))[: held.examples]
        return gradient(lab, model, picked(batch, filled, held))


def estimate(table: torch.Tensor, size: int) -> Noise:
    """From the inner products of gradients of `size` examples each: both terms of the noise scale, without bias."""
    count = len(table)
    small = float(table.diagonal().mean())
    large = float(table.mean())
    big = size * count
    return Noise((big * large - size * small) / (big - size), (small - large) / (1 / size - 1 / big))


def jackknife(table: torch.Tensor, size: int) -> float:
    """The standard error of signal over spread, from leaving out each part once."""
    count = len(table)
    values = []
    for left in range(count):
        keep = torch.arange(count) != left
        held = estimate(table[keep][:, keep], size)
        values.append(held.signal / held.spread if held.spread > 0 else 0.0)
    mean = sum(values) / count
    return math.sqrt((count - 1) / count * sum((value - mean) ** 2 for value in values))
