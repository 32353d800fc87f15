"""Are inputs made of targets of later rows?

Rows that a loader gives in the order in which they are stored, that it shuffles but that its data set keeps as tables,
or that a model sees all at once, are taken together with their targets. A column that is an exact weighted sum of the
target in the rows around it tells by its weights which rows these are.

Why it matters: a lag that was shifted the other way, or a window around the row, is not known when the prediction is
needed. The score on held-out rows is as wrong as that on training rows.
Cannot tell: columns made of other things than the target; rows that are not stored in the order of time, or newest
first.
Silent when: earlier rows explain the column as well, the weights have both signs (differences and simulated steps) and
are not those of a filter that runs forward and backward over an earlier row, a single column equals the target of its
own row (`target_in_input` asks that), or rows of both sides are given alike, as where gaps are filled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Batch, Forward, LossCall, Saw, Watch
from clew.observe.watches._data_filter import Made, made_of
from clew.observe.watches._data_given import parts
from clew.observe.watches._data_source import source_of, stored_pair
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

SETS = 4
FEWEST, MOST = 64, 2048
COLUMNS = 192
WINDOW = 3  # taps from which on a sum counts as a window


class Rows:
    """Rows in their order, until there are enough."""

    def __init__(self, place: Place | None) -> None:
        self.place = place
        self.inputs: list[NDArray[np.float64]] = []
        self.targets: list[NDArray[np.float64]] = []
        self.count = 0
        self.whole = False  # all that there are were taken at once
        self.judged: list[Made] | None = None

    def add(self, inputs: torch.Tensor, target: torch.Tensor) -> None:
        self.inputs.append(_columns(inputs))
        self.targets.append(target.detach().reshape(len(target), -1)[:, -1].double().numpy().copy())
        self.count += len(target)
        self.judged = None

    def made(self) -> list[Made]:
        if self.judged is None:
            columns, target = np.concatenate(self.inputs)[:MOST], np.concatenate(self.targets)[:MOST]
            sound = np.isfinite(target).all() and np.isfinite(columns).all()
            self.judged = made_of(columns, target) if sound else []
        return self.judged


class Found(NamedTuple):
    made: Made
    rows: Rows


class LooksAhead(Watch):
    test = "looks_ahead"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.loaders: dict[int, Rows | None] = {}
        self.called: dict[int, Rows] = {}  # by number of rows
        self._inputs: torch.Tensor | None = None

    def batch(self, event: Batch) -> None:
        if event.epoch or (event.loader in self.loaders and self.loaders[event.loader] is None):
            return
        if event.loader not in self.loaders:
            self.loaders[event.loader] = Rows(event.place) if len(self.loaders) < SETS else None
        rows = self.loaders[event.loader]
        if rows is None or rows.count >= MOST or rows.whole:
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        inputs, targets = parts(event.value, tensors)
        first = next((held for held in inputs if _usable(held)), None)
        if first is None or len(targets) != 1 or not _is_target(targets[0], len(first)):
            self.loaders[event.loader] = None
        elif rows.count or source_of(event.source).in_order:
            rows.add(first, targets[0])
        else:
            stored = stored_pair(getattr(event.source, "_dataset", None), first, targets[0])
            if stored is None:
                self.loaders[event.loader] = None
            else:
                rows.add(stored[0][:MOST], stored[1][:MOST])
                rows.whole = True

    def forward(self, event: Forward) -> None:
        """A call on many rows, as where there is no loader."""
        self._inputs = None
        if self.loaders or len(self.called) >= SETS:
            return
        first = next((held for held in tensors_in(event.inputs, torch) if held.dim()), None)
        if first is not None and _usable(first) and len(first) >= 2 * FEWEST and len(first) not in self.called:
            self._inputs = first

    def loss(self, event: LossCall) -> None:
        inputs, self._inputs = self._inputs, None
        if inputs is None or not isinstance(event.target, torch.Tensor) or not _is_target(event.target, len(inputs)):
            return
        if event.target.requires_grad or event.input.shape[0] != len(inputs):
            return
        self.called[len(inputs)] = Rows(event.place)
        self.called[len(inputs)].add(inputs[:MOST], event.target[:MOST])

    def read(self) -> Answer:
        kept = [rows for rows in (*self.loaders.values(), *self.called.values()) if rows and rows.count >= FEWEST]
        if not kept:
            return Unclear("no rows with a numeric target were read in their stored order")
        found = [Found(made, rows) for rows in kept for made in rows.made()]
        if not found:
            return Unclear("no column is a sum of neighbouring targets")
        ahead = [held for held in found if _ahead(held.made)]
        if ahead and all(
            _both_sides([held for held in found if held.rows is rows]) for rows in {a.rows for a in ahead}
        ):
            return Unclear("rows of both sides are given, as in imputation")
        if not ahead:
            return Saw("behind", columns=len(found))
        return _told(ahead)


def _told(ahead: list[Found]) -> Answer:
    first = ahead[0].made
    taps = ", ".join(str(tap) for tap in first.taps[:6])
    if len(first.taps) == 1:
        says = f"column {first.column} of the inputs is the target {taps} rows later"
    else:
        says = (
            f"column {first.column} of the inputs is a weighted sum of the target over {len(first.taps)} "
            f"rows, from {first.taps[0]:+d} to {first.taps[-1]:+d} (0 is its own row)"
        )
    if len(ahead) > 1:
        says += f"; {len(ahead)} columns look ahead in all"
    columns = ", ".join(str(held.made.column) for held in ahead[:8])
    return (
        Saw("ahead", columns=columns, furthest=max(held.made.taps[-1] for held in ahead))
        .at(ahead[0].rows.place)
        .saying(says)
    )


def _ahead(made: Made) -> bool:
    """Later rows with one sign, a window of the past that includes the row itself, or a smoother of an earlier row that
    takes as much from the rows after it."""
    if made.past or not made.taps or not (made.one_sign or made.both):
        return False
    return made.taps[-1] > 0 or (made.taps[-1] == 0 and len(made.taps) >= WINDOW)


def _both_sides(found: list[Found]) -> bool:
    """Single rows after and before, as many of each: the row between them is asked for."""
    later = [held for held in found if _ahead(held.made) and len(held.made.taps) == 1]
    earlier = [held for held in found if held.made.past]
    return (
        len(later) == sum(_ahead(held.made) for held in found)
        and len(later) >= 2
        and len(later) <= len(earlier) <= 2 * len(later)
    )


def _usable(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_floating_point()
        and 2 <= tensor.dim() <= 3
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.shape[0] > 0
        and tensor[0].numel() > 0
    )


def _is_target(target: Any, rows: int) -> bool:
    """One number for each row, or a few of which the last lies furthest ahead."""
    sound = target.is_floating_point() and target.device.type == "cpu" and 1 <= target.dim() <= 3
    return bool(sound and len(target) == rows and 0 < target[0].numel() <= COLUMNS)


def _columns(inputs: torch.Tensor) -> NDArray[np.float64]:
    """The last columns: in windows these lie nearest to the target."""
    flat = inputs.detach().reshape(len(inputs), -1)
    return flat[:, max(0, flat.shape[1] - COLUMNS) :].double().numpy().copy()
