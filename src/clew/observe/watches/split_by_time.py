"""Are time-ordered data split by time?

Why it matters: neighbouring time steps are close to copies, so a random split asks for interpolation where the task is
to forecast.
Windows of a series that come from loaders are followed too: neighbours in time share all but one of their rows, so a
held-out window that lies between two that were trained on is known however the split was made.
Cannot tell: features that look ahead inside a correct split; order in time that the table does not show; splits made by
hand of anything but windows that move on by one, and tables of series in pandas that a random mask or a sample cuts.
Silent when: the split does not shuffle, and when nothing in the rows shows an order in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Batch, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_windows import WindowSets
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder


class SplitByTime(FedWatch):
    test = "split_by_time"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.windows = WindowSets()

    def batch(self, event: Batch) -> None:
        super().batch(event)
        self.windows.batch(event)

    def read(self) -> Answer:
        splits = [split for split in LEDGER.splits if split.readable or not split.shuffled]
        for split in splits:
            if split.in_time:
                says = f"{split.what} shuffles rows that are in time order: {split.in_time}"
                held_out = split.held_out.total if split.held_out else 0
                return Saw("random_over_time", held_out=held_out).at(split.place).saying(says)
        found = None if self.feed.broken else self.windows.between(self.feed)
        if found is not None:
            says = f"{found.rows} of {found.of} held-out windows lie between two training windows"
            return Saw("random_over_time", held_out=found.of, between=found.rows).at(found.place).saying(says)
        if not splits:
            return Unclear(LEDGER.trouble or "no split of a table was seen")
        return Saw("by_time", splits=len(splits))
