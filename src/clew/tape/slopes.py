"""Slopes by centred differences, and when to believe them.

A difference is taken for the slope only where two step sizes agree on it, both sides have the same one, and it stands
well above what rounding leaves of it. That leaves out kinks, jumps and flat places that are not quite flat.
"""

from __future__ import annotations

from collections.abc import Callable

STEP = 1e-5
STEADY = 1e-5
"""How well two step sizes must agree for a difference to be taken for the slope."""
KINK = 1e-3
"""How far the slopes to both sides may differ."""
ROUNDING = 2.220446049250313e-16


def slope(value: Callable[[float], float], at: float, scale: float) -> float | None:
    """The slope of `value`, a function of the shift from `at`; None where a difference does not tell. `scale` is the
    size of the numbers that are added up on the way to a value."""
    step = STEP * max(1.0, abs(at))
    right, middle, left = value(step), value(0.0), value(-step)
    wide = (right - left) / (2 * step)
    narrow = (value(step / 4) - value(-step / 4)) / (step / 2)
    size = max(abs(wide), abs(narrow))
    # Rounding of the value, over the step, is what a difference cannot resolve.
    floor = 8 * ROUNDING * scale / step
    # Exactly at a kink, as behind a branch that starts at zero, only the slopes of the two sides differ.
    if abs(right - 2 * middle + left) / step > KINK * size + 4 * floor:
        return None
    agree = abs(wide - narrow) <= STEADY * size + 4 * floor
    clear = size > 1e4 * floor or (wide == 0 and narrow == 0)
    return wide if agree and clear else None


def relative_error(one: float, other: float) -> float:
    """Zero when both are."""
    largest = max(abs(one), abs(other))
    return abs(one - other) / largest if largest else 0.0
