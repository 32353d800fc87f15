"""Which rows around it an input column is made of: exact weighted sums of the target, row after row.

Rows of one series follow one another; where the next series begins the sum does not hold, so the fit is made on the
rows that agree with one another and the rest is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

REACH = 32  # rows to either side
ROWS_PER_WEIGHT = 6
DISTINCT, MOVING = 24, 0.5  # classes and steps would be matched by chance
CANDIDATES, BEYOND = 24, 12
"""Columns that are fitted closely: those that are told best, and of those told well the ones that the past leaves most
of."""
WORTH, WELL = 0.3, 0.9  # of the variance, from which on a column is fitted closely
KEPT, ROUNDS = 0.6, 6
EXACT = 2e-3  # of the deviation of the column: float32, and statistics that were rounded
AGREE = 0.55  # of all rows
RIDGE = 1e-9
WEIGHT = 0.05  # of the largest
EVEN, GAIN, SIDE = 0.02, 0.5, 2
"""A smoother that runs both ways: how far weights may differ from one side to the other, in parts of the largest, how
much of all weight is left once signs are counted, and how many rows it takes from either side."""


class Made(NamedTuple):
    """`taps` are the rows that a column is made of, 0 for its own and positive for later ones; `past` where earlier
    rows are enough; `both` where it smooths around an earlier row, as a filter that runs forward and backward does."""

    column: int
    taps: tuple[int, ...]
    one_sign: bool
    past: bool
    both: bool = False


def made_of(columns: Floats, target: Floats) -> list[Made]:
    """The columns that are exact sums of the target around them."""
    reach = min(REACH, (len(target) // ROWS_PER_WEIGHT - 1) // 2)
    if reach < 1 or len(np.unique(target)) < DISTINCT or float((np.diff(target) != 0).mean()) < MOVING:
        return []
    width = 2 * reach + 1
    target = (target - target.mean()) / target.std()
    around = np.lib.stride_tricks.sliding_window_view(target, width)
    around = np.column_stack([around, np.ones(len(around))])
    inside = columns[reach : len(columns) - reach]
    spread = inside.std(0)
    moving = (np.diff(inside, axis=0) != 0).mean(0)
    varied = np.flatnonzero((spread > 1e-9) & (moving >= MOVING))
    if not len(varied):
        return []
    values = (inside[:, varied] - inside[:, varied].mean(0)) / spread[varied]
    explained = 1 - ((values - around @ _solved(around, values)) ** 2).mean(0)
    before = around[:, [*range(reach), width]]
    beyond = ((values - before @ _solved(before, values)) ** 2).mean(0) * (explained > WELL)
    best = list(dict.fromkeys([*np.argsort(-explained)[:CANDIDATES], *np.argsort(-beyond)[:BEYOND]]))
    found = [_fitted(int(varied[k]), around, values[:, k], reach) for k in best if explained[k] >= WORTH]
    return [made for made in found if made is not None]


def _fitted(column: int, around: Floats, values: Floats, reach: int) -> Made | None:
    if _exact(around[:, [*range(reach), around.shape[1] - 1]], values) is not None:
        return Made(column, (), True, True)
    weights = _exact(around, values)
    if weights is None:
        return None
    weights = weights[:-1]
    large = np.flatnonzero(np.abs(weights) > WEIGHT * np.abs(weights).max())
    one_sign = bool((weights[large] > 0).all() or (weights[large] < 0).all())
    return Made(column, tuple(int(k) - reach for k in large), one_sign, False, _both_ways(weights, reach))


def _both_ways(weights: Floats, reach: int) -> bool:
    """Weights that are the same on both sides of an earlier row, where they are largest, and that do not cancel out:
    differences have no such middle. Only the end of the reach is left out on the far side."""
    middle = int(np.abs(weights).argmax())
    side = min(middle, len(weights) - 1 - middle)
    if middle >= reach or weights[middle] <= 0 or side < SIDE or weights.sum() < GAIN * np.abs(weights).sum():
        return False
    left, right = weights[middle - side : middle][::-1], weights[middle + 1 : middle + 1 + side]
    far = int((np.abs(right) > WEIGHT * weights[middle]).sum())
    return far >= SIDE and bool((np.abs(left - right) < EVEN * weights[middle]).all())


def _exact(around: Floats, values: Floats) -> Floats | None:
    """The weights that give most rows exactly; the rows that fit worst are left out step by step."""
    kept = np.arange(len(values))
    for step in range(ROUNDS):
        weights = _solved(around[kept], values[kept])
        off = np.abs(values - around @ weights)
        if float((off < EXACT).mean()) >= AGREE:
            return weights
        share = 1 - (1 - KEPT) * min(1.0, (step + 1) / 3)
        kept = np.argsort(off)[: int(share * len(values))]
    return None


def _solved(around: Floats, values: Floats) -> Floats:
    """Least squares by the normal equations: hundreds of times faster than by singular values, and exact enough."""
    gram = around.T @ around
    gram[np.diag_indices_from(gram)] += RIDGE * len(around)
    return np.asarray(np.linalg.solve(gram, around.T @ values))
