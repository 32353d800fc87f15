"""The picture of one parameter: a thin line per seed, means with their intervals, the trend, crosses for crashes.

Values stand side by side in their order, at equal distances: which is better matters, not how far apart they are.
"""

import math
from typing import NamedTuple

from clew.report.axes import Axis, value_axis
from clew.report.sweep_view import ParamView, ValueRow
from clew.report.text import number

WIDTH, HEIGHT = 720, 240
MOST_SEEDS = 60
MOST_LABELS = 12
LONGEST_LABEL = 14

Point = tuple[float, float]


class Column(NamedTuple):
    """One value: where it stands, its name if there is room, its mean, q10 and q90 in pixels.

    `least` and `most` are the 95 % interval of its lead over the others of its seeds, drawn around its mean.
    """

    x: float
    label: str
    mean: float | None
    low: float | None
    high: float | None
    least: float | None
    most: float | None
    best: bool
    crashed: int
    says: str


class SweepPlot(NamedTuple):
    """All that the template draws. `cut` says how far down values reach that are too far away to be shown."""

    title: str
    axis: Axis
    columns: tuple[Column, ...]
    seeds: tuple[tuple[str, tuple[tuple[Point, ...], ...]], ...]
    describes: str
    cut: str
    trend: tuple[Point, ...]


def sweep_plot(param: ParamView, metric: str, goal: str = "max") -> SweepPlot | None:
    """None when there is not one finite result."""
    shown = [
        one
        for row in param.results
        for one, value in zip(row, param.values, strict=True)
        if one is not None and not value.diverged and math.isfinite(one)
    ]
    if not shown:
        return None
    axis = value_axis(shown, HEIGHT)
    step = WIDTH / len(param.values)
    places = [round(step * (index + 0.5), 1) for index in range(len(param.values))]
    every = max(1, math.ceil(len(places) / MOST_LABELS))
    columns = []
    for index, row in enumerate(param.values):
        name = number(row.value)
        label = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
        ends = _around(row, goal)
        columns.append(
            Column(
                places[index],
                label if index % every == 0 else "",
                None if row.diverged else _down(axis, row.mean),
                None if row.diverged else _down(axis, row.q10),
                None if row.diverged else _down(axis, row.q90),
                None if row.diverged else _down(axis, ends[0]),
                None if row.diverged else _down(axis, ends[1]),
                param.best is not None and row.value == param.best,
                row.crashed,
                f"{name}: mean {number(row.mean) if row.mean is not None else 'none'}, {row.n_seeds} seeds"
                + (f", {row.crashed} crashed" if row.crashed else ""),
            )
        )
    apart = [number(row.value) for row in param.values if row.diverged]
    return SweepPlot(
        f"{metric} by {param.name}",
        axis,
        tuple(columns),
        tuple(_seed(param, row, axis, places) for row in range(min(len(param.seeds), MOST_SEEDS))),
        f"{len(param.values)} values of {param.name}, {len(param.seeds)} seeds. {param.says}",
        f"not drawn, set apart: {', '.join(apart)}" if apart else "",
        _trend(param, axis, places),
    )


def _around(row: ValueRow, goal: str) -> tuple[float | None, float | None]:
    """The interval of the lead, moved to where the mean stands. A lead above zero is better, whatever the goal."""
    if row.ci is None or row.mean is None or row.difference is None:
        return None, None
    sign = 1.0 if goal == "max" else -1.0
    ends = [row.mean + sign * (one - row.difference) for one in row.ci]
    return min(ends), max(ends)


def _trend(param: ParamView, axis: Axis, places: list[float]) -> tuple[Point, ...]:
    """The mean slope of the seeds, through the middle of the means; straight in the value or its logarithm.

    Only for a monotone shape: a line through a peak would say what is not so.
    """
    held = [
        (x, float(row.value), row.mean)
        for x, row in zip(places, param.values, strict=True)
        if row.mean is not None and not row.diverged and not isinstance(row.value, str | bool)
    ]
    if param.trend is None or param.trend.shape not in ("rising", "falling") or len(held) < 3:
        return ()
    at = [math.log10(value) if param.trend.log else value for _, value, _ in held]
    middle, level = sum(at) / len(at), sum(mean for _, _, mean in held) / len(held)
    made = [
        (x, _down(axis, level + param.trend.slope * (one - middle))) for (x, _, _), one in zip(held, at, strict=True)
    ]
    return tuple((x, y) for x, y in made if y is not None and -20 <= y <= HEIGHT + 20)


def _down(axis: Axis, value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(HEIGHT - axis.at(value), 1)


def _seed(param: ParamView, row: int, axis: Axis, places: list[float]) -> tuple[str, tuple[tuple[Point, ...], ...]]:
    """The results of one seed, torn where there is none."""
    pieces: list[list[Point]] = [[]]
    for x, one, value in zip(places, param.results[row], param.values, strict=True):
        y = None if value.diverged else _down(axis, one)
        if y is None:
            pieces.append([])
        else:
            pieces[-1].append((x, y))
    return param.seeds[row], tuple(tuple(piece) for piece in pieces if piece)
