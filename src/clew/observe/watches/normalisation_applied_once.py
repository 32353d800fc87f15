"""Is the input normalised exactly once, with fixed statistics?

Why it matters: a second division leaves the input dark or far off centre; statistics of the batch make an example's
input depend on its neighbours, and a batch of one comes out as zeros.
Cannot tell: whether fixed statistics are the right ones; a second standardisation inside the data set whose constants
are neither well known nor visible between loader and model.
Silent when: every example is normalised by itself, as in audio, or the batch is the whole data set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Batch, Forward, Saw
from clew.observe.watches._data_affine import Map, mapped, standardised_again
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import parts
from clew.observe.watches._data_normal import Extremes, standard_set, standardised_by_batch, twice_by_range, wider
from clew.observe.watches._data_values import Accumulator, accumulated, by_channel, float_tensors
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_values import Floats
    from clew.records.place import Place

FEWEST = 3
SETTLED = 2  # by then it is known which loader is trained on
WHOLE = 5_000_000


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
            self.extremes = wider(self.extremes, values)
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
            if first.is_floating_point() and first.dim() >= 2 and first.numel() <= WHOLE and standard_set(first):
                return True
        return loader is not None and LEDGER.scaled(np.fromiter(loader.rows, np.int64))

    def read(self) -> Answer:
        if not self.looked:
            return Unclear("no float input was seen entering a model in training")
        flags = list(self.standardised.values())
        if len(flags) >= FEWEST and all(flags):
            text = (
                f"each of {len(flags)} different batches enters the model with mean 0 and standard deviation 1 to "
                "rounding: it is normalised by its own statistics"
            )
            return Saw("per_batch", batches=len(flags)).at(self.place).saying(text)
        known = twice_by_range(self.extremes)
        if known:
            return Saw("twice", images=self.extremes.examples if self.extremes else 0).at(self.place).saying(known)
        moments = self.loaded.moments() if self.loaded else None
        again = standardised_again(moments, self.maps, self.before) if moments else ""
        if again:
            return Saw("twice", batches=len(self.maps)).at(self.place).saying(again)
        return Saw("once", batches=self.looked).at(self.place)
