"""Do rows stand in more than one place: in training and in the file held out, or many times in one file?

Compares digests of whole rows, without columns that only number them. What counts is how many more rows are shared than
equal rows are usual within the training file. Lists of names in one file, one for training and one held out, are
compared name by name.

Why it matters: a row that was trained on measures memory, and the score cannot show it.
Cannot tell: rows that are nearly equal, or parts of one recording on both sides.
Silent when: rows have so few values that equal ones are usual, and for a handful of equal rows.
Sources: leakage-looks-too-good
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from clew.data.fit import value_name
from clew.data.listed import pairs
from clew.data.model import HELD, Array, Column, Family, Found, Look, Part, counted, place, spoken
from clew.data.parts import FILE, split_of
from clew.records.clue import Saw, Unclear
from clew.records.place import Place

LEAST = 0.05
FEWEST = 10
WINDOW = 64
FEW_VALUES = 32


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        if family.parts[0].columns[0].kind == "stream":
            some = True
            yield from _windows(family)
            continue
        rows = [digests(part) for part in family.parts]
        some = some or bool(rows)
        yield from _between(family, rows)
        yield from _within(family, rows)
    for path, shown in held.files:
        for found in _listed(path, shown):
            some = True
            yield found
    if some:
        yield Found(Saw("apart").saying("No more rows are duplicates than chance explains."), 0.5)
    else:
        yield Found(Unclear("no tables were read"), 0)


def _listed(path: str, shown: str) -> Iterator[Found]:
    try:
        found = list(pairs(path))
    except Exception:  # noqa: BLE001  # libraries raise whatever they like over a damaged file; `read` tells of it
        return
    for pair in found:
        share = pair.shared / pair.of
        if pair.shared >= FEWEST and share >= LEAST:
            says = (
                f"{pair.shared} of {pair.of} entries that {shown} lists under {pair.held!r} are also listed "
                f"under {pair.trained!r}, for example {pair.first}."
            )
            where = Place(file=shown, column=pair.trained)
            yield Found(Saw("copied", rows=pair.shared, share=share).at(where).saying(says), 5)


def digests(part: Part) -> list[int]:
    """One number per row, of all that it says."""
    columns = _said(part)
    return [hash(row) for row in zip(*(_cells(column) for column in columns), strict=True)] if columns else []


def _said(part: Part) -> list[Column]:
    """The columns that say something of a row, and do not only number it."""
    return [column for column in part.columns if column.kind not in ("key", "time") and column.name != FILE]


def few_values(part: Part) -> bool:
    """Whether every column has few values, and all of them together make fewer different rows than there are."""
    different = [len(set(_cells(column))) for column in _said(part)]
    return max(different) <= FEW_VALUES and math.prod(map(float, different)) <= part.rows


def _cells(column: Column) -> Sequence[Any]:
    if column.kind == "array":
        return [row.tobytes() for row in np.ascontiguousarray(column.values)]
    if column.kind == "number":
        return [value_name(float(value)) for value in column.values]
    return [str(value) for value in column.values]


def usual(rows: list[int]) -> float:
    """The share of rows of a file that stand in it once more: so many of a file like it would stand there too."""
    counts = Counter(rows)
    return sum(count for count in counts.values() if count > 1) / max(1, len(rows))


def _between(family: Family, rows: list[list[int]]) -> Iterator[Found]:
    for index, part in enumerate(family.parts):
        if part.role != HELD or not rows[index]:
            continue
        for at, other in enumerate(family.parts):
            if other.role == HELD or not rows[at]:
                continue
            known = set(rows[at])
            shared = np.array([row in known for row in rows[index]])
            share, chance = float(shared.mean()), usual(rows[at])
            if shared.sum() < FEWEST or share < LEAST or share < chance + max(LEAST, 0.5 * chance):
                continue
            yield _shared(part, other, shared, rows[index], rows[at])


def _shared(part: Part, other: Part, shared: Array, mine: list[int], theirs: list[int]) -> Found:
    wanted = {row for row, is_shared in zip(mine, shared, strict=True) if is_shared}
    there = [at for at, row in enumerate(theirs) if row in wanted]
    here = np.flatnonzero(shared)
    column, held = part.columns[0], other.columns[0]
    says = (
        f"{len(here)} of {part.rows} rows of {column.file} are also in {held.file}: "
        f"{spoken(part, column, int(here[0]), int(here[-1]))}, {spoken(other, held, there[0], there[-1])}."
    )
    where = (
        place(other, held, there[0], there[-1])._replace(column=None),
        place(part, column, int(here[0]), int(here[-1]))._replace(column=None),
    )
    return Found(Saw("copied", rows=len(here), share=float(shared.mean())).at(*where).saying(says), 4)


def _within(family: Family, rows: list[list[int]]) -> Iterator[Found]:
    """Rows that stand twice in the file that is to be split."""
    if family.named(HELD):
        return
    for part, held in zip(family.parts, rows, strict=True):
        counts = Counter(held)
        again = len(held) - len(counts)
        often = Counter(counts.values()).most_common(1)[0] if counts else (1, 0)
        if len(held) < 2 * FEWEST or often[0] < 2 or often[1] < 0.8 * len(counts) or len(counts) < FEWEST:
            continue  # rows that are equal by chance, or by nature, are not all there equally often
        if few_values(part):
            continue  # a name, a class and a fold: without the name there are not as many different rows
        apart = split_of(part)
        steady = Counter(_distances(held)).most_common(1)[0][0]
        column = part.columns[0]
        says = f"{again} of {len(held)} rows of {column.file} are copies of another row, usually {counted(steady)} away"
        if apart is None:
            says += "; a random split puts them on both sides."
        else:
            says += "."
        where = place(part, column)._replace(column=None)
        yield Found(Saw("repeated", rows=again, share=again / len(held)).at(where).saying(says), 3)


def _distances(rows: list[int]) -> list[int]:
    last: dict[int, int] = {}
    found = []
    for at, row in enumerate(rows):
        if row in last:
            found.append(at - last[row])
        last[row] = at
    return found


def _windows(family: Family) -> Iterator[Found]:
    """Encoded text that comes again, within a file or from training in the one held out."""
    seen: dict[str, set[bytes]] = {}
    for part in family.parts:
        column = part.columns[0]
        held = column.values.astype(np.uint16)
        count = len(held) // WINDOW
        again = _repeats(held)
        if again > 0.5:
            says = f"{100 * again:.0f} % of the {WINDOW}-token sequences in {column.file} occurred in it before."
            yield Found(Saw("repeated", share=again).at(place(part, column)).saying(says), 3)
        seen[part.role] = {held[at : at + WINDOW].tobytes() for at in range(len(held) - WINDOW)} if count else set()
    for part in family.named(HELD):
        column = part.columns[0]
        held = column.values.astype(np.uint16)
        known = set().union(*(value for role, value in seen.items() if role != HELD))
        starts = range(0, len(held) - WINDOW, WINDOW)
        share = sum(held[at : at + WINDOW].tobytes() in known for at in starts) / max(1, len(starts))
        if share > 0.2:
            says = f"{100 * share:.0f} % of the {WINDOW}-token sequences in {column.file} also occur in training."
            yield Found(Saw("copied", share=share).at(place(part, column)).saying(says), 3)


def _repeats(held: Array) -> float:
    seen: set[bytes] = set()
    again = total = 0
    for at in range(len(held) - WINDOW):
        window = held[at : at + WINDOW].tobytes()
        if at % WINDOW == 0:
            total += 1
            again += window in seen
        seen.add(window)
    return again / max(1, total)
