"""Does a file of features belong to the rows of the file that it was made from?

Two files of arrays with as many rows, one of them named as a cache or as features: what was computed from a row can be
told from it. Where that fails in the same rows and succeeds some rows further, or fails altogether, the file was made
from other rows or in another order.

Why it matters: a stale cache makes every label wrong at once, and its mark or its name says that it is fresh.
Cannot tell: features that were made with other settings and from the right rows.
Silent when: no file is named as a cache, or neither file tells the other anything anywhere and no label tells either.
Sources: look-at-the-data
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clew.data.checks.file_labels_fit import certain, stripes
from clew.data.fit import MOST_ROWS, SHIFTS, fit, inputs, target
from clew.data.model import Array, Column, Family, Found, Look, Part, counted, place, spoken
from clew.data.parts import words
from clew.data.segments import ranks
from clew.records.clue import Saw, Unclear

CACHED = frozenset(
    "cache cached caches feature features embedding embeddings embed emb processed preprocessed encoded latents".split()
)
FEWEST = 60
TOLD = 0.3


def look(held: Look) -> Iterator[Found]:
    some = False
    for family in held.families:
        for part in family.parts:
            for cache, source in _pairs(part):
                some = True
                yield _judged(part, cache, source)
    if not some:
        yield Found(Unclear("no file looks like a cache of another file that was read"), 0)


def is_cache(file: str) -> bool:
    return bool(set(words(file)) & CACHED)


def _pairs(part: Part) -> Iterator[tuple[list[Column], list[Column]]]:
    by_file: dict[str, list[Column]] = {}
    for column in part.columns:
        if column.kind in ("array", "number", "text"):
            by_file.setdefault(column.file, []).append(column)
    caches = [file for file in by_file if is_cache(file)]
    for file in caches:
        for other, columns in by_file.items():
            rich = any(column.kind in ("array", "text") for column in columns) or len(columns) >= 4
            if other not in caches and rich and FEWEST <= part.rows <= MOST_ROWS:
                yield by_file[file], columns


def _main(columns: list[Column], rows: int) -> Array | None:
    """The cached values as one target: ranks of numbers, main directions of arrays."""
    arrays = [found for column in columns if column.kind == "array" and (found := target(column, rows)) is not None]
    numbers = [ranks(column.values) - 0.5 for column in columns if column.kind == "number"]
    held = [*arrays, np.array(numbers).T] if numbers else arrays
    if not held:
        return None
    y = np.concatenate(held, axis=1)
    spread = y.std(0)
    y = (y - y.mean(0))[:, spread > 0] / spread[spread > 0]
    return y[:, :24] if y.shape[1] else None


def _judged(part: Part, cache: list[Column], source: list[Column]) -> Found:
    x, y = inputs(source, part.rows), _main(cache, part.rows)
    if x is None or y is None:
        return Found(Unclear("one of the two files holds only constants"), 0)
    fitted = fit(x, y, [part.rows])
    now = fitted.score[0]
    alone = Family((part,))
    best: tuple[float, Found] | None = None
    for shift in SHIFTS[1:]:
        then = fitted.score[shift]
        for stripe in stripes(alone, then - now):
            high, low = float(then[stripe.chosen].mean()), float(now[stripe.chosen].mean())
            if high < TOLD or low > 0.35 * high or certain(then[stripe.chosen]) < 6 or abs(fitted.alike) > 0.5:
                continue
            says = (
                f"{spoken(part, cache[0], stripe.first, stripe.last)} hold what belongs to {source[0].file} "
                f"{counted(abs(shift))} {('before' if shift > 0 else 'after')}: the cache was built from rows "
                "in a different order."
            )
            where = place(part, cache[0], stripe.first, stripe.last)._replace(column=None)
            gain = float((then - now)[stripe.chosen].sum())
            if best is None or gain > best[0]:
                best = gain, Found(Saw("slid", shift=shift, rows=stripe.rows).at(where).saying(says), 4)
    if best is not None:
        return best[1]
    if fitted.told[0] < 0.1 and certain(now) < 4:
        told = f"({fitted.told[0]:.2f} of 1)"
        says = f"The rows of {cache[0].file} are unrelated to those of {source[0].file} {told}."
        where = place(part, cache[0])._replace(column=None)
        return Found(Saw("unrelated", told=fitted.told[0]).at(where).saying(says), 3)
    return Found(Saw("fits", told=fitted.told[0]).saying(f"{cache[0].file} matches the rows of {source[0].file}."), 1)
