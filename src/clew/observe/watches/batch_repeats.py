"""Does training see the same batch again and again?

Compares the batches of a loader one after another. Where batches are picked by hand from a larger tensor, it compares
the rows that reach the model with that tensor. A part of a batch that stays from call to call, while the rest is new
each time, is seen by the rows of the calls.

Why it matters: the model learns one batch by heart however large the data set is.
Cannot tell: an overfitting check on one batch, which looks the same on purpose; loops without a loader whose batch is
no part of a tensor, since it may be all the data there is, unless a generator is seeded anew at every step, or the same
positions are drawn out of more at every step.
Silent when: one batch holds the whole data set, batches recur once per epoch, or the other rows are evaluated; rows of
up to three numbers, which may be fixed points of a domain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.watch import Answer, Batch, Forward, Judged, Saw
from clew.observe.watches._data_draws import Draws
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import Loader
from clew.observe.watches._data_hand import HandFed
from clew.observe.watches._data_seeds import Seeds
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

PAIRS = 3
CALLS = 6
AGAIN = 10
"""So many steps on each batch are more than critics, inner loops and replayed samples make on purpose."""


class Run(NamedTuple):
    """Batches of one loader that came right after one another."""

    number: int = -1
    digest: int = 0
    pairs: int = 0
    equal: int = 0
    one_row: bool = False
    place: Place | None = None


class BatchRepeats(FedWatch):
    test = "batch_repeats"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.runs: dict[int, Run] = {}
        self.by_hand = HandFed(recorder, self.feed)
        self.seeds = Seeds(recorder)
        self.draws = Draws(recorder)

    def installed(self) -> None:
        self.seeds.attach()
        self.draws.attach()

    def forward(self, event: Forward) -> None:
        super().forward(event)
        self.by_hand.forward(event)

    def judged(self, event: Judged) -> None:
        super().judged(event)
        self.by_hand.judged(event)

    def batch(self, event: Batch) -> None:
        super().batch(event)
        rows, both = self.feed.last_digests
        loader = self.feed.loaders.get(event.loader)
        if loader is None or rows is None or both is None:
            return
        held = self.runs.get(event.loader, Run(place=event.place))
        digest = int((both * (2 * np.arange(len(both), dtype=np.int64) + 1)).sum())
        after = held.number == loader.batches - 1
        self.runs[event.loader] = held._replace(
            number=loader.batches,
            digest=digest,
            pairs=held.pairs + after,
            equal=held.equal + (after and digest == held.digest),
            one_row=bool((rows == rows[0]).all()) and both is rows,
        )

    def read(self) -> Answer:
        if self.feed.broken:
            return Unclear(self.feed.broken)
        trained = [loader for loader in self.feed.loaders.values() if loader.trained]
        if not trained:
            return self._picked()
        for loader in trained:
            run = self.runs.get(loader.number, Run())
            if _whole(loader) or run.one_row:
                continue
            if run.pairs >= PAIRS and run.equal >= 0.9 * run.pairs:
                return self._same(loader, run.equal + 1, "the loader yielded the same batch", run.place)
            if loader.batches == 1 and self._trained_on_one(loader):
                return self._same(loader, self.recorder.step, "one batch was fetched and reused", loader.place)
            if len(trained) == 1 and self._trained_on_each_again(loader):
                return self._again(loader)
        part = self._part()
        if part is not None:
            return part
        if all(self.runs.get(loader.number, Run()).pairs == 0 and not _whole(loader) for loader in trained):
            return Unclear("too few consecutive batches were seen")
        return Saw("varied", batches=sum(loader.batches for loader in trained))

    def _picked(self) -> Answer:
        found = self.by_hand.repeats()
        if found is None:
            part = self._part() or self._drawn_again()
            if part is not None:
                return part
            if self.draws.broken:
                return Unclear(f"random draws could not be traced: {self.draws.broken}")
            return Unclear("no loader batch was trained on")
        says = f"all sampled training calls used the same {found.rows} examples, picked from a tensor of {found.source}"
        return (
            Saw("same", times=found.calls, rows=found.rows, data_set=found.source, steps=found.steps)
            .at(found.place)
            .saying(says)
        )

    def _part(self) -> Saw | None:
        """Some rows in call after call, beside others that come once: a memory that hardly moves on."""
        found = next((held for course in self.feed.courses.values() if (held := course.standing())), None)
        if found is None:
            return None
        says = (
            f"{found.rows} examples, {found.share:.0%} of a batch, recur in training calls many steps apart; "
            "the rest of the batch is new each time"
        )
        measured = {"rows": found.rows, "share": found.share, "new_share": found.new, "calls": found.calls}
        return Saw("part_same", **measured).at(found.place).saying(says)

    def _drawn_again(self) -> Saw | None:
        """A generator that begins anew at every step, and the same inputs in every training call."""
        rows, calls = self.feed.repeat_rows, sum(self.feed.repeats.values())
        if len(self.feed.repeats) != 1 or calls < CALLS:
            return None
        place, how = self.draws.again(CALLS, rows), "the same positions are drawn at every step from a larger set"
        if place is None:
            place, how = self.seeds.again(CALLS), "a generator gets the same seed at every step"
        if place is None:
            return None
        says = f"all {calls} sampled training calls had the same {rows} examples, and {how}"
        return Saw("same", times=calls, rows=rows).at(place).saying(says)

    def _trained_on_one(self, loader: Loader) -> bool:
        """The loader gave one batch, and every training call since had those rows as its input."""
        feed = self.feed
        if sum(feed.repeats.values()) < CALLS or self.recorder.step < CALLS or len(feed.repeats) != 1:
            return False
        return feed.repeat_rows == min(loader.batch_rows, 1024)

    def _trained_on_each_again(self, loader: Loader) -> bool:
        """Far more steps than batches, and the same inputs in one training call after the other."""
        calls = sum(self.feed.repeats.values())
        many = self.recorder.step >= AGAIN * max(loader.batches, PAIRS) and calls >= CALLS
        return many and self.feed.in_a_row >= calls / 2

    def _again(self, loader: Loader) -> Saw:
        times = self.recorder.step // loader.batches
        says = f"each of the loader's {loader.batches} batches was trained on about {times} times in a row"
        return Saw("same", times=times, batches=loader.batches, rows=loader.batch_rows).at(loader.place).saying(says)

    def _same(self, loader: Loader, times: int, text: str, place: Place | None) -> Saw:
        size = loader.source.size
        of = f" of {size} in the data set" if size else ""
        says = f"{text} {times} times: training sees only {loader.batch_rows} examples{of}"
        return Saw("same", times=times, rows=loader.batch_rows, data_set=size).at(place).saying(says)


def _whole(loader: Loader) -> bool:
    """One batch is the data set, as far as can be told."""
    source = loader.source
    if source.batches is not None:
        return source.batches <= 1
    return source.size is None or loader.batch_rows >= source.size
