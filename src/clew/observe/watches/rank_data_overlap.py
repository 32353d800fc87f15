"""Do distributed ranks read the same examples?

Why it matters: the average of equal gradients is that gradient, so several devices do the work of one.
Cannot tell: sampling with replacement on a large corpus, where some overlap is expected.
Silent when: there is one process, and for loaders that were only evaluated, which every rank may read whole.

Each rank writes digests of the rows it trained on into its trace; `clew.observe.ranks` compares them when the run is
over.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from clew.observe.ranks import EPOCH, ROW, TRAINED
from clew.observe.watch import Answer, Batch, Judged
from clew.observe.watches._data_feed import FedWatch
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

ROWS = 2048


class RankDataOverlap(FedWatch):
    test = "rank_data_overlap"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.written: Counter[int] = Counter()
        self.told: set[int] = set()

    @property
    def world(self) -> int:
        """How many ranks there are; they may be started after this watch."""
        return self.recorder.rank[1] if self.recorder.rank else int(self.recorder.summary()["world"])

    def batch(self, event: Batch) -> None:
        super().batch(event)
        rows, _ = self.feed.last_digests
        if event.epoch or rows is None or self.written[event.loader] >= ROWS or self.world < 2:
            return
        self.written[event.loader] += len(rows)
        for row in rows.tolist():
            self.recorder.record(ROW, float(row >> 11), of=str(event.loader))  # 53 bits pass through a float unchanged

    def judged(self, event: Judged) -> None:
        super().judged(event)
        number = self.feed.behind
        if not event.backward or number is None or number in self.told or self.world < 2:
            return
        loader = self.feed.loaders[number]
        self.told.add(number)
        self.recorder.record(TRAINED, 1.0, of=str(number))
        if loader.source.batches is not None:
            self.recorder.record(EPOCH, float(loader.source.batches * loader.batch_rows), of=str(number))

    def read(self) -> Answer:
        if self.world < 2:
            return Unclear("one process: there are no ranks to compare")
        return Unclear("the rows of the ranks are compared after all of them have ended")
