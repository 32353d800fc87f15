"""How large an effect is, with its uncertainty: t, bootstrap-t and BCa intervals, interquartile mean, probability of
improvement.

The percentile bootstrap is not here: at five seeds it covers the truth in 83 of 100 tables where it promises 95.
Every draw comes from a generator that the caller seeds, so the same seed gives the same interval to the last bit.
"""

import math

import numpy as np
from numpy.typing import NDArray

from clew.sweep.distributions import NORMAL, t_quantile

Numbers = NDArray[np.float64]
Interval = tuple[float, float]
NONE: Interval = (math.nan, math.nan)
RESAMPLES = 4999
LEAST_FOR_BCA = 20


def t_interval(values: Numbers, level: float = 0.95) -> Interval:
    """The mean, plus and minus what Student's t allows."""
    n = len(values)
    if n < 2:
        return NONE
    mean, half = float(values.mean()), t_quantile(0.5 + level / 2, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def bootstrap_t(values: Numbers, seed: int, level: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """Resampled t statistics instead of the t table: allows for skew. Wants five values or more."""
    n = len(values)
    spread = float(values.std(ddof=1)) if n > 1 else 0.0
    if n < 5 or spread == 0.0:
        return NONE
    drawn = values[np.random.default_rng(seed).integers(0, n, (resamples, n))]
    deviations = drawn.std(1, ddof=1)
    fine = deviations > 1e-12 * spread
    t = (drawn[fine].mean(1) - values.mean()) / (deviations[fine] / math.sqrt(n))
    low, high = np.quantile(t, [0.5 - level / 2, 0.5 + level / 2])
    error = spread / math.sqrt(n)
    return float(values.mean() - high * error), float(values.mean() - low * error)


def bca(values: Numbers, seed: int, level: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """Bias-corrected, accelerated bootstrap of the mean (Efron 1987), from twenty values on: at five it covers 84 %."""
    n = len(values)
    if n < LEAST_FOR_BCA or float(values.std()) == 0.0:
        return NONE
    means = values[np.random.default_rng(seed).integers(0, n, (resamples, n))].mean(1)
    below = float(((means < values.mean()) + 0.5 * (means == values.mean())).mean())
    bias = NORMAL.inv_cdf(min(max(below, 1 / (2 * resamples)), 1 - 1 / (2 * resamples)))
    off = values - values.mean()
    acceleration = float((off**3).sum() / (6.0 * ((off**2).sum()) ** 1.5))
    ends = []
    for share in (0.5 - level / 2, 0.5 + level / 2):
        z = bias + NORMAL.inv_cdf(share)
        ends.append(NORMAL.cdf(bias + z / (1.0 - acceleration * z)))
    low, high = np.quantile(means, ends)
    return float(low), float(high)


def iqm(values: Numbers) -> float:
    """The mean of the middle half; values at its edges count in part, so that any number of seeds will do."""
    n = len(values)
    if n == 0:
        return math.nan
    edges = np.arange(n + 1) / n
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return float((np.sort(values) * weights).sum() / weights.sum())


def improvement(own: Numbers, other: Numbers) -> float:
    """The share of seeds in which `own` is above `other`; a tie counts half. Both in the same order of seeds."""
    if len(own) == 0:
        return math.nan
    return float(((own > other) + 0.5 * (own == other)).mean())


def wilson(wins: float, n: int, level: float = 0.95) -> Interval:
    """Wilson's interval for a share."""
    if n == 0:
        return NONE
    z = NORMAL.inv_cdf(0.5 + level / 2)
    share = wins / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
