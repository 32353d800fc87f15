"""A series reduced to what a screen can show.

Of each column of pixels the first, lowest, highest and last value stay, so a spike of one step among a million stays a
spike. Values that are not finite cut the line and are counted apart: NaN is a reading and must be seen.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import le
from typing import NamedTuple

from clew.records.trace import Series

Reading = tuple[int, float]


class Bad(NamedTuple):
    """Values next to each other that are not finite."""

    first: int
    last: int
    nan: int
    infinite: int
    label: str = ""


class Thin(NamedTuple):
    """Readings in the series' own units, in pieces between values that are not finite."""

    pieces: tuple[tuple[Reading, ...], ...]
    bad: tuple[Bad, ...]

    @property
    def points(self) -> list[Reading]:
        return [point for piece in self.pieces for point in piece]


def span_of(series: Sequence[Series]) -> tuple[int, int]:
    """The steps that these series cover; never empty, so that a single step has a place in the middle."""
    first = min((min(item.steps) for item in series if item.steps), default=0)
    last = max((max(item.steps) for item in series if item.steps), default=0)
    return (first - 1, last + 1) if first == last else (first, last)


def in_order(series: Series) -> Series:
    """By step. A trace joined from several files, or a step counter that starts again, need not be."""
    steps = series.steps
    if all(map(le, steps, islice(steps, 1, None))):
        return series
    order = sorted(range(len(steps)), key=steps.__getitem__)
    return series._replace(
        steps=tuple(steps[index] for index in order), values=tuple(series.values[index] for index in order)
    )


def columns(steps: Sequence[int], first: int, last: int, count: int) -> Iterator[tuple[int, int]]:
    """Slices of the ordered steps, one per column of pixels that has any. Whole numbers all through: exact."""
    begin, whole = 0, last - first + 1
    while begin < len(steps):
        column = (steps[begin] - first) * count // whole
        end = bisect_left(steps, first - (-(column + 1) * whole // count), begin)
        yield begin, end
        begin = end


def thinned(series: Series, first: int, last: int, count: int, label: str = "") -> Thin:
    """The series over `count` columns. It works on slices: a million points take a fraction of a second."""
    kept: list[int] = []
    bad: list[int] = []
    for begin, end in columns(series.steps, first, last, count):
        chunk = series.values[begin:end]
        if all(map(math.isfinite, chunk)):
            kept += [begin + offset for offset in _extremes(chunk)]
            continue
        bad += [begin + offset for offset, value in enumerate(chunk) if not math.isfinite(value)]
        fine = [begin + offset for offset, value in enumerate(chunk) if math.isfinite(value)]
        kept += [fine[offset] for offset in _extremes([series.values[index] for index in fine])]
    pieces: list[list[Reading]] = []
    before = -1
    for index in kept:
        position = bisect_left(bad, before)
        if not pieces or (position < len(bad) and bad[position] < index):
            pieces.append([])
        pieces[-1].append((series.steps[index], series.values[index]))
        before = index
    return Thin(tuple(map(tuple, pieces)), _stretches(series, bad, label))


def _extremes(chunk: Sequence[float]) -> list[int]:
    """Where the first, lowest, highest and last are, in their order and each once."""
    if len(chunk) <= 4:
        return list(range(len(chunk)))
    return sorted({0, chunk.index(min(chunk)), chunk.index(max(chunk)), len(chunk) - 1})


def _stretches(series: Series, bad: list[int], label: str) -> tuple[Bad, ...]:
    found: list[Bad] = []
    previous = -2
    for index in bad:
        nan = math.isnan(series.values[index])
        step = series.steps[index]
        if index == previous + 1:
            held = found[-1]
            found[-1] = Bad(held.first, step, held.nan + nan, held.infinite + (not nan), label)
        else:
            found.append(Bad(step, step, int(nan), int(not nan), label))
        previous = index
    return tuple(found)


def spread(series: Sequence[Series]) -> tuple[Series, Series, Series]:
    """Lowest, median and highest of the finite values, step by step; NaN where most are not finite: the middle of the
    few that are left would look like a fall."""
    by_step: dict[int, list[float]] = {}
    for item in series:
        for step, value in zip(item.steps, item.values, strict=True):
            by_step.setdefault(step, []).append(value)
    steps = tuple(sorted(by_step))
    rows = []
    for step in steps:
        fine = sorted(filter(math.isfinite, by_step[step]))
        rows.append(fine if 2 * len(fine) > len(by_step[step]) else [math.nan])
    name = series[0].name
    return (
        Series(name, steps, tuple(row[0] for row in rows)),
        Series(name, steps, tuple(row[len(row) // 2] for row in rows)),
        Series(name, steps, tuple(row[-1] for row in rows)),
    )
