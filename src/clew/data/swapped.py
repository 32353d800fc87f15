"""Two files, each of one class, whose first or last rows stand in each other's place.

Taken as they are, the rows of two such files cannot be told apart. Told apart they are once the parts are put back: one
fit asks for every pair of files, and for cuts at quarters of their length, which division the rows themselves support.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from clew.data.fit import fit
from clew.data.model import Array, Family, Part
from clew.data.segments import highest

CUTS = (0.25, 0.5, 0.75)
TOLD = 0.3
MOST_FILES = 8
FEWEST = 40


class Swap(NamedTuple):
    """Rows `first` to `last` of `part` look like those of `other`; `told`: how well, and how well as it is."""

    part: Part
    other: Part
    first: int
    last: int
    told: float
    as_it_is: float


def swapped(family: Family, x: Array) -> Swap | None:
    """The pair of files whose parts are told apart far better crosswise than as they stand."""
    if not 2 <= len(family.parts) <= MOST_FILES or min(part.rows for part in family.parts) < FEWEST:
        return None
    starts = np.cumsum([0, *(part.rows for part in family.parts)])
    pairs = list(combinations(range(len(family.parts)), 2))
    y = np.zeros((family.rows, len(pairs) * (1 + len(CUTS))))
    for number, pair in enumerate(pairs):
        for way, cut in enumerate((0.0, *CUTS)):
            for at, sign in zip(pair, (1.0, -1.0), strict=True):
                rows = family.parts[at].rows
                column = y[starts[at] : starts[at + 1], number * (1 + len(CUTS)) + way]
                column[:] = np.where(np.arange(rows) < cut * rows, -sign, sign)
    guess = fit(x, y - y.mean(0), [part.rows for part in family.parts]).predicted
    best: Swap | None = None
    for number, pair in enumerate(pairs):
        span = [number * (1 + len(CUTS)) + way for way in range(1 + len(CUTS))]
        told = [_agree(guess[:, at], y[:, at]) for at in span]
        way = int(np.argmax(told))
        if way and told[way] >= TOLD and told[0] < 0.5 * told[way] and (best is None or told[way] > best.told):
            best = _found(family, pair, starts, guess[:, span[way]], y[:, span[way]], (told[way], told[0]))
    return best


def _agree(guess: Array, true: Array) -> float:
    within = true != 0
    return float(np.corrcoef(guess[within], true[within])[0, 1]) if guess[within].std() > 0 else 0.0


def _found(
    family: Family, pair: tuple[int, int], starts: Array, guess: Array, true: Array, told: tuple[float, float]
) -> Swap | None:
    """The rows of the file that has fewer of them on the wrong side, which side is wrong being anybody's guess."""
    rows = slice(int(starts[pair[0]]), int(starts[pair[0] + 1]))
    stretch = highest(guess[rows] * true[rows][0], FEWEST // 2)
    if stretch is None:
        return None
    part, other = family.parts[pair[0]], family.parts[pair[1]]
    first, last = (0, stretch.last) if stretch.first < FEWEST // 2 else (stretch.first, stretch.last)
    return Swap(part, other, first, last, *told)
