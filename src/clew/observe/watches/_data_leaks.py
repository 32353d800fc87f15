"""Rows that are held out and were nevertheless seen by a fit: followed back through the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from clew.observe.ledger import HALF, Call, Ledger, Split, trail
from clew.observe.watches._data_names import TRAINING

if TYPE_CHECKING:
    from clew.observe.rows import Digests
    from clew.observe.watches._data_feed import Feed
    from clew.records.place import Place

FEWEST = 5
TRAINED = 32
COPIES = "resampled rows before the split, and its copies include"


class Leak(NamedTuple):
    call: Call
    share: float
    place: Place | None  # where the rows were split off or evaluated
    how: str


def at_split(ledger: Ledger, split: Split) -> Leak | None:
    """A fit that saw the held-out part of a split: before it, or on all rows after it."""
    if split.held_out is None or split.training is None or split.held_out.total < FEWEST:
        return None
    found = _resampled(ledger, split)
    if found is not None:
        return found
    for rows in [split.held_out, *(pair[1] for pair in split.by_columns.values())]:
        leak = _made_by(ledger, rows.digests, split.number, split.place)
        if leak is not None:
            return leak
    pairs = [(split.training, split.held_out), *split.by_columns.values()]
    return next((leak for pair in pairs if (leak := _after(ledger, split, pair[0].digests, pair[1].digests))), None)


def _made_by(ledger: Ledger, rows: Digests, before: float, place: Place | None) -> Leak | None:
    """Follow rows back to a call that made them and was fitted on them."""
    for step in trail(ledger, rows, before):
        fit = _fit_of(ledger, step.call)
        if fit is None or not fit.learns or fit.came is None:
            continue
        share = 1.0 if fit is step.call else fit.came.share_of(step.rows)
        if share >= HALF:
            return Leak(fit, share, place, "was fitted before the split and saw")
    return None


def _fit_of(ledger: Ledger, call: Call) -> Call | None:
    return next((held for held in ledger.calls if held.number == call.fit), None)


def _after(ledger: Ledger, split: Split, training: Digests, held_out: Digests) -> Leak | None:
    """The held-out part is transformed by something that was fitted on it and on training rows."""
    following = min((other.number for other in ledger.splits if other.number > split.number), default=1 << 60)
    for call in ledger.calls:
        if not split.number < call.number < following or call.kind != "transform" or call.came is None:
            continue
        fit = _fit_of(ledger, call)
        if fit is None or fit.came is None or not fit.learns or call.came.share_of(held_out) < HALF:
            continue
        natural = float(np.isin(held_out, training).mean())
        share = fit.came.share_of(held_out)
        if natural < 1 and (share - natural) / (1 - natural) >= HALF and fit.came.share_of(training) > 0.2:
            when = "before the split" if fit.number < split.number else "on all rows"
            return Leak(fit, share, split.place, f"was fitted {when} and saw")
    return None


def _resampled(ledger: Ledger, split: Split) -> Leak | None:
    """Rows were multiplied before they were split, so copies of one row stand on both sides."""
    assert split.training is not None
    assert split.held_out is not None
    both = split.training.total + split.held_out.total
    for call in ledger.calls:
        if call.kind != "resample" or call.number > split.number or call.went is None or call.came is None:
            continue
        share = call.went.share_of(split.held_out.digests)
        if call.what not in ("resample", "sample"):  # these give the copies alone
            if call.went.total == both > call.came.total and share > 0.9:
                return Leak(call, share, split.place, COPIES)
            continue
        from_it = split.held_out.digests[np.isin(split.held_out.digests, call.went.digests)]
        if len(from_it) >= FEWEST and split.training.share_of(from_it) > 0.3:
            return Leak(call, share, split.place, COPIES)
    return None


def evaluated_rows(feed: Feed) -> list[tuple[Digests, Place | None]]:
    """Rows that were evaluated and surely not trained on."""
    known = np.fromiter(feed.trained, np.int64)
    found = []
    for loader in feed.loaders.values():
        partner = feed.loaders.get(loader.partner) if loader.partner is not None else None
        if loader.evaluated and partner is not None and partner.digested >= TRAINED:
            rows = np.fromiter(loader.rows, np.int64)
            if not np.isin(rows, np.fromiter(partner.rows, np.int64)).any():
                found.append((rows, loader.place))
    for group in feed.groups.values():
        rows = np.fromiter(group.rows, np.int64)
        if group.called != TRAINING and len(known) >= TRAINED and not np.isin(rows, known).any():
            found.append((rows, group.place))
    return [(rows, place) for rows, place in found if len(rows) >= FEWEST]


def at_rows(ledger: Ledger, feed: Feed, rows: Digests, place: Place | None) -> Leak | None:
    """Evaluated rows that a fit saw, where the same fit saw training rows too."""
    leak = _made_by(ledger, rows, float("inf"), place)
    if leak is None:
        return None
    trained = [np.fromiter(loader.rows, np.int64) for loader in feed.loaders.values() if loader.trained]
    trained = [*trained, np.fromiter(feed.trained, np.int64)]
    for held in trained:
        for step in trail(ledger, held, float("inf")):
            if step.call.number == leak.call.number or step.call.fit == leak.call.number:
                return leak
    return None
