"""Are the classes as frequent in training as in the file held out?

Counts the values of the target by file. A class that is common where it is tested and all but missing where it is
trained was lost on the way; one that is rare everywhere is a property of the data.

Why it matters: a class with a handful of rows is never predicted, and a score over all rows hardly shows it.
Cannot tell: whether a loss or a sampler makes up for it.
Silent when: the target is a number, or classes are rare in the same measure everywhere.
Sources: class-imbalance
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from clew.data.fit import classes_of
from clew.data.model import HELD, Column, Family, Found, Look, Part, place
from clew.data.parts import FILE, split_of
from clew.records.clue import Saw, Unclear

MOST_CLASSES = 60
LOST = 5.0
RARE = 20.0
FEWEST = 20


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for found in _counted(family):
            some = True
            yield found
    if not some:
        yield Found(Unclear("no column is clearly a target with few classes"), 0)


def _counted(family: Family) -> Iterator[Found]:
    train, test, column = _counts(family)
    if column is None or not family.sure or not 2 <= len(train | test) <= MOST_CLASSES:
        return
    total = sum(train.values())
    if total < 2 * FEWEST:
        return
    part = family.training[0] if family.training else family.parts[0]
    lost = _lost(train, test)
    if lost:
        name, share, there = lost
        says = (
            f"{column.name} {name} is {100 * share:.1f} % of the training rows in {column.file} "
            f"({train[name]} of {total}) and {100 * there:.0f} % of the held-out rows."
        )
        yield Found(Saw("lost", share=share, held_out=there, label=name).at(place(part, column)).saying(says), 3)
        return
    name, count = min(train.items(), key=lambda pair: pair[1])
    often, most = max(train.items(), key=lambda pair: pair[1])
    figures = Saw("rare" if most >= RARE * count or most > 0.9 * total else "even", largest=most / total, least=count)
    weight = 1.0 if figures.outcome == "rare" else 0.6
    if column.name == FILE:
        ends = [(_part_of(family, key), key) for key in (often, name)]
        says = f"{ends[0][0].file} has {most} of {total} rows, {ends[1][0].file} has {count}."
        where = [place(held, held.columns[0]) for held, _ in ends]
    else:
        says = f"{column.name} {often} has {most} of {total} rows in {column.file}, {name} has {count}."
        where = [place(part, column)]
    yield Found(figures.at(*where).saying(says), weight)


def _part_of(family: Family, name: str) -> Part:
    """The file that holds a class, where each file is one."""
    return next(part for part in family.parts if part.columns[-1].values[0] == name)


def _counts(family: Family) -> tuple[Counter[str], Counter[str], Column | None]:
    train: Counter[str] = Counter()
    test: Counter[str] = Counter()
    shown: Column | None = None
    for part in family.parts:
        column = part.column(family.target) if family.target else None
        if column is None or column.kind not in ("number", "category", "list"):
            continue
        values = column.values
        if column.kind == "number" and len(np.unique(values)) > 24:
            continue
        names = _names(column, part.rows)
        split = split_of(part)
        held = np.full(part.rows, part.role == HELD) if split is None else split
        for name, out in zip(names, held, strict=True):
            (test if out else train).update(name)  # one name, several tags, or none
        shown = column if shown is None or part.role != HELD else shown
    return train, test, shown


def _names(column: Column, rows: int) -> list[tuple[str, ...]]:
    """The classes of each row; the tags of a row of tags, or that it has none."""
    if column.kind == "list":
        return [tuple(set(row)) or ("no tag",) for row in column.values]
    return [(name,) if name not in ("", "nan") else () for name in classes_of(column, rows)]


def _lost(train: Counter[str], test: Counter[str]) -> tuple[str, float, float] | None:
    """The class that training has far less of than the rows held out; it must be common there."""
    trained, tested = sum(train.values()), sum(test.values())
    if tested < FEWEST:
        return None
    worst: tuple[float, str, float, float] | None = None
    for name, count in test.items():
        share, there = train[name] / trained, count / tested
        ratio = there / max(share, 0.5 / trained)
        if count >= 5 and ratio >= LOST and (worst is None or ratio > worst[0]) and train[name]:
            worst = ratio, name, share, there
    return worst[1:] if worst else None
