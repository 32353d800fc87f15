"""Are the inputs on a scale that networks like?

Why it matters: default initial weights count on inputs of order one; raw pixels or prices make the first layer's
activations and gradients hundreds of times too large.
Cannot tell: one bad column among many good ones unless it dominates the sum.
Silent when: inputs are token numbers, when the model normalises them before its first layer, and when they come out
of another model. Rows of shares that sum to about one, such as words by their frequency, count as of order one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from clew.observe.envs import experience_of
from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, Judged, ModuleCall, Watch
from clew.observe.watches._data_values import float_tensors, table
from clew.observe.watches._rl_lines import observation_lines
from clew.records.clue import Reading, Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_values import Floats
    from clew.records.place import Place

NORMS = (
    torch.nn.modules.batchnorm._NormBase,
    torch.nn.LayerNorm,
    torch.nn.GroupNorm,
    *([torch.nn.RMSNorm] if hasattr(torch.nn, "RMSNorm") else []),
)
COLUMNS = 512
LARGE = 10.0
MANY, ROWS = 20, 64


class Scale:
    """Sums of squares, in all and by column where the input is a table."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.count = 0
        self.squares = 0.0
        self.rows = 0
        self.columns: Floats | None = None
        self.shares = True  # so far every row

    def add(self, values: Floats, tabular: bool, shares: bool) -> None:
        squares = np.where(np.isfinite(values), values, 0.0) ** 2
        self.count += values.size
        self.squares += float(squares.sum())
        self.shares = self.shares and shares
        if tabular and (self.columns is None or len(self.columns) == values.shape[1] <= COLUMNS):
            sums = squares.sum(0)
            self.columns = sums if self.columns is None else self.columns + sums
            self.rows += len(values)

    @property
    def rms(self) -> float:
        if self.shares:
            return 1.0
        return float(np.sqrt(self.squares / self.count))


class InputScale(Watch):
    test = "input_scale"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.first: dict[int, tuple[Floats, bool, bool] | None] = {}
        self.embedded: set[int] = set()
        self.scales: dict[int, Scale] = {}
        self.trained: set[int] = set()

    def module(self, event: ModuleCall) -> None:
        """Keep what enters the first layer that has weights of its own; a leading normalisation counts as done."""
        held = self.first.get(event.model)
        known = event.model in self.first and (held is None or held[0].any())  # a series may begin with a blank
        if event.evaluation or known or next(event.module.children(), None) is not None:
            return
        if next(event.module.parameters(recurse=False), None) is None:
            if isinstance(event.module, NORMS):
                self.first[event.model] = self._values((event.output,))
            return
        if isinstance(event.module, torch.nn.Embedding | torch.nn.EmbeddingBag):
            self.embedded.add(event.model)
            return
        normalised = isinstance(event.module, NORMS)
        self.first[event.model] = self._values((event.output,) if normalised else event.inputs)

    def _values(self, inputs: Any) -> tuple[Floats, bool, bool] | None:
        tensor = next(iter(float_tensors(inputs)), None)
        if tensor is None:
            return None
        values = table(tensor)
        if values is None:
            return None
        return values, tensor.dim() == 2 and values.shape[1] == tensor.shape[1], _shares(tensor)

    def forward(self, event: Forward) -> None:
        held = self.first.pop(event.model, None)
        embedded = event.model in self.embedded
        self.embedded.discard(event.model)
        if not event.grad or event.evaluation:
            return
        inputs = list(float_tensors(event.inputs))
        if any(tensor.grad_fn is not None for tensor in inputs):
            return
        if not inputs and (embedded or next(tensors_in(event.inputs, torch), None) is not None):
            return
        held = held or self._values(inputs)
        if held is not None:
            self.scales.setdefault(event.model, Scale(event.place)).add(*held)

    def judged(self, event: Judged) -> None:
        if event.backward:
            self.trained.add(event.model)

    def read(self) -> Answer:
        """Of the models that something was trained through: a part may be asked for by itself, with gradients on."""
        known = [model for model in self.scales if model in self.trained] or list(self.scales)
        scales = [self.scales[model] for model in known if self.scales[model].count]
        if not scales:
            return Unclear("no float input was seen entering a model in training")
        worst = max(scales, key=lambda scale: abs(np.log10(max(scale.rms, 1e-30))))
        reading = Reading(rms=worst.rms, values=worst.count, **_columns(worst))
        places = (worst.place, *self._made_by_an_environment(worst))
        return reading.at(*(place for place in places if place is not None))

    def _made_by_an_environment(self, worst: Scale) -> list[Place]:
        """The lines in which an environment of the script's makes up observations as large."""
        course = experience_of(self.recorder).episodes.main(self.recorder.step) if worst.rms > LARGE else None
        return observation_lines(None if course is None else course.kind)


def _shares(tensor: torch.Tensor) -> bool:
    """Whether rows are parts of a whole: many numbers, none negative, that sum to about one."""
    if tensor.dim() != 2 or tensor.shape[1] < MANY:
        return False
    rows = tensor.detach()[:ROWS].double()
    sums = rows.sum(1)
    return bool((rows >= 0).all() and sums.quantile(0.1) > 0.3 and sums.quantile(0.9) < 3.0)


def _columns(scale: Scale) -> dict[str, Any]:
    """The columns that stand out, where the inputs are a table."""
    if scale.columns is None or len(scale.columns) < 2 or not scale.rows:
        return {}
    by_column = np.sqrt(scale.columns / scale.rows)
    largest = np.argsort(-by_column)[:8]
    typical = float(np.median(by_column))
    wild = [int(number) for number in largest if by_column[number] > max(10.0, 10 * typical)]
    return {
        "columns": len(by_column),
        "largest_column": int(largest[0]),
        "largest_column_rms": float(by_column.max()),
        "typical_column_rms": typical,
        **({"wild_columns": ", ".join(map(str, sorted(wild)))} if wild else {}),
    }
