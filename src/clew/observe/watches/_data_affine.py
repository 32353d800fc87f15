"""What the script does to inputs between the loader and the model, where that is one factor and offset per channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from clew.observe.watches._data_values import Floats, Moments

EXAMPLES = 64


class Map(NamedTuple):
    factor: Floats
    offset: Floats


def mapped(given: Floats, entered: Floats) -> Map | None:
    """Factor and offset per channel that turn the one into the other to rounding; None when no such pair does."""
    x = np.moveaxis(given, 1, 0).reshape(given.shape[1], -1)
    y = np.moveaxis(entered, 1, 0).reshape(given.shape[1], -1)
    centre, target = x.mean(1), y.mean(1)
    variance = ((x - centre[:, None]) ** 2).mean(1)
    if not (variance > 0).all():
        return None
    factor = ((x - centre[:, None]) * (y - target[:, None])).mean(1) / variance
    offset = target - factor * centre
    rest = y - factor[:, None] * x - offset[:, None]
    size = np.sqrt((y**2).mean(1)) + 1e-12
    if (np.abs(rest).max(1) > 1e-3 * size).any() or (factor == 0).any():
        return None
    return Map(factor, offset)


def standardised_again(loaded: Moments, maps: list[Map], before: bool) -> str:
    """Whether inputs that were standardised before, or are on the way, are so once more; a sentence or nothing."""
    if len(maps) < 2 or loaded.examples < EXAMPLES:
        return ""
    factor, offset = maps[0]
    if any(len(other.factor) != len(factor) for other in maps):
        return ""
    steady = all(
        np.allclose(other.factor, factor, rtol=1e-2) and np.allclose(other.offset, offset, rtol=1e-2, atol=1e-3)
        for other in maps
    )
    if not steady or (factor < 0).any():
        return ""
    mean, std = loaded.mean, loaded.std
    moves = (np.abs(offset) > 0.3) | (factor > 1.4) | (factor < 0.7)
    already = (np.abs(mean) < 0.2 + 4 * loaded.mean_error) & (np.abs(std - 1) < 0.15 + 4 * loaded.std_error)
    if before and already.all() and moves.mean() > 0.5:
        return (
            f"the loader's inputs are already standardised, and are scaled by {_typical(factor):.3g} and "
            f"shifted by {_typical(offset):.3g} again before the model"
        )
    scale = 1 / np.sqrt(factor)
    centre = -offset / (factor + np.sqrt(factor))
    twice = (np.abs(scale - std) < 0.1 * std) & (np.abs(centre - mean) < 0.1 * std + 4 * loaded.mean_error)
    telling = (np.abs(np.log(std)) > 0.2) & (np.abs(mean) > 0.3 * std)
    if twice.all() and telling.mean() > 0.5:
        return (
            f"between loader and model the inputs are scaled by {_typical(factor):.3g}, the square of what "
            f"their standard deviation {_typical(std):.3g} requires: normalisation is applied twice"
        )
    return ""


def _typical(values: Floats) -> float:
    return float(np.median(values))
