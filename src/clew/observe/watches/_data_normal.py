"""Signs of a normalisation in the values themselves: exact means and deviations, and the range of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from clew.observe.watches._data_values import channels_first

if TYPE_CHECKING:
    from clew.observe.watches._data_values import Floats

IMAGES = 16
KNOWN = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-10 as often copied": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "CIFAR-100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "MNIST": ((0.1307,), (0.3081,)),
    "Fashion-MNIST": ((0.2860,), (0.3530,)),
    "0.5 and 0.5": ((0.5,), (0.5,)),
}


class Extremes(NamedTuple):
    """The range of image inputs by channel."""

    low: Floats
    high: Floats
    examples: int
    on_grid: bool  # every value is a multiple of 1 / 255**2


def standardised_by_batch(tensor: torch.Tensor) -> bool:
    """Whether an input has mean 0 and deviation 1 over the batch, by channel or in all, but not example by example."""
    with torch.no_grad():
        held = channels_first(tensor).float()
        alone = held.flatten(1).mean(1).abs() if held.shape[2] == 1 else held.mean(2).abs()
        if held[0].numel() > 1 and float(alone.max()) < 1e-3:
            return False
        return any(_standard(held, axes) for axes in ((0, 2), (0, 1, 2)))


def standard_set(tensor: torch.Tensor) -> bool:
    with torch.no_grad():
        return _standard(channels_first(tensor).float(), (0, 2))


def _standard(held: torch.Tensor, axes: tuple[int, ...]) -> bool:
    variance, mean = torch.var_mean(held, dim=axes, unbiased=False)
    count = held.numel() // max(1, mean.numel())
    std = variance.sqrt()
    lively = std > 1e-3
    exact = ((std - 1).abs() < 1e-3) | ((std * (count / (count - 1)) ** 0.5 - 1).abs() < 1e-3)
    return bool(lively.any() & (exact | ~lively).all() & (mean.abs() < 1e-3).all())


def wider(held: Extremes | None, values: Floats) -> Extremes | None:
    low, high = values.min(axis=(0, 2)), values.max(axis=(0, 2))
    steps = values[:, :, :64] * 65025
    on_grid = bool(np.abs(steps - np.rint(steps)).max() < 0.02)
    if held is None:
        return Extremes(low, high, len(values), on_grid)
    if len(held.low) != len(low):
        return held
    return Extremes(
        np.minimum(low, held.low), np.maximum(high, held.high), held.examples + len(values), held.on_grid and on_grid
    )


def twice_by_range(held: Extremes | None) -> str:
    """The range that black and white take after a second, identical normalisation."""
    if held is None or held.examples < IMAGES or len(held.low) not in (1, 3):
        return ""
    white = held.high.max() * 255
    if held.low.min() >= 0 and held.on_grid and 0.5 < white < 1.001:
        return f"images span 0 to {held.high.max():.4f} in steps of 1/65025: they were divided by 255 twice"
    for name, (mean, std) in KNOWN.items():
        m, s = np.asarray(mean), np.asarray(std)
        if len(m) not in (1, len(held.low)):
            continue
        low, high = -m / s**2 - m / s, (1 - m) / s**2 - m / s
        room = 0.01 * (high - low)
        if (np.abs(held.low - low) < room).all() and (np.abs(held.high - high) < room).all():
            return (
                f"images span {held.low.min():.2f} to {held.high.max():.2f}, which is what the constants of "
                f"{name} give when applied twice"
            )
    return ""
