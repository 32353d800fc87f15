"""The picture of one parameter: a thin line per seed, the mean of every value, crosses where a run crashed.

Values stand side by side in their order, at equal distances: which is better matters, not how far apart they are.
"""

import math
from typing import NamedTuple

from clew.report.axes import Axis, value_axis
from clew.report.sweep_view import ParamView
from clew.report.text import number

WIDTH, HEIGHT = 720, 240
MOST_SEEDS = 60
MOST_LABELS = 12
LONGEST_LABEL = 14

Point = tuple[float, float]


class Column(NamedTuple):
    """One value: where it stands, its name if there is room, its mean, q10 and q90 in pixels."""

    x: float
    label: str
    mean: float | None
    low: float | None
    high: float | None
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


def sweep_plot(param: ParamView, metric: str) -> SweepPlot | None:
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
        columns.append(
            Column(
                places[index],
                label if index % every == 0 else "",
                None if row.diverged else _down(axis, row.mean),
                None if row.diverged else _down(axis, row.q10),
                None if row.diverged else _down(axis, row.q90),
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
    )


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
