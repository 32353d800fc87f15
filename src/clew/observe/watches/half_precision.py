"""Are gradients or updates lost in half precision?

Why it matters: float16 gradients below 6e-8 are zero, and an update below half a unit in the last place leaves a
bfloat16 weight as it was: the run goes on and learns nothing there.
Cannot tell: digits lost inside an operation; whether gradients that small would have mattered.
Silent when: weights are float32 and gradients are scaled or need no scaling, zeros come from dead units or sparse
inputs, or the optimiser rounds stochastically.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.watch import Answer, OptimizerEvent, Watch
from clew.observe.watches._training_values import held_by, median, rate, sample, skips, values
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

HALF = (torch.float16, torch.bfloat16)
SMALLEST = 2.0**-24
"""Of float16; gradients that came through it are multiples of this."""
LOWEST = 2.0**-20
DENSE = 0.05
"""Share of the gradients near the smallest number from which zeros beside them count as underflow."""
VALUES = 8192
ROWS = 256


class HalfPrecision(Watch):
    test = "half_precision"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.before: dict[int, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = {}
        self.gradients: deque[float] = deque(maxlen=200)  # share of gradients lost, per step
        self.updates: deque[float] = deque(maxlen=200)
        self.steps = 0

    def before_step(self, event: OptimizerEvent) -> None:
        self.before.pop(event.number, None)
        if not event.sampled or skips(event.optimizer):
            return
        self.steps += 1
        with torch.no_grad():
            self._look_at_gradients(list(held_by(event.optimizer)))
            if not _rounds_stochastically(event.optimizer):
                self._keep_weights(event)

    def _look_at_gradients(self, parameters: list[torch.Tensor]) -> None:
        held = [
            _through_half(parameter.grad)
            for parameter in parameters
            if parameter.grad is not None and parameter.dim() > 1
        ]
        counts = [_count(rows) for rows in held if rows is not None]
        if counts:
            self.gradients.append(_share_lost(counts))

    def _keep_weights(self, event: OptimizerEvent) -> None:
        kept = self.before.setdefault(event.number, [])
        for group in event.optimizer.param_groups:
            for parameter in group["params"] if rate(group) > 0 else ():
                if parameter.dtype in HALF and parameter.grad is not None and not parameter.grad.is_sparse:
                    weight, gradient = sample(parameter, VALUES), sample(parameter.grad, VALUES)
                    if weight is not None and gradient is not None and weight.shape == gradient.shape:
                        kept.append((parameter, weight.clone(), gradient != 0))

    def after_step(self, event: OptimizerEvent) -> None:
        same = counted = 0
        for parameter, old, due in self.before.pop(event.number, []):
            new = sample(parameter, VALUES)
            if new is not None:
                counted += int(due.sum())
                same += int(((new == old) & due & (old != 0)).sum())
        if counted:
            self.updates.append(same / counted)

    def read(self) -> Answer:
        if not self.steps:
            return Unclear("no optimiser step was seen")
        gradients = median(self.gradients) if self.gradients else 0.0
        updates = median(self.updates) if self.updates else 0.0
        return Reading(share_lost=max(gradients, updates), gradients_lost=gradients, updates_lost=updates)


def _through_half(gradient: torch.Tensor) -> torch.Tensor | None:
    """A matrix of gradients that are float16 numbers, whatever they are stored as; else None."""
    held = values(gradient) if gradient.layout is torch.strided and not gradient.is_complex() else None
    if held is None or held.dtype == torch.bfloat16 or not held.is_floating_point():
        return None
    rows = held.reshape(held.shape[0], -1)
    rows = rows[:: max(1, rows.shape[0] // ROWS), :: max(1, rows.shape[1] // ROWS)].to(torch.float32)
    if not bool(torch.isfinite(rows).all()):
        return None
    small = rows[rows.abs() < 1]
    if held.dtype != torch.float16 and bool((small / SMALLEST != (small / SMALLEST).round()).any()):
        return None
    return rows


class Count(NamedTuple):
    """The entries of one matrix of gradients; `apart` are zeros in rows and columns that hold something else."""

    entries: int
    zeros: int
    lowest: int
    alive: int
    apart: int


def _count(rows: torch.Tensor) -> Count:
    there = rows != 0
    alive = there.any(1)[:, None] & there.any(0)[None, :]
    counted = (~there, there & (rows.abs() < LOWEST), alive, alive & ~there)
    return Count(rows.numel(), *(int(mask.sum()) for mask in counted))


def _share_lost(counts: list[Count]) -> float:
    """Zeros count as underflow only where the smallest numbers there are stand beside them, as at a cut-off.

    Dead units and unused inputs make whole rows and columns zero. Those are left out, unless most of what is left of
    the gradient is itself at the bottom: then the early layers have gone under as a whole.
    """
    entries, zeros, lowest, alive, apart = (sum(numbers) for numbers in zip(*counts, strict=True))
    present = entries - zeros
    if not present or lowest < DENSE * present:
        return 0.0
    return float(zeros / entries if lowest > present / 2 else apart / alive)


def _rounds_stochastically(optimizer: Any) -> bool:
    return any("stochastic_round" in name and bool(held) for name, held in vars(optimizer).items())
