"""What loaders gave and calls were made on, as digests of rows: the records behind the shared feed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from clew.observe.fields import fields_of
from clew.observe.rows import array_of, of_array
from clew.observe.watch import Forward, Judged

if TYPE_CHECKING:
    from clew.observe.rows import Digests
    from clew.observe.watches._data_source import Source
    from clew.records.place import Place

MIX = np.int64(0x2545F4914F6CDD1D)
SEVERAL, MORE = 10, 0.2
DISTINCT, COLUMNS, LOOKED = 0.6, 3, 128
_TARGETS = ("label", "labels", "target", "targets", "y")


def parts(value: Any, tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and targets of a batch, by the usual order or the usual names."""
    named = value if isinstance(value, Mapping) else fields_of(value)
    if named:
        targets = [held for name, held in named.items() if str(name).lower() in _TARGETS and isinstance(held, Tensor)]
        chosen = {id(held) for held in targets}
        return [held for held in tensors if id(held) not in chosen], targets
    if len(tensors) < 2:
        return tensors, []
    return tensors[:-1], tensors[-1:]


def row_digests(tensors: list[Tensor], rows: int) -> Digests | None:
    """One digest per example over all tensors that have as many rows as the first."""
    total: Digests | None = None
    for tensor in tensors:
        if tensor.dim() == 0 or (total is not None and min(tensor.shape[0], rows) != len(total)):
            continue
        array = array_of(tensor, rows)
        if array is not None:
            found = of_array(array)
            total = found if total is None else total * MIX + found
    return total


def measured(tensors: list[Tensor]) -> bool:
    """Whether the rows hold several numbers that hardly ever come twice: then no two are equal by chance."""
    first = next((held for held in tensors if held.dim()), None)
    if first is None or first.dim() != 2 or first.shape[1] < COLUMNS or not first.is_floating_point():
        return False
    rows = array_of(first, LOOKED)
    if rows is None or len(rows) < SEVERAL:
        return False
    different = [len(np.unique(rows[:, column])) for column in range(min(rows.shape[1], LOOKED))]
    return sum(count >= DISTINCT * len(rows) for count in different) >= COLUMNS


class Loader:
    """What one loader gave out."""

    def __init__(self, number: int, source: Source, place: Place | None, called: str | None) -> None:
        self.number = number
        self.source = source
        self.place = place
        self.called = called
        self.rows: Counter[int] = Counter()  # digests of the inputs, first epoch
        self.measured = False  # it gives numbers of which hardly any comes twice
        self.given = 0  # rows of the first epoch
        self.digested = 0
        self.free_rows = 0
        self.free_values = 0
        self.batches = 0
        self.batch_rows = 0
        self.later = 0  # rows of later epochs that were looked at
        self.known = 0  # of these, seen in the first epoch
        self.trained = False
        self.judged = False
        self.partner: int | None = None  # the loader that was trained on when this one was evaluated
        self.last: Digests | None = None  # the inputs of its last batch
        self.last_count = 0

    @property
    def evaluated(self) -> bool:
        return self.judged and not self.trained

    def coverage(self) -> float:
        """Which share of its examples was digested."""
        whole = max(self.source.size or 0, self.given)
        return min(1.0, self.digested / whole) if whole else 0.0

    def twins(self) -> float:
        """Share of its own examples that have an equal one among them by nature."""
        if self.repeated():
            return 0.0
        return sum(count for count in self.rows.values() if count > 1) / max(1, self.digested)

    def repeated(self) -> bool:
        """Whether its rows were drawn again and again, as resampling does: rows that are equal by nature, and hold
        measured numbers, come in pairs."""
        several = [count for count in self.rows.values() if count > 1]
        return self.measured and len(several) >= SEVERAL and sum(count > 2 for count in several) > MORE * len(several)


class Group(NamedTuple):
    """Rows that one line of the script evaluated without a gradient."""

    place: Place | None
    called: str | None
    rows: dict[int, None]
    wholes: set[int]  # digests of the whole inputs


class Pending(NamedTuple):
    key: tuple[int, bool, bool, int, Place | None]
    value: Any


class Verdicts:
    """Holds what was read at a forward call until it is known whether a backward followed."""

    def __init__(self) -> None:
        self.held: deque[Pending] = deque(maxlen=512)

    def push(self, event: Forward, value: Any) -> None:
        self.held.append(Pending((event.model, event.training, event.grad, event.step, event.place), value))

    def pop(self, event: Judged) -> Any:
        key = (event.model, event.training, event.grad, event.step, event.place)
        for number, pending in enumerate(self.held):
            if pending.key == key:
                del self.held[number]
                return pending.value
        return None
