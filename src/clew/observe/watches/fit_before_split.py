"""Was any preprocessing fitted before the data were split?

Fits of libraries are followed row by row. Means and deviations that a script takes by hand show in the values: columns
have mean 0 and deviation 1 exactly over the rows that the statistics were taken of. That tells whether these were
training rows, all rows, or each set by itself. A column that is the mean of the labels in small groups of a table shows
in the same way when the table is split.

Why it matters: a scaler, selector, imputer or oversampler that saw validation rows carries them into training. Sets
that are scaled each by its own statistics give the same value two meanings.
Cannot tell: other statistics that are taken by hand; how much it matters, which is little for a scaler and much for
feature selection.
Silent when: every fit saw training rows alone, in each fold of its own; a fit only lists categories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clew.observe.ledger import LEDGER, Call
from clew.observe.watch import Answer, Batch, Forward, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_leaks import at_rows, at_split, evaluated_rows
from clew.observe.watches._data_whole import WholeSets
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder


class FitBeforeSplit(FedWatch):
    test = "fit_before_split"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.sets = WholeSets()

    def batch(self, event: Batch) -> None:
        super().batch(event)
        self.sets.batch(event)

    def forward(self, event: Forward) -> None:
        super().forward(event)
        self.sets.forward(event, self.recorder)

    def read(self) -> Answer:
        averaged = self._averaged()
        if averaged is not None:
            return averaged
        called = self._by_calls()
        if isinstance(called, Saw) and called.outcome == "seen":
            return called  # it knows the line
        return self._by_values() or called

    def _averaged(self) -> Answer | None:
        """Where columns are named after the split, the average has to be among them to count as an input."""
        named = {name for names in LEDGER.named_columns() for name in names}
        for found in LEDGER.encoded:
            if named and found.column not in named:
                continue
            says = (
                f"column {found.column} is the mean of the labels by {found.key}, over all rows that are "
                f"split later: in {found.groups} groups, so small that {found.own:.0%} of the value is the "
                "row's own label"
            )
            saw = Saw("labels_averaged", own_label=found.own, groups=found.groups, column=found.column)
            return saw.at(*(place for place in (found.place, found.split) if place)).saying(says)
        return None

    def _by_values(self) -> Answer | None:
        together, apart = self.sets.standard(self.feed)
        if apart is not None:
            own, other = apart
            says = (
                f"the columns of {own.rows} training rows have mean 0 and standard deviation 1, and so have "
                f"those of {other.rows} evaluated rows: each set was scaled by its own statistics"
            )
            return Saw("each_by_itself", rows=own.rows, held_out=other.rows).at(other.place).saying(says)
        if together is not None:
            own, other = together
            says = (
                f"over {own.rows} training and {other.rows} evaluated rows together the columns have mean 0 "
                "and standard deviation 1, over the training rows alone they do not: the statistics come "
                "from all rows"
            )
            return Saw("seen", share_of_held_out_rows=1.0, rows_fitted=own.rows + other.rows).at(own.place).saying(says)
        return None

    def _by_calls(self) -> Answer:
        fits = [call for call in LEDGER.calls if call.kind != "transform" and call.learns]
        if not fits:
            return Unclear("no scaler, imputer, selector or sampler was fitted")
        leak = next((found for split in LEDGER.splits if (found := at_split(LEDGER, split))), None)
        held_out = evaluated_rows(self.feed)
        leak = leak or next(
            (found for rows, place in held_out if (found := at_rows(LEDGER, self.feed, rows, place))), None
        )
        if leak is not None:
            says = f"{leak.call.what} {leak.how} {leak.share:.0%} of the held-out rows"
            saw = Saw("seen", share_of_held_out_rows=leak.share, rows_fitted=_rows(leak.call), what=leak.call.what)
            return saw.at(leak.call.place, leak.place).saying(says)
        if not LEDGER.splits and not held_out:
            return Unclear("fits were seen, but no split and no evaluation on rows that could be traced back")
        return Saw("absent", fits=len(fits), splits=len(LEDGER.splits))


def _rows(call: Call) -> int:
    return call.came.total if call.came else 0
