"""Are time-ordered data split by time?

Why it matters: neighbouring time steps are close to copies, so a random split asks for interpolation where the task is
to forecast.
Cannot tell: features that look ahead inside a correct split; order in time that the table does not show; splits made by
hand.
Silent when: the split does not shuffle, and when nothing in the rows shows an order in time.
"""

from __future__ import annotations

from clew.observe.ledger import LEDGER
from clew.observe.watch import Answer, Saw, Watch
from clew.records.clue import Unclear


class SplitByTime(Watch):
    test = "split_by_time"

    def read(self) -> Answer:
        splits = [split for split in LEDGER.splits if split.readable or not split.shuffled]
        for split in splits:
            if split.in_time:
                says = f"{split.what} shuffles rows that stand in order of time: {split.in_time}"
                held_out = split.held_out.total if split.held_out else 0
                return Saw("random_over_time", held_out=held_out).at(split.place).saying(says)
        if not splits:
            return Unclear("no split of a table was seen")
        return Saw("by_time", splits=len(splits))
