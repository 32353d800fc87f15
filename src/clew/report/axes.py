"""Axes of a plot: which stretch of numbers is shown, on which scale, and where the ticks stand.

Any finite float is a legal value here, from 5e-324 to 1.8e308 and of either sign: a diverging run produces them.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

MOST_TICKS, MOST_STEP_TICKS = 7, 5
LEAST_LOG_RATIO = 3.0
AUTO_LOG_RATIO = 30.0
"""Beyond this ratio of largest to smallest, a linear axis shows little but the largest."""
FLAT = 1e-4
"""Relative changes smaller than this are drawn flat: the axis does not blow rounding noise up to a mountain range."""
ZERO_ROW = 14.0
"""Pixels at the foot of a logarithmic axis for values that are exactly zero."""
TINY, HUGE = 1e-290, 1.6e308
"""Differences below the one are nothing to draw; beyond the other there is no room left to widen a range."""


class Tick(NamedTuple):
    """`at` is in pixels from the low end of the axis."""

    value: float
    at: float
    label: str


class Axis(NamedTuple):
    """From `low` to `high`, which are exponents of ten on a logarithmic axis."""

    low: float
    high: float
    log: bool
    size: float
    zero_row: float = 0.0
    ticks: tuple[Tick, ...] = ()

    def at(self, value: float) -> float:
        """Pixels from the low end; always on the axis."""
        if self.log and value <= 0.0:
            return 0.0
        held = math.log10(value) if self.log else value
        # Halves, because the whole of a range from -1e308 to 1e308 is no finite number.
        share = (held / 2 - self.low / 2) / (self.high / 2 - self.low / 2)
        return self.zero_row + min(max(share, 0.0), 1.0) * (self.size - self.zero_row)


def value_axis(values: Iterable[float], size: float, scale: str = "auto", zone: tuple[float, ...] = ()) -> Axis:
    """An axis for these finite values. `scale` is "auto", "log" (where that is possible), or "share" (0 to 1, linear);
    `zone` are further values that the axis must reach."""
    held = list(values)
    low, high = min(held, default=0.0), max(held, default=1.0)
    positive = [value for value in held if value > 0.0]
    if positive and low >= 0.0 and scale != "share":
        least = min([*positive, *zone]) if scale == "log" else min(positive)
        most = max([*positive, *zone]) if scale == "log" else high
        wanted = LEAST_LOG_RATIO if scale == "log" else AUTO_LOG_RATIO
        if (scale == "log" or low > 0.0) and most / wanted >= least:
            return _log_axis(least, most, size, ZERO_ROW if low == 0.0 else 0.0)
    low, high = min([low, *zone]), max([high, *zone])
    if scale == "share":
        low, high = min(low, 0.0), max(high, 1.0)
    else:
        low, high = _widened(low, high)
    axis = Axis(low, high, False, size)
    return axis._replace(ticks=_linear_ticks(axis))


class StepAxis(NamedTuple):
    """Steps from first to last. Whole numbers all through: a step may be a clock in nanoseconds."""

    first: int
    last: int
    size: float
    ticks: tuple[Tick, ...] = ()

    def at(self, step: int) -> float:
        return self.size * ((step - self.first) / (self.last - self.first))


def step_axis(first: int, last: int, size: float) -> StepAxis:
    axis = StepAxis(first, last, size)
    step = int(_round_number(max((last - first) / MOST_STEP_TICKS, 1.0)))
    found = range(-(-first // step) * step, last + 1, step)
    return axis._replace(
        ticks=tuple(Tick(value, axis.at(value), label) for value, label in zip(found, _step_labels(found), strict=True))
    )


def _step_labels(steps: range) -> list[str]:
    if all(abs(step) < 1e7 for step in steps):
        return [f"{step:,}" for step in steps]
    for digits in (1, 2, 3, 4, 6, 9):
        labels = [_power(step, digits - 1) if step else "0" for step in steps]
        if len(set(labels)) == len(labels):
            return labels
    return [str(step) for step in steps]


def _round_number(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is not below this."""
    base = float(f"1e{math.floor(math.log10(least))}")
    return next(m * base for m in (1, 2, 5, 10) if m * base >= least * (1 - 1e-9))


def _widened(low: float, high: float) -> tuple[float, float]:
    """A little air at both ends, and a range even where there is a single value."""
    low, high = max(min(low, HUGE), -HUGE), max(min(high, HUGE), -HUGE)
    size = max(abs(low), abs(high))
    if size < TINY:
        return (-1.0, 1.0)
    if low == high:
        air = 0.1 * size
    else:
        air = max(0.04 * (high / 2 - low / 2) * 2, FLAT * size - (high / 2 - low / 2))
    return (low - air, high + air)


def _log_axis(least: float, most: float, size: float, zero_row: float) -> Axis:
    low, high = math.log10(least), math.log10(most)
    air = 0.04 * (high - low)
    axis = Axis(low - air, high + air, True, size, zero_row)
    ticks = _log_ticks(axis)
    zero = (Tick(0.0, 0.0, "0"),) if zero_row else ()
    return axis._replace(ticks=zero + ticks)


def _log_ticks(axis: Axis) -> tuple[Tick, ...]:
    first, last = max(math.ceil(axis.low), -323), min(math.floor(axis.high), 308)
    stride = max(1, math.ceil((last - first + 1) / MOST_TICKS))
    powers = [power for power in range(first, last + 1) if power % stride == 0]
    values = [float(f"1e{power}") for power in powers]
    if len(values) < 3:
        # Parsed rather than multiplied, so that 2e-05 is the nearest float and its label is short.
        found = [float(f"{m}e{power}") for power in range(first - 1, last + 1) for m in (1, 2, 5)]
        values = [value for value in found if value > 0.0 and axis.low <= math.log10(value) <= axis.high]
    if len(values) < 2:
        return _linear_ticks(axis)
    return tuple(Tick(value, axis.at(value), label) for value, label in zip(values, short(*values), strict=True))


def short(*values: float) -> list[str]:
    """Round numbers as an engineer writes them, all in one style: 0.01 and 10, or 1e-5 and 1e-2."""
    plain = all(1e-3 <= abs(value) < 1e5 for value in values)
    return [f"{value:g}" if plain or value in (1.0, 10.0) else _power(value) for value in values]


def _linear_ticks(axis: Axis) -> tuple[Tick, ...]:
    low, high = (10.0**axis.low, 10.0**axis.high) if axis.log else (axis.low, axis.high)
    step = _round_number(high / MOST_TICKS - low / MOST_TICKS)
    power = math.floor(math.log10(step) + 1e-9)
    marks = [number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    values = sorted({value for value in marks if low <= value <= high})
    plain = power >= -4 and all(abs(value) < 1e6 for value in values)
    return tuple(Tick(value, axis.at(value), _label(value, power, plain)) for value in values)


def _label(value: float, power: int, plain: bool) -> str:
    """As many digits as tell neighbouring ticks apart."""
    if value == 0.0:
        return "0"
    if plain:
        return f"{value:.{max(0, -power)}f}"
    digits = max(0, math.floor(math.log10(abs(value)) + 1e-9) - power)
    return _power(value, digits)


def _power(value: float, digits: int = 0) -> str:
    mantissa, power = f"{value:.{digits}e}".split("e")
    return f"{mantissa}e{int(power)}"
