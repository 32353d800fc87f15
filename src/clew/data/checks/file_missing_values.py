"""Are all cells of the data files filled with finite numbers?

Counts empty cells, NaN and infinite values in columns of numbers, by file and column, and numbers such as -999 that lie
far away from all others.

Why it matters: one NaN that reaches the loss makes every weight NaN, and a file in which they stand in a few rows looks
sound in its first lines.
Cannot tell: whether the program drops or fills such rows, or a number among the others that stands for a missing one.
Silent when: more than a third of a column is empty, as in columns that are optional.
Sources: look-at-the-data
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.data.model import Column, Found, Look, Part, counted, place, sentence, spoken
from clew.records.clue import Saw, Unclear

MOST_EMPTY = 1 / 3
STAND_INS = (-9999.0, -999.0, -99.0, 999.0, 9999.0, 99999.0, -99999.0)
FEWEST = 3


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for part in family.parts:
            for column in part.columns:
                if column.kind in ("number", "array"):
                    some = True
                    yield from _bad(part, column)
    if some:
        yield Found(Saw("complete").saying("Every number in the files is present and finite."), 0.5)
    else:
        yield Found(Unclear("no numeric columns"), 0)


def _bad(part: Part, column: Column) -> Iterator[Found]:
    values = column.values.reshape(len(column.values), -1)
    yield from _stand_in(part, column)
    infinite = np.isinf(values).any(1)
    missing = np.isnan(values).any(1)
    for what, rows, weight in (("infinite", infinite, 2.5), ("missing", missing, 2.0)):
        count = int(rows.sum())
        if not count or count > MOST_EMPTY * len(values):
            continue
        at = np.flatnonzero(rows)
        first, last = int(at[0]), int(at[-1])
        where = f"{spoken(part, column, first, last)}"
        says = f"{sentence(column.title)} has {count} {what} value{'s' * (count > 1)} in {where}; first in row {first}."
        yield Found(Saw(what, rows=count, first=first).at(place(part, column, first, last)).saying(says), weight)


def _stand_in(part: Part, column: Column) -> Iterator[Found]:
    """A number that people write for a missing one, far away from all others."""
    if column.kind != "number":
        return
    for value in STAND_INS:
        rows = np.flatnonzero(column.values == value)
        rest = column.values[(column.values != value) & np.isfinite(column.values)]
        if not FEWEST <= len(rows) <= MOST_EMPTY * len(column.values) or len(rest) < FEWEST:
            continue
        low, high = float(rest.min()), float(rest.max())
        if value < low - 2 * (high - low) or value > high + 2 * (high - low):
            first, last = int(rows[0]), int(rows[-1])
            what = sentence(column.title)
            says = (
                f"{what} is {value:g} in {counted(len(rows))} of {column.file}, from row {first} on, and "
                f"{low:g} to {high:g} in all others: it seems to mark a missing value."
            )
            answer = Saw("stand_in", rows=len(rows), value=value)
            yield Found(answer.at(place(part, column, first, last)).saying(says), 1.5)
