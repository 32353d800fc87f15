"""Are the labels written in the same way in all files?

Compares the values that the target takes in each file: 0 and 255 here and 0 and 1 there, or classes counted from one in
one file and from zero in the other.

Why it matters: both files load without a word, and the loss takes 255 for a number like any other.
Cannot tell: a coding that is wrong in all files alike.
Silent when: the values agree, one file only lacks some of them, or rows stand in the order of their class, so that each
file holds other classes.
Sources: loss-fits-task, look-at-the-data
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.data.model import HELD, Found, Look, Part, place
from clew.records.clue import Saw, Unclear

MOST = 40


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        if not family.target or not family.sure or len(family.parts) < 2:
            continue
        values = [(part, found) for part in family.parts if (found := _values(part, family.target)) is not None]
        if len(values) < 2:
            continue
        some = True
        other = _other(values, family.target)
        if other is not None:
            yield other
    if some:
        yield Found(Saw("same").saying("The target has the same values in all files."), 0.5)
    else:
        yield Found(Unclear("no two files hold the same class label"), 0)


def _values(part: Part, name: str) -> tuple[float, ...] | None:
    column = part.column(name)
    if column is None or column.kind not in ("number", "array"):
        return None
    values = column.values[np.isfinite(column.values)]
    distinct = np.unique(values)
    if not 2 <= len(distinct) <= MOST or bool((distinct != np.round(distinct)).any()):
        return None
    return tuple(distinct.tolist())


def _other(values: list[tuple[Part, tuple[float, ...]]], name: str) -> Found | None:
    """A file whose values another file does not know, and that lacks some of the other's."""
    for part, own in sorted(values, key=lambda pair: pair[0].role == HELD):
        for other, theirs in values:
            only, missing = set(own) - set(theirs), set(theirs) - set(own)
            if other is part or not only or not missing or not recoded(own, theirs):
                continue
            if _sorted(part, name) and _sorted(other, name):
                continue
            column, known = part.column(name), other.column(name)
            assert column is not None
            assert known is not None
            says = f"{name} has the values {_list(own)} in {column.file} and {_list(theirs)} in {known.file}."
            return Found(Saw("differs", least=own[0], most=own[-1]).at(place(part, column)).saying(says), 3)
    return None


def _sorted(part: Part, name: str) -> bool:
    """Whether the rows of a file stand in the order of their class."""
    column = part.column(name)
    return column is not None and column.values.ndim == 1 and bool((np.diff(column.values) >= 0).all())


def recoded(own: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    """Whether the values are those of the other file, all moved or stretched alike."""
    if len(own) != len(theirs):
        return False
    one, other = np.array(own), np.array(theirs)
    factor = (one[-1] - one[0]) / (other[-1] - other[0])
    return bool(np.allclose((other - other[0]) * factor + one[0], one))


def _list(values: tuple[float, ...]) -> str:
    names = [f"{value:g}" for value in values]
    return f"{names[0]} and {names[1]}" if len(names) == 2 else f"{names[0]} to {names[-1]}"
