"""Bringing the loss that went through backward to the scale on which the script prints it.

A loss is divided before backward when gradients are accumulated, and summed over the batch in some models. What the
script prints for validation is neither, so that the two cannot be compared as they stand. The factor is a whole number
then: the micro-batches of a step, or the examples of a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.symptoms import smooth
from clew.symptoms.names import kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clew.records.trace import Series

NEAR = 0.05
SMALL = 1e-30
ALIKE = 1.3
"""How far the middle of both curves may lie apart on top of the factor: they hold different steps of one course."""


def as_printed(seen: Series, printed: Mapping[str, Series]) -> Series:
    """The losses that were seen, times the factor that the script's own figures show, if they show one."""
    factor = whole_factor(seen, printed)
    return seen if factor == 1.0 else seen._replace(values=tuple(value * factor for value in seen.values))


def whole_factor(seen: Series, printed: Mapping[str, Series]) -> float:
    """k or 1/k where a printed training loss is that many times the one that was seen, at the start and throughout;
    otherwise 1."""
    told = [held.values for name, held in printed.items() if (said := kind(name)).loss and not said.held_out]
    return next((factor for values in told if (factor := _between(seen.values, values)) != 1.0), 1.0)


def _between(seen: Sequence[float], told: Sequence[float]) -> float:
    if len(told) < 2 or len(seen) < 2 or not all(SMALL < held < 1 / SMALL for held in (told[0], seen[0])):
        return 1.0
    at_start, throughout = told[0] / seen[0], smooth.median(told) / (smooth.median(seen) or SMALL)
    whole = round(max(at_start, 1 / at_start))
    factor = float(whole) if at_start > 1 else 1.0 / whole
    fits = abs(at_start / factor - 1) < NEAR and 1 / ALIKE < throughout / factor < ALIKE
    return factor if whole > 1 and fits else 1.0
