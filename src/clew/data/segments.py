"""Finding the stretch of rows in which something is other than in the rest."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clew.data.model import Array

GRID = 160


class Stretch(NamedTuple):
    """Rows `first` to `last`, both within. `z`: how many standard errors their mean lies above that of the rest."""

    first: int
    last: int
    z: float

    @property
    def rows(self) -> int:
        return self.last - self.first + 1

    def within(self, count: int) -> Array:
        chosen = np.zeros(count, bool)
        chosen[self.first : self.last + 1] = True
        return chosen


def highest(values: Array, fewest: int) -> Stretch | None:
    """The stretch whose mean stands out most above the rest; the whole is no stretch."""
    count = len(values)
    if count < 2 * fewest or not float(values.std()) > 0:
        return None
    centred = (values - values.mean()) / values.std()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    edges = np.unique(np.linspace(0, count, min(count, GRID) + 1).astype(int))
    first, last, score = _best(sums, edges, edges, count, fewest)
    step = max(1, math.ceil(count / GRID))
    for _ in range(2):
        near = [np.unique(np.clip(np.arange(edge - step, edge + step + 1), 0, count)) for edge in (first, last)]
        first, last, score = max((first, last, score), _best(sums, near[0], near[1], count, fewest), key=lambda r: r[2])
    return Stretch(int(first), int(last) - 1, float(score)) if math.isfinite(score) else None


def _best(sums: Array, starts: Array, ends: Array, count: int, fewest: int) -> tuple[int, int, float]:
    size = ends[None, :] - starts[:, None]
    rest = count - size
    total = sums[ends][None, :] - sums[starts][:, None]
    able = (size >= fewest) & (rest >= max(1, min(fewest, 5)))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(able, total * np.sqrt(count / (size * rest.astype(float))), -np.inf)
    at = np.unravel_index(int(np.argmax(z)), z.shape)
    return int(starts[at[0]]), int(ends[at[1]]), float(z[at])


def ranks(values: Array) -> Array:
    """Ranks from 0 to 1, ties in the middle; what is not a number stands in the middle of all."""
    finite = np.isfinite(values)
    found = np.full(len(values), 0.5)
    held = values[finite]
    if len(held):
        _, inverse, counts = np.unique(held, return_inverse=True, return_counts=True)
        ends = np.cumsum(counts)
        found[finite] = ((ends - counts + ends) / 2 / len(held))[inverse]
    return found


def distance(one: Array, other: Array) -> float:
    """The largest difference between two distribution functions (Kolmogorov and Smirnov)."""
    both = np.sort(np.concatenate([one, other]))
    left = np.searchsorted(np.sort(one), both, side="right") / len(one)
    right = np.searchsorted(np.sort(other), both, side="right") / len(other)
    return float(np.abs(left - right).max())


def by_chance(one: int, other: int) -> float:
    """A distance that two samples of one distribution pass once in a thousand times."""
    return 1.95 * math.sqrt((one + other) / (one * other))
