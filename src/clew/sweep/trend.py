"""Does more of it help? A slope for every seed, and whether the seeds agree on its sign.

The slope of one seed uses that seed's runs alone, so differences between seeds drop out. Values that span a factor of
eight or more are taken by their logarithm.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.sweep.distributions import t_two_sided

Numbers = NDArray[np.float64]
LOG_SPAN = 8.0


class Trend(NamedTuple):
    """`r` and `spearman` are means over seeds; `t` and `p` test the per-seed slopes. `shape`: rising, falling, peak."""

    r: float
    spearman: float
    slope: float
    t: float
    p: float
    log: bool
    shape: str
    peak: float | None


def axis(values: list[float]) -> tuple[Numbers, bool]:
    """The values as the trend sees them, and whether that is their logarithm."""
    held = np.array(values, dtype=float)
    log = bool(len(held) > 2 and held.min() > 0 and held.max() >= LOG_SPAN * held.min())
    return (np.log10(held) if log else held), log


def trend(values: list[float], table: Numbers) -> Trend | None:
    """Seeds x values, in the order of `values`; NaN where there is no result. None below three values or two seeds."""
    if len(values) < 3 or not all(map(math.isfinite, values)):
        return None
    x, log = axis(values)
    slopes, pearson, spearman = [], [], []
    for row in table:
        there = np.isfinite(row)
        if there.sum() < 3:
            continue
        u, y = x[there] - x[there].mean(), row[there] - row[there].mean()
        slopes.append(float((u * y).sum() / (u * u).sum()))
        pearson.append(correlation(u, y))
        spearman.append(correlation(ranks(u), ranks(y)))
    if len(slopes) < 2:
        return None
    found = np.array(slopes)
    mean, spread = float(found.mean()), float(found.std(ddof=1))
    t = mean / (spread / math.sqrt(len(found))) if spread > 0 else math.copysign(math.inf, mean) if mean else 0.0
    shape, peak = _shape(values, table)
    return Trend(
        float(np.mean(pearson)), float(np.mean(spearman)), mean, t, t_two_sided(t, len(found) - 1), log, shape, peak
    )


def correlation(u: Numbers, y: Numbers) -> float:
    u, y = u - u.mean(), y - y.mean()
    size = math.sqrt(float((u * u).sum()) * float((y * y).sum()))
    return float((u * y).sum()) / size if size > 0 else 0.0


def ranks(values: Numbers) -> Numbers:
    """From 1; equal values share the mean of their ranks."""
    _, back, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Numbers = (ends - counts + 1 + ends) / 2.0
    return middle[back]


def _shape(values: list[float], table: Numbers) -> tuple[str, float | None]:
    """Monotone against a single peak, by the fit to the means: least squares rising, falling, or up and then down."""
    order = np.argsort(values)
    held = table[:, order]
    there = np.isfinite(held)
    count = there.sum(0)
    if (count == 0).any():
        return "", None
    means = np.where(there, held, 0.0).sum(0) / count
    rising, falling = _misfit(means, count), _misfit(-means, count)
    best, at = math.inf, 0
    for top in range(1, len(means) - 1):
        left, right = _misfit(means[: top + 1], count[: top + 1]), _misfit(-means[top:], count[top:])
        if left + right < best and means[top] == means.max():
            best, at = left + right, top
    least = min(rising, falling)
    noise = float(np.nanmean(np.where(there, (held - means) ** 2, np.nan)))
    # A peak is only believed when it saves more than noise alone would let one expect.
    if best < math.inf and least - best > 4.0 * noise:
        return "peak", float(values[order[at]])
    return ("rising" if rising <= falling else "falling"), None


def _misfit(means: Numbers, weights: Numbers) -> float:
    """Weighted squares left over by the best non-decreasing sequence (pool adjacent violators)."""
    blocks: list[list[float]] = []
    for mean, weight in zip(means, weights, strict=True):
        blocks.append([float(mean), float(weight), 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last = blocks.pop()
            first = blocks[-1]
            whole = first[1] + last[1]
            blocks[-1] = [(first[0] * first[1] + last[0] * last[1]) / whole, whole, first[2] + last[2]]
    fit = np.concatenate([np.full(int(size), mean) for mean, _, size in blocks])
    return float((weights * (means - fit) ** 2).sum())
