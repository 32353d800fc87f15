"""Whether numbers drift from batch to batch: the spread between the means of batches against that of random batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

COLUMNS = 512
BATCHES = 512
FEWEST_BATCHES = 4
SHARE = 0.3
"""Of the variance, beyond what random batches leave between their means."""
FOLLOWS = 0.5
"""Correlation of a batch's mean with that of the batch before: groups that are dealt out do not follow one another."""


class Drift(NamedTuple):
    z: float
    share: float
    column: int  # of inputs and targets side by side


class Means:
    """Sums of one loader's first epoch, batch by batch and column by column."""

    def __init__(self) -> None:
        self.sums: list[NDArray[np.float64]] = []
        self.counts: list[int] = []
        self.squares: NDArray[np.float64] | None = None
        self.targets = 0  # how many of the last columns are targets
        self.windows = True  # each row is the one before it moved by one place

    def add(self, inputs: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
        table = _table(inputs, targets)
        if table is None or (self.sums and table.shape[1] != len(self.sums[0])):
            return
        wanted = targets[0].numel() // max(1, len(targets[0])) if targets else 0
        given = table[:, : table.shape[1] - wanted]
        moved = given.shape[1] > 2 and len(given) > 1 and bool(np.allclose(given[1:, :-1], given[:-1, 1:]))
        self.windows = self.windows and moved
        self.targets = wanted
        self.sums.append(table.sum(0))
        self.counts.append(len(table))
        self.squares = (table**2).sum(0) if self.squares is None else self.squares + (table**2).sum(0)

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def drift(self) -> Drift | None:
        """The column that drifts most; None where there is too little to say."""
        count, rows = len(self.sums), self.rows
        if count < FEWEST_BATCHES or self.squares is None or self.windows:
            return None
        sizes = np.asarray(self.counts, float)[:, None]
        means = np.stack(self.sums) / sizes
        whole = np.stack(self.sums).sum(0) / rows
        total = self.squares - rows * whole**2
        varies = total > 1e-9 * np.maximum(self.squares, 1e-30)
        if not varies.any():
            return None
        apart = means - whole
        between = (sizes * apart**2).sum(0) / np.where(varies, total, 1.0)
        chance = (count - 1) / max(1, rows - 1)
        share = np.where(varies, (between - chance) / (1 - chance), 0.0)
        follows = (apart[1:] * apart[:-1]).sum(0) / np.maximum((apart**2).sum(0), 1e-30)
        z = (between * (rows - 1) - (count - 1)) / (2 * (count - 1)) ** 0.5
        z = np.where((share >= SHARE) & (follows >= FOLLOWS), z, 0.0)
        column = int(np.argmax(z))
        return Drift(float(z[column]), float(share[column]), column)


def _table(inputs: list[torch.Tensor], targets: list[torch.Tensor]) -> NDArray[np.float64] | None:
    """One row per example: numbers that describe it. None for sequences, tokens and pictures, whose order is another
    matter."""
    held = [tensor for tensor in (*inputs, *targets[:1]) if tensor.dim()]
    if not held or any(tensor.dim() > 2 or len(tensor) != len(held[0]) for tensor in held):
        return None
    if not inputs or not inputs[0].is_floating_point():
        return None
    numbers = [tensor.detach().reshape(len(tensor), -1).double() for tensor in held if tensor.is_floating_point()]
    if sum(tensor.shape[1] for tensor in numbers) > COLUMNS:
        return None
    table = np.concatenate([tensor.cpu().numpy() for tensor in numbers], axis=1)
    return table if np.isfinite(table).all() else None
