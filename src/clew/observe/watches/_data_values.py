"""Reading the values of inputs: a bounded part of a tensor as numbers, and moments by column or channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.rows import array_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

VALUES = 100_000
CHANNELS = 512


def float_tensors(inputs: Any) -> Iterator[torch.Tensor]:
    """The float tensors among a model's inputs that have examples: masks, ids and single numbers are left out."""
    for tensor in tensors_in(inputs, torch):
        if tensor.is_floating_point() and tensor.dim() >= 2 and tensor.numel():
            yield tensor


def table(tensor: torch.Tensor, rows: int = 1024) -> Floats | None:
    """Examples by features, thinned out to a bounded number of values, as float64."""
    found = array_of(tensor[:: -(-tensor.shape[0] // rows)], rows)
    if found is None or found.dtype.kind not in "fiub":
        return None
    thin = -(-found.size // VALUES)
    if thin > 1 and found.shape[1] >= thin:
        found = found[:, ::thin]
    return found.astype(np.float64)


def channels_first(tensor: torch.Tensor) -> torch.Tensor:
    """Examples × channels × the rest. Tables have their columns as channels, images their colours."""
    held = tensor.detach()
    if held.dim() == 2:
        return held.unsqueeze(-1)
    if held.dim() >= 4:
        return (held if held.shape[1] <= 16 or held.shape[-1] > 16 else held.movedim(-1, 1)).flatten(2)
    return held if held.shape[1] <= held.shape[2] else held.movedim(2, 1)


def by_channel(tensor: torch.Tensor, rows: int = 512) -> Floats | None:
    """Some examples × channels × the rest as numbers, the rest thinned out; None for too many channels."""
    with torch.no_grad():
        held = channels_first(tensor)[:: -(-tensor.shape[0] // rows)]  # the first rows of a grid are not typical
        thin = -(-held.numel() // VALUES)
        if thin > 1 and held.shape[2] > 1:
            held = held[:, :, :: min(thin, held.shape[2])]
        if held.shape[1] > CHANNELS:
            return None
        count, channels = held.shape[0], held.shape[1]
        found = array_of(held.reshape(count, -1), rows)
    if found is None or found.dtype.kind not in "fiub" or found.shape[1] % channels:
        return None
    return found.astype(np.float64).reshape(count, channels, -1)


class Moments(NamedTuple):
    """Mean, deviation and the standard errors of both, by channel; the errors count examples, not values."""

    mean: Floats
    std: Floats
    mean_error: Floats
    std_error: Floats
    examples: int


class Accumulator:
    """Gathers moments over many batches without keeping them. All sums are about one fixed shift, for precision."""

    def __init__(self, shift: Floats) -> None:
        self.shift = shift
        self.sums: Floats = np.zeros((4, len(shift)))  # of example means, their squares, mean squares, their squares
        self.examples = 0
        self.batches = 0

    def add(self, other: Accumulator) -> None:
        """Take in another one with the same shift."""
        self.sums = self.sums + other.sums
        self.examples += other.examples
        self.batches += other.batches

    def moments(self, at_most: int | None = None) -> Moments | None:
        """`at_most` is how many different examples there are, when the same ones came back."""
        count = self.examples
        if count < 2:
            return None
        first, first2, second, second2 = self.sums / count
        variance = np.maximum(second - first**2, 0.0)
        std = np.sqrt(variance)
        different = max(2, min(count, at_most or count))
        spread = np.sqrt(np.maximum(first2 - first**2, 0.0) / (different - 1))
        spread2 = np.sqrt(np.maximum(second2 - second**2, 0.0) / (different - 1))
        error = np.divide(spread2, 2 * std, out=np.zeros_like(std), where=std > 0)
        return Moments(self.shift + first, std, spread, error, count)


def accumulated(values: Floats, shift: Floats) -> Accumulator | None:
    """The sums of one batch of examples × channels × rest; None when it does not fit the shift."""
    values = values[np.isfinite(values).all(axis=(1, 2))]
    if not len(values) or values.shape[1] != len(shift):
        return None
    centred = values - shift[None, :, None]
    first, second = centred.mean(axis=2), (centred**2).mean(axis=2)
    found = Accumulator(shift)
    found.sums = np.stack([first.sum(0), (first**2).sum(0), second.sum(0), (second**2).sum(0)])
    found.examples, found.batches = len(values), 1
    return found
