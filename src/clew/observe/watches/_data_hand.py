"""Training calls on batches that no loader gave: which rows they saw, and of what larger tensor.

A script that picks its batches by hand has no list of its data. What stands for it is the tensor that the batches were
picked from. Rows of it that were evaluated are a held-out part and do not count as left out.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.rows import sampled
from clew.observe.watch import Forward, Judged
from clew.observe.watches._data_given import Verdicts, row_digests

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.observe.watches._data_feed import Feed
    from clew.records.place import Place

ROWS = 1024  # of one call
NARROW = 3  # numbers of a row that may be a fixed point of a domain
STEPS = 8  # on which the same rows must have been seen
VALUES = 40_000_000  # of a source that is still read
INSIDE = 0.5  # of the rows, at least, must be found in the source: it may be read in part only
LEFT_OUT = 0.5  # of the source
HELD_OUT = 0.02  # of the evaluated rows, from which on the source is one that was split by hand


class Found(NamedTuple):
    calls: int
    steps: int
    rows: int
    source: int
    place: Place | None


class HandFed:
    """Only the first tensor of a call counts: it is what a source can be compared with."""

    def __init__(self, recorder: Recorder, feed: Feed) -> None:
        self.recorder = recorder
        self.feed = feed
        self.over = False
        self.rows: set[int] = set()
        self.settled = 0  # rows known after the second step
        self.calls = 0
        self.steps: list[int] = []
        self.source: weakref.ref[Any] | None = None
        self.place: Place | None = None
        self._verdicts = Verdicts()
        self._digests: Any = None

    def forward(self, event: Forward) -> None:
        if self.over or event.evaluation:
            return
        first = next((held for held in tensors_in(event.inputs, torch) if held.dim()), None)
        if first is None or first.shape[0] > ROWS or first.requires_grad or first.shape[1:].numel() <= NARROW:
            self._verdicts.push(event, None)
            return
        rows = row_digests([first], ROWS)
        source = self.recorder.picked.source_of(first)
        larger = source is not None and source.dim() and source.shape[0] > first.shape[0]
        self._verdicts.push(event, None if rows is None else (rows, weakref.ref(source) if larger else None))

    def judged(self, event: Judged) -> None:
        held = self._verdicts.pop(event) if not self.over else None
        if not event.backward or held is None:
            return
        if self.feed.behind is not None:
            self.over = True
            return
        rows, source = held
        self.calls += 1
        if not self.steps or self.steps[-1] != event.step:
            self.steps.append(event.step)
        self.rows.update(rows.tolist())
        if len(self.steps) <= 2:
            self.settled = len(self.rows)
        self.over = len(self.rows) > self.settled
        self.source = source or self.source
        self.place = event.place
        if len(self.steps) == STEPS and not self.over:
            self._source()  # it may be gone by the end

    def repeats(self) -> Found | None:
        """The same rows on every step looked at, most of their source left out; None where that is not seen."""
        if self.over or len(self.steps) < STEPS or self.recorder.step < 2 * STEPS:
            return None
        digests = self._source()
        if digests is None:
            return None
        known = np.fromiter(self.rows, dtype=np.int64)
        inside = digests.share_of(known)
        others = digests.digests[~np.isin(digests.digests, known)]
        if inside < INSIDE or len(others) < LEFT_OUT * len(digests.digests) or self._evaluated(others):
            return None
        return Found(self.calls, self.recorder.step, len(self.rows), digests.total, self.place)

    def _source(self) -> Any:
        if self._digests is None and self.source is not None:
            held = self.source()
            if held is not None and held.numel() <= VALUES:
                self._digests = sampled(held.detach())
        return self._digests

    def _evaluated(self, others: Any) -> bool:
        """Whether rows of the source that were not trained on went into an evaluation."""
        seen = [np.fromiter(group.rows, dtype=np.int64) for group in self.feed.groups.values()]
        seen += [np.fromiter(held.rows, dtype=np.int64) for held in self.feed.loaders.values() if not held.trained]
        return any(len(rows) and float(np.isin(rows, others).mean()) > HELD_OUT for rows in seen)
