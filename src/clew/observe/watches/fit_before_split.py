"""Was any preprocessing fitted before the data were split?

Why it matters: a scaler, selector, imputer or oversampler that saw validation rows carries them into training.
Cannot tell: statistics taken by hand; how much it matters, which is little for a scaler and much for feature selection.
Silent when: every fit saw training rows alone, in each fold of its own; a fit only lists categories.
"""

from __future__ import annotations

from clew.observe.ledger import LEDGER, Call
from clew.observe.watch import Answer, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_leaks import at_rows, at_split, evaluated_rows
from clew.records.clue import Unclear


class FitBeforeSplit(FedWatch):
    test = "fit_before_split"

    def read(self) -> Answer:
        fits = [call for call in LEDGER.calls if call.kind != "transform" and call.learns]
        if not fits:
            return Unclear("no fit of a scaler, imputer, selector or sampler was seen")
        leak = next((found for split in LEDGER.splits if (found := at_split(LEDGER, split))), None)
        held_out = evaluated_rows(self.feed)
        leak = leak or next(
            (found for rows, place in held_out if (found := at_rows(LEDGER, self.feed, rows, place))), None
        )
        if leak is not None:
            says = f"{leak.call.what} {leak.how} {leak.share:.0%} of the rows that are held out"
            saw = Saw("seen", share_of_held_out_rows=leak.share, rows_fitted=_rows(leak.call), what=leak.call.what)
            return saw.at(leak.call.place, leak.place).saying(says)
        if not LEDGER.splits and not held_out:
            return Unclear("fits were seen, but no split and no evaluation on rows that could be followed back")
        return Saw("absent", fits=len(fits), splits=len(LEDGER.splits))


def _rows(call: Call) -> int:
    return call.came.total if call.came else 0
