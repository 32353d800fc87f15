"""Do the values of every column vary, in every file, stretch of rows and class?

Looks for a column of numbers that holds one value in one file or stretch while it varies elsewhere, for arrays (images,
recordings) that are blank in one class or stretch, and for texts that are cut to a letter.

Why it matters: an export that fails writes zeros, and the program trains on them without a word.
Cannot tell: a blank that is meant, such as an image of nothing.
Silent when: every file has its own constant, as a column that names the shard has, and when a value is so frequent that
a run of it is nothing special.
Sources: look-at-the-data, random-input-same-loss
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from clew.data.fit import classes_of
from clew.data.model import HELD, Array, Column, Family, Found, Look, Part, place, sentence, spoken
from clew.data.parts import FILE
from clew.records.clue import Saw, Unclear

FEWEST = 20
VARIED = 20
USUAL, OFTEN = 0.005, 0.1
"""A value that other rows have too, or a column whose neighbours are often equal, makes runs by itself."""
RARE = 1e-9
"""So improbable must a run be, if the rows were in random order."""


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for column in family.parts[0].columns:
            some = some or column.kind in ("number", "array", "text", "stream")
            if column.kind == "number" and "[:" not in column.name:
                yield from _numbers(family, column.name)
            elif column.kind == "array":
                yield from _arrays(family, column.name)
            elif column.kind in ("text", "category") and column.name != FILE:
                yield from _texts(family, column.name)
            elif column.kind == "stream":
                yield from _streams(family)
    if some:
        yield Found(Saw("varied").saying("Every column varies in every file and range of rows."), 0.5)
    else:
        yield Found(Unclear("no numeric columns"), 0)


def _numbers(family: Family, name: str) -> Iterator[Found]:
    held = [
        (part, column) for part in family.parts if (column := part.column(name)) is not None and column.kind == "number"
    ]
    distinct = [len(np.unique(column.values[np.isfinite(column.values)])) for _, column in held]
    constant = [count <= 1 for count in distinct]
    for (part, column), single in zip(held, constant, strict=True):
        if single and max(distinct) >= VARIED and sum(constant) <= len(held) / 2:
            says = f"{_always(column)} and varies elsewhere."
            outcome = "target_emptied" if name == family.target and family.sure else "part_emptied"
            yield Found(Saw(outcome, rows=part.rows).at(place(part, column)).saying(says), 3)
        elif not single and max(distinct) >= VARIED:
            yield from _run(family, part, column)
    if held and all(constant) and len({float(column.values[0]) for _, column in held}) == 1:
        part, column = held[0]
        says = f"{sentence(column.title)} is {column.values[0]:g} in every row of {_files(held)}."
        yield Found(Saw("column_constant", rows=part.rows).at(place(part, column)).saying(says), 1)
    elif len(held) > 1 and sum(constant) == 1 and 2 <= max(distinct) < VARIED and name != family.target:
        part, column = held[constant.index(True)]
        says = f"{_always(column)} and varies elsewhere."
        yield Found(Saw("column_constant", rows=part.rows).at(place(part, column)).saying(says), 1.5)


def _always(column: Column) -> str:
    return f"{sentence(column.title)} is {column.values[0]:g} in every row of {column.file}"


def _files(held: list[tuple[Part, Column]]) -> str:
    names = list(dict.fromkeys(column.file for _, column in held))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def longest_run(values: Array) -> tuple[int, int]:
    """First row and length of the longest run of one value."""
    edges = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    sizes = np.diff(edges)
    at = int(np.argmax(sizes))
    return int(edges[at]), int(sizes[at])


def _run(family: Family, part: Part, column: Column) -> Iterator[Found]:
    values = column.values
    first, size = longest_run(values)
    if size < max(FEWEST, 0.05 * len(values)) or size == len(values):
        return
    last = first + size - 1
    rest = np.concatenate([values[:first], values[last + 1 :]])
    share, again = float((rest == values[first]).mean()), float((rest[1:] == rest[:-1]).mean())
    if share > USUAL or again > OFTEN or _ordered(rest) or _sorted_there(part, column, first, last):
        return
    says = f"{sentence(column.title)} is {values[first]:g} throughout {spoken(part, column, first, last)}."
    outcome = "target_emptied" if column.name == family.target and family.sure else "part_emptied"
    yield Found(Saw(outcome, rows=size).at(place(part, column, first, last)).saying(says), 3)


def _ordered(values: Array) -> bool:
    """Whether the values only rise or only fall, as those of a column by which the file is sorted."""
    rises = np.diff(values)
    return len(rises) == 0 or max(float((rises >= 0).mean()), float((rises <= 0).mean())) > 0.95


def _sorted_there(part: Part, column: Column, first: int, last: int) -> bool:
    """Whether some other column has a value of its own in these rows, so that they are rows of another kind."""
    chosen = np.zeros(part.rows, bool)
    chosen[first : last + 1] = True
    for other in part.columns:
        if other.name == column.name or other.kind not in ("number", "category"):
            continue
        inside, outside = other.values[chosen], other.values[~chosen]
        if bool((inside == inside[0]).all()) and float(np.mean(outside == inside[0])) < 0.9:
            return True
    return False


def _arrays(family: Family, name: str) -> Iterator[Found]:
    for part in family.parts:
        column = part.column(name)
        if column is None or column.kind != "array":
            continue
        flat = column.values.reshape(part.rows, -1)
        blank = (flat == flat[:, :1]).all(1)
        share = float(blank.mean())
        if share < 0.02 or blank.sum() < 5:
            continue
        yield from _blank(family, part, column, blank)


def _blank(family: Family, part: Part, column: Column, blank: Array) -> Iterator[Found]:
    aimed = column.name == family.target
    label = part.column(family.target) if family.target and not aimed else None
    if bool(blank.all()):
        says = f"Every row of {column.title} in {column.file} is blank."
        outcome = "target_emptied" if aimed else "part_emptied"
        yield Found(Saw(outcome, rows=part.rows).at(place(part, column)).saying(says), 4)
        return
    if label is not None and label.kind in ("number", "category"):
        names = classes_of(label, part.rows)
        counts, blanks = Counter(names), Counter(name for name, empty in zip(names, blank, strict=True) if empty)
        emptied = [name for name in blanks if blanks[name] >= 0.9 * counts[name] and counts[name] >= 5]
        if len(emptied) == 1 and len(counts) > 1 and blanks[emptied[0]] >= 0.9 * blank.sum():
            at = np.flatnonzero(blank)
            says = (
                f"{blanks[emptied[0]]} rows of {column.title} in {column.file} are blank, and they are those with "
                f"{label.name} {emptied[0]} (first in row {at[0]})."
            )
            where = place(part, column, int(at[0]), int(at[-1]))
            yield Found(Saw("class_emptied", rows=int(blank.sum()), label=emptied[0]).at(where).saying(says), 4)
            return
    first, size = _longest_true(blank)
    rest = np.concatenate([blank[:first], blank[first + size :]])
    usual = max(float(rest.mean()) if len(rest) else 0.0, 1 / len(blank))
    if size >= FEWEST and size * math.log(usual) < math.log(RARE):
        outcome = "target_emptied" if aimed else "part_emptied"
        says = f"{sentence(column.title)} is blank throughout {spoken(part, column, first, first + size - 1)}."
        yield Found(Saw(outcome, rows=size).at(place(part, column, first, first + size - 1)).saying(says), 3)


def _longest_true(flags: Array) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    starts, ends = edges[::2], edges[1::2]
    at = int(np.argmax(ends - starts))
    return int(starts[at]), int(ends[at] - starts[at])


def _texts(family: Family, name: str) -> Iterator[Found]:
    """Lines that were cut to a letter or two are no texts any more."""
    lone = len(family.parts[0].columns) == 1 or family.target == FILE
    for part in family.parts:
        column = part.column(name)
        if column is None or not lone:
            continue
        lengths = np.array([len(str(value).strip()) for value in column.values])
        if float((lengths <= 1).mean()) > 0.95:
            says = f"Nearly every line of {column.file} holds a single letter."
            yield Found(Saw("part_emptied", rows=part.rows).at(place(part, column)).saying(says), 3)


def _streams(family: Family) -> Iterator[Found]:
    """Encoded text in random order: neighbours do not predict each other, as they do in the other file."""
    told = []
    for part in family.parts:
        column = part.columns[0]
        told.append((order(column.values), part, column))
    if len(told) < 2:
        return
    best = max(value for value, _, _ in told)
    for value, part, column in told:
        if part.role != HELD and best > 0.2 and value < 0.1 * best:
            says = (
                f"Neighbouring tokens of {column.file} carry no information about each other ({value:.2f} "
                f"nats, {best:.2f} in the other file): its text is shuffled."
            )
            yield Found(Saw("part_emptied", order=value).at(place(part, column)).saying(says), 4)


def order(tokens: Array) -> float:
    """Nats that a token tells about the next, less what so many tokens would tell by chance."""
    held = tokens[:200_000]
    _, ids = np.unique(held, return_inverse=True)
    size = int(ids.max()) + 1
    if size > 2000:
        return 0.0
    pairs = np.bincount(ids[:-1] * size + ids[1:], minlength=size * size).reshape(size, size) / (len(ids) - 1)
    left, right = pairs.sum(1, keepdims=True), pairs.sum(0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        nats = np.where(pairs > 0, pairs * np.log(pairs / (left * right)), 0).sum()
    return float(nats - (size - 1) ** 2 / (2 * len(ids)))
