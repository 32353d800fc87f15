"""Which rows were trained on and which were evaluated, by loader and by call, kept as digests.

Several watches ask this; it is followed once per run and shared. Batches that lie in main memory are digested also
between samples, because that waits for no device, until a budget of rows and values is spent.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from clew.observe.guard import release
from clew.observe.hooks import tensors_in
from clew.observe.watch import Batch, Forward, Judged, OptimizerEvent, Watch
from clew.observe.watches._data_course import Course
from clew.observe.watches._data_given import MIX, Group, Loader, Verdicts, measured, parts, row_digests
from clew.observe.watches._data_names import FRAMES, HELD_OUT, TRAINING, called_here
from clew.observe.watches._data_source import source_of

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
POINTS = 3  # numbers in a row, up to which it is a point of a domain: some of these are fixed on purpose


class Feed:
    """The shared record. Watches hand on their events; each event is followed once."""

    _of: ClassVar[weakref.WeakKeyDictionary[Any, Feed]] = weakref.WeakKeyDictionary()

    @classmethod
    def of(cls, recorder: Recorder) -> Feed:
        return cls._of.setdefault(recorder, cls())

    def __init__(self) -> None:
        self.broken = ""
        self.latest = 0
        self.loaders: dict[int, Loader] = {}
        self.training: int | None = None  # the loader behind the last call that was followed by a backward
        self.trained: dict[int, None] = {}  # rows that entered a model in training, as seen on sampled steps
        self.groups: dict[tuple[Place | None, str | None], Group] = {}
        self.repeats: Counter[int] = Counter()  # digest of a whole training input -> calls
        self.repeat_rows = 0
        self.in_a_row = 0  # training calls on the same input as the one before
        self._before: int | None = None
        self.twins = 0.0  # largest share of rows with an equal one in the same call
        self.pairs = self.equal = 0.0  # of rows in the same training call, and how many of these are alike
        self.generation = 0
        self.courses: dict[int, Course] = {}  # by model
        self._verdicts = Verdicts()
        self.behind: int | None = None  # the loader whose rows the call judged last was made on
        self.last_digests: tuple[Digests | None, Digests | None] = (None, None)

    def follow(self, name: str, number: int, event: Any) -> None:
        """Take an event by its number among all that were told, unless another watch brought it already."""
        if number == self.latest or self.broken:
            return
        self.latest = number
        try:
            getattr(self, f"_{name}")(event)
        except BaseException as error:  # noqa: BLE001  # every watch that shares this record says so in its answer
            release(error)
            self.broken = f"the data could not be traced: {type(error).__name__}: {error}"

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
        both = rows if labels is None or len(labels) != len(rows) else rows * MIX + labels
        self.last_digests = (rows, both)
        loader.last = rows[:FORWARD_ROWS]
        if not loader.digested:
            loader.measured = measured(inputs)
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
        tensors = list(tensors_in(event.inputs, torch))
        rows = row_digests(tensors, FORWARD_ROWS)
        # What outer lines say holds for everything below them, also for the acting of an agent or the forward call of a
        # teacher. Only in eval mode is it taken as said of this call.
        called = called_here(1 if event.training else FRAMES)
        self._verdicts.push(event, None if rows is None else (rows, called, self.generation, _examples(tensors)))

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
        rows, called, generation, examples = held
        if generation != self.generation:
            return
        if examples:
            self._course(event, rows, called)
        _, counts = np.unique(rows, return_counts=True)
        self.twins = max(self.twins, float(counts[counts > 1].sum()) / len(rows))
        if event.backward:
            self.pairs += len(rows) * (len(rows) - 1) / 2
            self.equal += float((counts * (counts - 1)).sum()) / 2
            whole = int(rows.sum())
            self.repeats[whole] += 1
            self.in_a_row += whole == self._before
            self._before = whole
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

    def _course(self, event: Judged, rows: Digests, called: str | None) -> None:
        course = self.courses.get(event.model)
        if event.backward:
            if course is None and len(self.courses) < GROUPS:
                course = self.courses[event.model] = Course()
            if course is not None:
                course.trained(rows, event.step, event.place)
        elif course is not None and not event.grad and not event.training and called != TRAINING:
            course.evaluated(rows, event.step, event.place)

    def _behind(self, event: Judged, rows: Digests | None) -> Loader | None:
        """The loader that a call's inputs came from. The last one used need not be it: plain tensors may follow."""
        last = self.loaders.get(event.loader) if event.loader is not None else None
        if rows is None or last is None:
            return last
        for loader in (last, *self.loaders.values()):
            if loader.last is not None and len(loader.last) == len(rows) and np.isin(rows, loader.last).any():
                return loader
        return last if last.last_count == len(rows) else None

    def natural(self, rows: int) -> float:
        """The share of other rows that have an equal one among so many, going by how often two are alike in a call."""
        return 1.0 - math.exp(-rows * self.equal / self.pairs) if self.pairs else 0.0

    def _optimizer_made(self, event: OptimizerEvent) -> None:
        """A new optimiser after training began is a new fold or a new run: rows may then change sides."""
        del event
        if self.trained:
            self.trained.clear()
            self.groups.clear()
            self.courses.clear()
            self.generation += 1


def _examples(tensors: list[torch.Tensor]) -> bool:
    """Whether the rows are examples, and not points of a domain at which an equation is solved."""
    first = next((held for held in tensors if held.dim()), None)
    if first is None or first.requires_grad:
        return False
    return not first.is_floating_point() or len(tensors) > 1 or first[:1].numel() > POINTS


class FedWatch(Watch):
    """A watch that reads the shared record."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.feed = Feed.of(recorder)

    def batch(self, event: Batch) -> None:
        if self.recorder.told != self.feed.latest:
            self.feed.follow("batch", self.recorder.told, event)

    def forward(self, event: Forward) -> None:
        self.feed.follow("forward", self.recorder.told, event)

    def judged(self, event: Judged) -> None:
        self.feed.follow("judged", self.recorder.told, event)

    def apart(self) -> bool:
        """Whether another loader than that of training stands behind the call at hand."""
        loader = self.feed.loaders.get(self.feed.behind) if self.feed.behind is not None else None
        return loader is not None and not loader.trained and self.feed.training is not None

    def evaluates(self, event: Judged, called: str | None) -> bool:
        """Whether a call without a backward is an evaluation, by its loader, its mode or the names on its line."""
        return called != TRAINING and (self.apart() or not event.training or called == HELD_OUT)

    def optimizer_made(self, event: OptimizerEvent) -> None:
        self.feed.follow("optimizer_made", self.recorder.told, event)
