"""Robust smoothing in plain Python: medians, a noise level that trends do not disturb, ranks instead of sizes.

Losses have spikes and long tails, so nothing here is a mean: one wild step must not decide what a curve looks like.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise

NORMAL = 1.4826  # median absolute deviation of a normal variable, inverted
MEDIAN_COST = 1.25  # the standard error of a median over that of a mean


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the neighbours; the values may be in any order."""
    ranked = sorted(values)
    at = share * (len(ranked) - 1)
    low = int(at)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] * (1 - (at - low)) + ranked[high] * (at - low)


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation as the median absolute deviation sees it."""
    centre = median(values)
    return NORMAL * median([abs(value - centre) for value in values])


def noise(values: Sequence[float]) -> float:
    """The scatter from point to point. Second differences leave no trace of a level or a slope."""
    if len(values) < 4:
        return 0.0
    bends = [values[i - 1] - 2 * values[i] + values[i + 1] for i in range(1, len(values) - 1)]
    return NORMAL * median([abs(bend) for bend in bends]) / 6**0.5


def running_median(values: Sequence[float], width: int) -> list[float]:
    """The median of a window centred on each point, shorter at the ends."""
    half = width // 2
    window = sorted(values[:half])
    found = []
    for at in range(len(values)):
        if at + half < len(values):
            insort(window, values[at + half])
        if at - half > 0:
            del window[bisect_left(window, values[at - half - 1])]
        middle = len(window) // 2
        found.append(window[middle] if len(window) % 2 else 0.5 * window[middle - 1] + 0.5 * window[middle])
    return found


def blocks(values: Sequence[float], count: int) -> list[float]:
    """Medians of `count` neighbouring stretches of about equal length."""
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return [median(values[low:high]) for low, high in pairwise(edges) if high > low]


def rank_trend(values: Sequence[float]) -> float:
    """Kendall's tau with time: 1 when every later value is higher, -1 when every later one is lower."""
    pairs = [(a < b) - (a > b) for i, a in enumerate(values) for b in values[i + 1 :]]
    return sum(pairs) / len(pairs) if pairs else 0.0


def slope(values: Sequence[float]) -> float:
    """The median of all slopes between two points (Theil and Sen), per position."""
    found = [(b - a) / (j - i) for i, a in enumerate(values) for j, b in enumerate(values[i + 1 :], i + 1)]
    return median(found) if found else 0.0


def turns(values: Sequence[float], most: int = 6) -> int:
    """How many series take turns in this one; 1 when it is a single one.

    Two losses trained in turn jump from point to point, while every second point makes a smooth curve.
    """
    whole = noise(values)
    if not values or whole < 0.02 * median([abs(value) for value in values]):
        return 1
    for count in range(2, most + 1):
        parts = [values[start::count] for start in range(count)]
        if len(parts[-1]) < 10:
            break
        if whole > 2.5 * max(noise(part) for part in parts):
            return count
    return 1
