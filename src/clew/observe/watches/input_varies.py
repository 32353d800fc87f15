"""Do the inputs of a batch differ from one another?

Why it matters: equal inputs allow nothing but the frequencies of the labels to be learned.
Cannot tell: inputs that vary and still carry nothing, such as noise.
Silent when: there is one example or one feature per row, as in probe environments and bandits, when a call has an input
of that kind beside others, when any batch of the loader or of the model varies, and when the model is also called on
what was computed from parameters, as at the later steps of a simulation that begins alike for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Batch, Forward
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import parts
from clew.observe.watches._data_values import table
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_values import Floats
    from clew.records.place import Place

ROWS = 256
FEWEST = 8


class Stage(NamedTuple):
    """Where inputs were looked at, and how much they varied at most."""

    place: Place | None
    spread: float
    rows: int
    means: tuple[Floats, ...]


class InputVaries(FedWatch):
    test = "input_varies"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.loaders: dict[int, Stage] = {}
        self.models: dict[int, Stage] = {}
        self.unread: set[int] = set()  # models that were given what depends on parameters, too

    def batch(self, event: Batch) -> None:
        super().batch(event)
        if event.sampled:
            inputs, _ = parts(event.value, event.tensors)
            self._look(self.loaders, event.loader, inputs, event.place)

    def forward(self, event: Forward) -> None:
        super().forward(event)
        inputs = list(tensors_in(event.inputs, torch))
        # What may vary and is no table, such as the one token of a step beside a state of zeros, leaves nothing to say.
        if event.grad and all(tensor.grad_fn is None and _is_table(tensor) for tensor in inputs):
            self._look(self.models, event.model, inputs, event.place)
        elif event.grad and any(map(_is_table, inputs)):
            self.unread.add(event.model)

    def _look(self, stages: dict[int, Stage], number: int, inputs: list[torch.Tensor], place: Place | None) -> None:
        held = stages.get(number)
        if held is not None and held.spread > 1e-3:
            return
        tables = [
            values
            for tensor in inputs
            if _is_table(tensor)
            for values in [table(tensor, ROWS)]
            if values is not None and np.isfinite(values).mean() > 0.5  # what is not finite has a watch of its own
        ]
        if not tables:
            return
        means = tuple(values.mean(0) for values in tables)
        before = held.means if held is not None else means
        spread = max(_spread(*pair) for pair in zip(tables, before, strict=False))
        rows = len(tables[0])
        if held is None:
            stages[number] = Stage(place, spread, rows, means)
        else:
            stages[number] = held._replace(spread=max(spread, held.spread), rows=held.rows + rows)

    def read(self) -> Answer:
        found: dict[str, Stage] = {}
        for number, stage in self.loaders.items():
            loader = self.feed.loaders.get(number)
            if loader is not None and loader.trained:
                found[f"batches of loader {number}"] = stage
        first = min(self.models, default=None)
        if first is not None and first not in self.unread:
            found["inputs of the model"] = self.models[first]
        found = {name: stage for name, stage in found.items() if stage.rows >= FEWEST}
        if not found:
            return Unclear("no training batch of several examples with several features was seen")
        name, least = min(found.items(), key=lambda item: item[1].spread)
        measured: dict[str, Any] = {"spread_between_examples": least.spread, "examples": least.rows, "seen_in": name}
        reading = Reading(**measured)
        return reading if least.place is None else reading.at(least.place)


def _is_table(tensor: torch.Tensor) -> bool:
    """Several examples with several features."""
    return tensor.dim() > 0 and tensor.shape[0] >= 2 and tensor.numel() >= 2 * tensor.shape[0]


def _spread(values: Floats, before: Floats) -> float:
    values = np.nan_to_num(values, nan=0.0, posinf=1e30, neginf=-1e30)
    scale = float(np.sqrt((values**2).mean()))
    if scale == 0.0:
        return 0.0
    between = float(values.std(0).max())
    if before.shape == values.shape[1:]:
        between = max(between, float(np.abs(np.nan_to_num(values.mean(0) - before)).max()))
    return between / scale
