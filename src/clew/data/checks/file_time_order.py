"""Do the dates belong to their rows?

In a series, neighbouring rows resemble each other. When they do so in the order of the file and not in the order of the
dates in it, the dates were written to other rows.

Why it matters: a program that sorts by date then trains on noise, and every single row looks right.
Cannot tell: dates that moved together with their rows.
Silent when: the file is in the order of its dates, or its values have no order in time at all.
Sources: look-at-the-data, temporal-split
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.data.model import Array, Found, Look, Part, place
from clew.data.segments import ranks
from clew.records.clue import Saw, Unclear

FEWEST = 60


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for part in family.parts:
            if part.rows >= FEWEST and any(column.kind == "time" for column in part.columns):
                some = True
                yield _ordered(part)
    if not some:
        yield Found(Unclear("no date column"), 0)


def follows(values: Array) -> float:
    """How much a value resembles the next one."""
    held = ranks(values)
    return float(np.corrcoef(held[:-1], held[1:])[0, 1]) if held.std() > 0 else 0.0


def _ordered(part: Part) -> Found:
    time = next(column for column in part.columns if column.kind == "time")
    numbers = [column for column in part.columns if column.kind == "number"]
    if not numbers:
        return Found(Unclear("no numeric columns beside the dates"), 0)
    if len(np.unique(time.values)) < 0.9 * part.rows:
        return Found(Unclear("many rows share a date, as where several series follow each other"), 0)
    order = np.argsort(time.values, kind="stable")
    best = max(numbers, key=lambda column: follows(column.values))
    stored, dated = follows(best.values), follows(best.values[order])
    if stored > 0.5 and dated < 0.3 * stored:
        says = (
            f"{best.name} is smooth in the order of {time.file} ({stored:.2f}) and not in that of column "
            f"{time.name} ({dated:.2f}): the dates belong to other rows."
        )
        return Found(Saw("scattered", stored=stored, dated=dated).at(place(part, time)).saying(says), 4)
    return Found(Saw("in_order", stored=stored, dated=dated).saying(f"{time.file} is in the order of its dates."), 0.5)
