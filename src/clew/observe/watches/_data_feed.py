"""Which rows were trained on and which were evaluated, by loader and by call, kept as digests.

Several watches ask this; it is followed once per run and shared. Batches that lie in main memory are digested also
between samples, because that waits for no device, until a budget of rows and values is spent.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clew.observe.hooks import tensors_in
from clew.observe.rows import array_of, of_array
from clew.observe.watch import Batch, Forward, Judged, OptimizerEvent, Watch
from clew.observe.watches._data_names import FRAMES, HELD_OUT, called_here
from clew.observe.watches._data_source import Source, source_of

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.rows import Digests
    from clew.records.place import Place

LOADERS = 24
ROWS = 10_000  # of one loader
FREE_ROWS = 2048  # of these, between samples
FREE_VALUES = 4_000_000
FORWARD_ROWS = 1024
GROUPS = 24
_TARGETS = ("label", "labels", "target", "targets", "y")
_MIX = np.int64(0x2545F4914F6CDD1D)


def parts(value: Any, tensors: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and targets of a batch, by the usual order or the usual names."""
    if isinstance(value, Mapping):
        targets = [held for name, held in value.items() if str(name).lower() in _TARGETS and isinstance(held, Tensor)]
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
            total = found if total is None else total * _MIX + found
    return total


class Loader:
    """What one loader gave out."""

    def __init__(self, number: int, source: Source, place: Place | None, called: str | None) -> None:
        self.number = number
        self.source = source
        self.place = place
        self.called = called
        self.rows: Counter[int] = Counter()  # digests of the inputs, first epoch
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
        """Share of its own examples that have an equal one among them."""
        return sum(count for count in self.rows.values() if count > 1) / max(1, self.digested)


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


class Feed:
    """The shared record. Watches hand on their events; each event is followed once."""

    _of: ClassVar[weakref.WeakKeyDictionary[Any, Feed]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, recorder: Recorder) -> Feed:
        return cls._of.setdefault(recorder, cls())

    def __init__(self) -> None:
        self.broken = ""
        self.counts: Counter[str] = Counter()
        self.loaders: dict[int, Loader] = {}
        self.training: int | None = None  # the loader behind the last call that was followed by a backward
        self.trained: dict[int, None] = {}  # rows that entered a model in training, as seen on sampled steps
        self.groups: dict[tuple[Place | None, str | None], Group] = {}
        self.repeats: Counter[int] = Counter()  # digest of a whole training input -> calls
        self.repeat_rows = 0
        self.twins = 0.0  # largest share of rows with an equal one in the same call
        self.generation = 0
        self._verdicts = Verdicts()
        self.behind: int | None = None  # the loader whose rows the call judged last was made on
        self.last_digests: tuple[Digests | None, Digests | None] = (None, None)

    def follow(self, name: str, number: int, event: Any) -> None:
        """Take the `number`-th event of a kind, unless another watch brought it already."""
        if number <= self.counts[name] or self.broken:
            return
        self.counts[name] = number
        try:
            getattr(self, f"_{name}")(event)
        except Exception as error:  # noqa: BLE001  # every watch that shares this record says so in its answer
            self.broken = f"the data could not be followed: {type(error).__name__}: {error}"

    def _batch(self, event: Batch) -> None:
        loader = self._loader(event)
        self.last_digests = (None, None)
        if loader is None:
            return
        loader.batches += 1
        spent = loader.free_rows >= FREE_ROWS or loader.free_values >= FREE_VALUES or event.epoch > 1
        if spent and not event.sampled:
            loader.last, loader.last_count = None, loader.batch_rows
            loader.given += loader.batch_rows if event.epoch == 0 else 0
            return
        tensors = event.tensors or list(tensors_in(event.value, torch))
        first = next((tensor for tensor in tensors if tensor.dim()), None)
        if first is None:
            return
        loader.batch_rows = max(loader.batch_rows, first.shape[0])
        loader.last, loader.last_count = None, min(first.shape[0], FORWARD_ROWS)
        if event.epoch == 0:
            loader.given += first.shape[0]
        if not event.sampled:
            if any(tensor.device.type != "cpu" for tensor in tensors):
                return
            loader.free_rows += first.shape[0]
            loader.free_values += sum(tensor.numel() for tensor in tensors)
        inputs, targets = parts(event.value, tensors)
        rows = row_digests(inputs, ROWS)
        if rows is None:
            return
        labels = row_digests(targets, ROWS)
        both = rows if labels is None or len(labels) != len(rows) else rows * _MIX + labels
        self.last_digests = (rows, both)
        loader.last = rows[:FORWARD_ROWS]
        if event.epoch == 0 and loader.digested < ROWS:
            loader.rows.update(rows.tolist())
            loader.digested += len(rows)
        elif event.epoch and loader.later < ROWS:
            loader.later += len(rows)
            loader.known += sum(row in loader.rows for row in rows.tolist())

    def _loader(self, event: Batch) -> Loader | None:
        held = self.loaders.get(event.loader)
        if held is not None and event.position:
            return held
        if held is None and len(self.loaders) >= LOADERS:
            return None
        source = source_of(event.source)
        if held is None or (held.source.dataset and source.dataset and held.source.dataset() is not source.dataset()):
            held = self.loaders[event.loader] = Loader(event.loader, source, event.place, called_here())
        return held

    def _forward(self, event: Forward) -> None:
        rows = row_digests(list(tensors_in(event.inputs, torch)), FORWARD_ROWS)
        # What outer lines say holds for everything below them, also for the acting of an agent or the forward call of a
        # teacher. Only in eval mode is it taken as said of this call.
        called = called_here(1 if event.training else FRAMES)
        self._verdicts.push(event, None if rows is None else (rows, called, self.generation))

    def _judged(self, event: Judged) -> None:
        held = self._verdicts.pop(event)
        loader = self._behind(event, held[0] if held else None)
        self.behind = loader.number if loader is not None else None
        if loader is not None:
            loader.judged = True
            if event.backward:
                loader.trained = True
                self.training = loader.number
            elif not loader.trained and self.training is not None:
                loader.partner = self.training
        if held is None:
            return
        rows, called, generation = held
        if generation != self.generation:
            return
        _, counts = np.unique(rows, return_counts=True)
        self.twins = max(self.twins, float(counts[counts > 1].sum()) / len(rows))
        if event.backward:
            self.repeats[int(rows.sum())] += 1
            self.repeat_rows = max(self.repeat_rows, len(rows))
            if len(self.repeats) > 64:
                self.repeats.pop(next(iter(self.repeats)))
            if len(self.trained) < ROWS:
                self.trained.update(dict.fromkeys(rows.tolist()))
        elif loader is None and (not event.grad or not event.training or called == HELD_OUT):
            group = self.groups.get((event.place, called))
            if group is None and len(self.groups) < GROUPS:
                group = self.groups[event.place, called] = Group(event.place, called, {}, set())
            if group is not None and len(group.rows) < FORWARD_ROWS * 4:
                group.rows.update(dict.fromkeys(rows.tolist()))
                group.wholes.add(int(rows.sum()))

    def _behind(self, event: Judged, rows: Digests | None) -> Loader | None:
        """The loader that a call's inputs came from. The last one used need not be it: plain tensors may follow."""
        last = self.loaders.get(event.loader) if event.loader is not None else None
        if rows is None or last is None:
            return last
        for loader in (last, *self.loaders.values()):
            if loader.last is not None and len(loader.last) == len(rows) and np.isin(rows, loader.last).any():
                return loader
        return last if last.last_count == len(rows) else None

    def _optimizer_made(self, event: OptimizerEvent) -> None:
        """A new optimiser after training began is a new fold or a new run: rows may then change sides."""
        del event
        if self.trained:
            self.trained.clear()
            self.groups.clear()
            self.generation += 1


class FedWatch(Watch):
    """A watch that reads the shared record."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.feed = Feed.of(recorder)
        self._seen: Counter[str] = Counter()

    def _follow(self, name: str, event: Any) -> None:
        self._seen[name] += 1
        self.feed.follow(name, self._seen[name], event)

    def batch(self, event: Batch) -> None:
        self._follow("batch", event)

    def forward(self, event: Forward) -> None:
        self._follow("forward", event)

    def judged(self, event: Judged) -> None:
        self._follow("judged", event)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self._follow("optimizer_made", event)
