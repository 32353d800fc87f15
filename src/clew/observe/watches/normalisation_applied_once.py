"""Is the input normalised exactly once, with fixed statistics?

Why it matters: a second division leaves the input dark or far off centre; statistics of the batch make an example's
input depend on its neighbours, and a batch of one comes out as zeros.
Cannot tell: whether fixed statistics are the right ones; a second standardisation inside the data set whose constants
are neither well known nor visible between loader and model.
Silent when: every example is normalised by itself, as in audio, or the batch is the whole data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from clew.observe import provenance
from clew.observe.watch import Answer, Batch, Forward, Saw
from clew.observe.watches._data_affine import Map, mapped, standardised_again
from clew.observe.watches._data_feed import FedWatch, parts
from clew.observe.watches._data_values import Accumulator, accumulated, by_channel, channels_first, float_tensors
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_values import Floats
    from clew.records.place import Place

FEWEST = 3
SETTLED = 2  # by then it is known which loader is trained on
WHOLE = 5_000_000
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


class NormalisationAppliedOnce(FedWatch):
    test = "normalisation_applied_once"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.place: Place | None = None
        self.given: Floats | None = None
        self.loaded: Accumulator | None = None
        self.maps: list[Map] = []
        self.before = False  # whether the loader's rows were standardised by somebody
        self.looked = 0
        self.standardised: dict[int, bool] = {}
        self.extremes: Extremes | None = None

    def batch(self, event: Batch) -> None:
        super().batch(event)
        self.given = None
        if not event.sampled:
            return
        inputs, _ = parts(event.value, event.tensors)
        first = next((tensor for tensor in inputs if tensor.dim() >= 2 and tensor.numel()), None)
        if first is None or first.is_complex():
            return
        self.given = by_channel(first, 128)

    def forward(self, event: Forward) -> None:
        super().forward(event)
        tensor = next(float_tensors(event.inputs), None)
        given, self.given = self.given, None
        if tensor is None or tensor.grad_fn is not None or not event.grad or self.looked >= 256:
            return
        values = by_channel(tensor, 128)
        if values is None or not np.isfinite(values).all():
            return
        self.looked += 1
        self.place = self.place or event.place
        if len(values) >= 4 and tensor.numel() <= WHOLE and len(self.standardised) < 64:
            self.standardised[hash(values.tobytes())] = standardised_by_batch(tensor)
        if tensor.dim() >= 3:
            self.extremes = _wider(self.extremes, values)
        if given is not None and given.shape == values.shape:
            sums = accumulated(given, given.mean(axis=(0, 2)) if self.loaded is None else self.loaded.shift)
            if sums is not None:
                self.loaded = self.loaded or Accumulator(sums.shift)
                self.loaded.add(sums)
            found = mapped(given, values)
            if found is not None and len(self.maps) < 32:
                self.maps.append(found)
                if len(self.maps) == SETTLED:
                    self.before = self._standardised_before()

    def _standardised_before(self) -> bool:
        """Whether somebody standardised what the loader gives: its columns are exact, or a scaler made its rows."""
        loader = self.feed.loaders.get(self.feed.training) if self.feed.training is not None else None
        dataset = loader.source.dataset() if loader is not None and loader.source.dataset else None
        if isinstance(dataset, torch.utils.data.TensorDataset):
            first = dataset.tensors[0]
            if first.is_floating_point() and first.dim() >= 2 and first.numel() <= WHOLE and _standard_set(first):
                return True
        return loader is not None and provenance.LEDGER.scaled(np.fromiter(loader.rows, np.int64))

    def read(self) -> Answer:
        if not self.looked:
            return Unclear("no float input was seen entering a model in training")
        flags = list(self.standardised.values())
        if len(flags) >= FEWEST and all(flags):
            text = f"each of {len(flags)} different batches enters the model with mean 0 and deviation 1 to rounding"
            return Saw("per_batch", batches=len(flags)).at(self.place).saying(text)
        known = twice_by_range(self.extremes)
        if known:
            return Saw("twice", images=self.extremes.examples if self.extremes else 0).at(self.place).saying(known)
        moments = self.loaded.moments() if self.loaded else None
        again = standardised_again(moments, self.maps, self.before) if moments else ""
        if again:
            return Saw("twice", batches=len(self.maps)).at(self.place).saying(again)
        return Saw("once", batches=self.looked).at(self.place)


def standardised_by_batch(tensor: torch.Tensor) -> bool:
    """Whether an input has mean 0 and deviation 1 over the batch, by channel or in all, but not example by example."""
    with torch.no_grad():
        held = channels_first(tensor).float()
        alone = held.flatten(1).mean(1).abs() if held.shape[2] == 1 else held.mean(2).abs()
        if held[0].numel() > 1 and float(alone.max()) < 1e-3:
            return False
        return any(_standard(held, axes) for axes in ((0, 2), (0, 1, 2)))


def _standard_set(tensor: torch.Tensor) -> bool:
    with torch.no_grad():
        return _standard(channels_first(tensor).float(), (0, 2))


def _standard(held: torch.Tensor, axes: tuple[int, ...]) -> bool:
    variance, mean = torch.var_mean(held, dim=axes, unbiased=False)
    count = held.numel() // max(1, mean.numel())
    std = variance.sqrt()
    lively = std > 1e-3
    exact = ((std - 1).abs() < 1e-3) | ((std * (count / (count - 1)) ** 0.5 - 1).abs() < 1e-3)
    return bool(lively.any() & (exact | ~lively).all() & (mean.abs() < 1e-3).all())


def _wider(held: Extremes | None, values: Floats) -> Extremes | None:
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
                f"images span {held.low.min():.2f} to {held.high.max():.2f}: what black and white become when "
                f"the constants of {name} are applied twice"
            )
    return ""
