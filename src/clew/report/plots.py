"""From series to what a plot shows: lines in pixels, ticks, marks where values are not finite, and a sentence.

Nothing is drawn here: `templates/plot.svg.j2` draws what these frozen values say and decides nothing.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from clew.records.trace import Series
from clew.report.axes import Axis, StepAxis, step_axis, value_axis
from clew.report.text import number
from clew.report.thin import Bad, Reading, Thin, columns, in_order, span_of, spread, thinned

WIDTH, HEIGHT = 720, 190
MOST_LINES = 8
COLOURS = 8
DOTTED = 40
"""Of up to three lines of up to this many points, each point is shown: the reader sees where the samples are."""
JOIN = 2.0
"""Marks of NaN and Inf that stand closer than this many pixels are one mark."""
NARROWEST = 3.0

Point = tuple[float, float]
Named = tuple[str, Series]


class Line(NamedTuple):
    """One quantity. `last` is its last reading in words; dashes tell neighbours apart in a crowded plot."""

    label: str
    last: str
    colour: int
    dashed: bool
    pieces: tuple[tuple[Point, ...], ...]
    dots: tuple[Point, ...] = ()


class Band(NamedTuple):
    """The lowest to the highest of many quantities, with their median."""

    label: str
    areas: tuple[tuple[Point, ...], ...]
    median: tuple[tuple[Point, ...], ...]
    last: str


class Mark(NamedTuple):
    """A stretch of the plot, in pixels, where values are NaN or infinite."""

    left: float
    right: float
    says: str


class Zone(NamedTuple):
    """A stretch of values worth comparing with; in a finished plot, `low` and `high` are pixels."""

    low: float
    high: float
    label: str


class Flag(NamedTuple):
    """A step worth looking at."""

    at: float
    label: str


class Frame(NamedTuple):
    """The two axes; pixels count from the top left."""

    steps: StepAxis
    values: Axis

    def point(self, reading: Reading) -> Point:
        step, value = reading
        return (round(self.steps.at(step), 1), round(HEIGHT - self.values.at(value), 1))

    def piece(self, readings: Sequence[Reading]) -> tuple[Point, ...]:
        return tuple(self.point(reading) for reading in readings)


class Plot(NamedTuple):
    """All that the template needs. `missing` says why there is nothing to show; it is "" when there is."""

    title: str
    unit: str = ""
    says: str = ""
    missing: str = ""
    frame: Frame | None = None
    lines: tuple[Line, ...] = ()
    band: Band | None = None
    marks: tuple[Mark, ...] = ()
    zone: Zone | None = None
    flags: tuple[Flag, ...] = ()
    describes: str = ""


def plot(
    title: str,
    named: Sequence[Named],
    *,
    unit: str = "",
    scale: str = "auto",
    zone: Zone | None = None,
    span: tuple[int, int] | None = None,
    flags: Sequence[tuple[int, str]] = (),
) -> Plot:
    """Lines for these series, over the steps of `span` so that several plots line up; `zone` is in values here."""
    held = [(label, in_order(series)) for label, series in named if series.steps]
    if not held:
        return Plot(title, unit, missing="Nothing was recorded.")
    first, last = span or span_of([series for _, series in held])
    thin = [thinned(series, first, last, WIDTH, label) for label, series in held]
    crowded = len(held) > MOST_LINES
    chosen = _chosen(held, thin) if crowded else list(range(len(held)))
    shown = [value for index in chosen for _, value in thin[index].points]
    between = spread([series for _, series in held]) if crowded else None
    if between is not None:
        shown += [value for series in between for value in series.values if math.isfinite(value)]
    values = value_axis(shown, HEIGHT, scale, (zone.low, zone.high) if zone else ())
    frame = Frame(step_axis(first, last, WIDTH), values)
    return Plot(
        title,
        unit,
        _summary(held, thin),
        "" if shown else "Not one value is finite.",
        frame,
        tuple(_line(held[index], thin[index], rank, len(chosen), frame) for rank, index in enumerate(chosen)),
        _band(between, len(held), frame) if between is not None else None,
        _marks([bad for item in thin for bad in item.bad], frame.steps),
        Zone(HEIGHT - values.at(zone.low), HEIGHT - values.at(zone.high), zone.label) if zone else None,
        tuple(Flag(round(frame.steps.at(step), 1), label) for step, label in flags if first <= step <= last),
        _description(frame, unit, len(held)),
    )


def _chosen(held: list[Named], thin: list[Thin]) -> list[int]:
    """Which of many to draw: the highest and the lowest, and the rest evenly over the depth, weights before biases."""
    levels = {}
    for index, item in enumerate(thin):
        values = sorted(value for _, value in item.points)
        if values:
            levels[index] = values[len(values) // 2]
    chosen = {min(levels, key=levels.__getitem__), max(levels, key=levels.__getitem__)} if levels else set()
    able = [index for index in levels if index not in chosen]
    able = [index for index in able if not held[index][0].endswith("bias")] or able
    room = min(MOST_LINES - len(chosen), len(able))
    chosen |= {able[round(rank * (len(able) - 1) / max(room - 1, 1))] for rank in range(room)}
    return sorted(chosen)


def _line(held: Named, thin: Thin, rank: int, count: int, frame: Frame) -> Line:
    label, series = held
    pieces = tuple(frame.piece(piece) for piece in thin.pieces)
    few = count <= 3 and sum(map(len, pieces)) <= DOTTED
    return Line(
        label,
        number(series.values[-1]),
        round(rank * (COLOURS - 1) / max(count - 1, 1)),
        count > COLOURS // 2 and rank % 2 == 1,
        tuple(piece for piece in pieces if len(piece) > 1),
        tuple(point for piece in pieces for point in piece if few or len(piece) == 1),
    )


def _band(between: tuple[Series, Series, Series], count: int, frame: Frame) -> Band:
    lowest, median, highest = between
    first, last, _, _ = frame.steps
    areas: list[list[tuple[int, float, float]]] = []
    torn = True
    for begin, end in columns(lowest.steps, first, last, WIDTH):
        fine = [index for index in range(begin, end) if math.isfinite(lowest.values[index])]
        torn = torn or not fine or fine[0] != begin
        if fine:
            if torn:
                areas.append([])
            low, high = min(lowest.values[index] for index in fine), max(highest.values[index] for index in fine)
            areas[-1] += [(lowest.steps[index], low, high) for index in sorted({fine[0], fine[-1]})]
            torn = fine[-1] != end - 1
    return Band(
        f"lowest to highest of all {count}",
        tuple(
            frame.piece([(step, high) for step, _, high in area] + [(step, low) for step, low, _ in reversed(area)])
            for area in areas
        ),
        tuple(frame.piece(piece) for piece in thinned(median, first, last, WIDTH).pieces),
        number(median.values[-1]),
    )


def _marks(found: list[Bad], steps: StepAxis) -> tuple[Mark, ...]:
    """Where values are not finite, those that would touch on a screen taken together."""
    groups: list[list[Bad]] = []
    reach = 0.0
    for bad in sorted(found):
        if groups and steps.at(bad.first) - reach <= JOIN:
            groups[-1].append(bad)
            reach = max(reach, steps.at(bad.last))
        else:
            groups.append([bad])
            reach = steps.at(bad.last)
    marks = []
    for group in groups:
        left, right = steps.at(group[0].first), max(steps.at(bad.last) for bad in group)
        if right - left < NARROWEST:
            left = min(max((left + right - NARROWEST) / 2, 0.0), WIDTH - NARROWEST)
            right = left + NARROWEST
        marks.append(Mark(round(left, 1), round(right, 1), _not_finite(group)))
    return tuple(marks)


def _not_finite(group: list[Bad]) -> str:
    nan, infinite = sum(bad.nan for bad in group), sum(bad.infinite for bad in group)
    counts = " and ".join(f"{count} {name}" for count, name in ((nan, "NaN"), (infinite, "Inf")) if count)
    first, last = group[0].first, max(bad.last for bad in group)
    names = {bad.label for bad in group}
    where = f"in {min(names)}" if len(names) == 1 else f"in {len(names)} series"
    return f"{counts} {where}, {f'step {first}' if first == last else f'steps {first} to {last}'}"


def _summary(held: list[Named], thin: list[Thin]) -> str:
    """What the plot shows, in a sentence or two."""
    said = [_course(thin[0].points) if len(held) == 1 else _ends(held, thin)]
    bad = sorted(item for part in thin for item in part.bad)
    if bad:
        total = sum(item.nan + item.infinite for item in bad)
        whole = sum(len(series.steps) for _, series in held)
        where = f", in {bad[0].label}" if len(held) > 1 else ""
        are = "is" if total == 1 else "are"
        said.append(f"{total} of {whole} values {are} NaN or Inf, the first at step {bad[0].first}{where}.")
    return " ".join(filter(None, said))


def _course(points: list[Reading]) -> str:
    if not points:
        return ""
    low, high = min(points, key=lambda point: point[1]), max(points, key=lambda point: point[1])
    if len(points) == 1:
        return f"One finite value: {number(low[1])} at step {low[0]}."
    if low[1] == high[1]:
        return f"Constant: {number(low[1])}."
    return (
        f"From {number(points[0][1])} to {number(points[-1][1])}; "
        f"lowest {number(low[1])} at step {low[0]}, highest {number(high[1])} at step {high[0]}."
    )


def _ends(held: list[Named], thin: list[Thin]) -> str:
    ends = [(item.points[-1][1], label) for (label, _), item in zip(held, thin, strict=True) if item.pieces]
    if not ends:
        return ""
    (low, lowest), (high, highest) = min(ends), max(ends)
    last = "Last finite values" if any(item.bad for item in thin) else "Last values"
    return f"{last}: {number(low)} ({lowest}) to {number(high)} ({highest})."


def _description(frame: Frame, unit: str, count: int) -> str:
    """For readers who do not see the picture: the axes."""
    first, last, _, _ = frame.steps
    ticks = frame.values.ticks
    scale = "logarithmic" if frame.values.log else "linear"
    ends = f", ticks from {ticks[0].label} to {ticks[-1].label}" if ticks else ""
    lines = f"{count} series" if count > 1 else "One series"
    return f"{lines} over steps {first} to {last}; vertical axis {scale}{f', {unit}' if unit else ''}{ends}."
