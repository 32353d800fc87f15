"""From rows to the table that is judged: one result per seed and value, with what was crashed, missing or doubled."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.report.sweep_view import Cell
from clew.sweep.roles import Roles
from clew.sweep.table import Column, Table

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
CROSSED = 0.8
"""The share of runs that must stand in complete crossings for another parameter to count as balanced."""


class Runs(NamedTuple):
    """The runs that count, with what is known of each. `metric` is NaN where a run crashed or has no result."""

    table: Table
    roles: Roles
    metric: Numbers
    crashed: Flags
    notes: tuple[str, ...]

    def take(self, rows: Flags) -> "Runs":
        return self._replace(table=self.table.take(rows), metric=self.metric[rows], crashed=self.crashed[rows])


class Cells(NamedTuple):
    """Seeds x values. `results` is NaN where a run crashed or is missing; `crashed` and `missing` tell which.

    `confounded` vary with the parameter; `crossed` vary too, but every value met the same settings of them.
    """

    param: str
    values: tuple[Cell, ...]
    seeds: tuple[str, ...]
    results: Numbers
    crashed: Flags
    missing: Flags
    confounded: tuple[str, ...]
    crossed: tuple[str, ...]
    doubled: int
    uncrossed: int
    unnamed: int


def varying(runs: Runs, skip: str = "") -> list[str]:
    """Settings with more than one value among these runs."""
    return [name for name in runs.roles.settings if name != skip and len(np.unique(runs.table.columns[name].codes)) > 1]


def cells(runs: Runs, param: str) -> Cells:
    held = runs.table.columns[param]
    named = held.codes >= 0
    unnamed = int((~named).sum())
    if unnamed:
        runs = runs.take(named)
        held = runs.table.columns[param]
    order = _order(held)
    place = {int(code): index for index, code in enumerate(order)}
    value = np.array([place[int(code)] for code in held.codes], dtype=np.int64)
    seed, seeds = _seeds(runs)
    # Only within seeds that several values share does a setting that follows from the seed drop out.
    unit = seed if _shared(seed, value) else np.zeros_like(seed)
    others = [name for name in varying(runs, param) if not _by_seed(runs.table.columns[name], unit)]
    combination = _combine([runs.table.columns[name].codes for name in others], len(value))
    keep = _newest(runs, seed, value, combination)
    doubled = int((~keep).sum())
    results, crashed, there = _fill(
        runs.metric[keep], runs.crashed[keep], seed[keep], value[keep], len(seeds), len(order)
    )
    confounded: tuple[str, ...] = ()
    crossed: tuple[str, ...] = ()
    uncrossed = 0
    if others:
        whole = _whole_crossings(unit[keep], value[keep], combination[keep])
        if whole.mean() >= CROSSED:
            crossed, uncrossed = tuple(others), int((~whole).sum())
            kept = np.flatnonzero(keep)[whole]
            results, crashed, there = _fill(
                runs.metric[kept], runs.crashed[kept], seed[kept], value[kept], len(seeds), len(order)
            )
        else:
            confounded = tuple(others)
    return Cells(
        param,
        tuple(held.labels[code] for code in order),
        seeds,
        results,
        crashed,
        ~there,
        confounded,
        crossed,
        doubled,
        uncrossed,
        unnamed,
    )


def _order(held: Column) -> list[int]:
    """The values in their order: numbers by size, then texts."""
    codes = [int(code) for code in np.unique(held.codes)]

    def key(code: int) -> tuple[int, float, str]:
        label = held.labels[code]
        return (1, 0.0, label) if isinstance(label, str) else (0, float(label), "")

    return sorted(codes, key=key)


def _seeds(runs: Runs) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The seed of every run, as a number. Without a seed column every run is a seed of its own."""
    if not runs.roles.seed:
        return np.arange(runs.table.rows), tuple(f"run {row + 1}" for row in range(runs.table.rows))
    held = runs.table.columns[runs.roles.seed]
    codes, back = np.unique(held.codes, return_inverse=True)
    return back, tuple("no seed" if code < 0 else str(held.labels[code]) for code in codes)


def _shared(seed: NDArray[Any], value: NDArray[Any]) -> bool:
    pairs = np.unique(np.stack([seed, value]), axis=1)
    return bool((np.bincount(pairs[0]) > 1).mean() >= 0.5)


def _by_seed(held: Column, seed: NDArray[np.int64]) -> bool:
    """Whether a setting follows from the seed: then it never differs between values of one seed."""
    pairs = np.unique(np.stack([seed, held.codes]), axis=1)
    return bool(pairs.shape[1] == len(np.unique(seed)))


def _combine(codes: list[Any], rows: int) -> NDArray[np.int64]:
    made = np.zeros(rows, dtype=np.int64)
    for held in codes:
        _, back = np.unique(held, return_inverse=True)
        _, made = np.unique(made * (int(back.max(initial=0)) + 1) + back, return_inverse=True)
    return made


def _newest(runs: Runs, seed: NDArray[Any], value: NDArray[Any], combination: NDArray[Any]) -> Flags:
    """Of runs with the same settings and seed, the newest counts: the last by time, else by row."""
    key = _combine([seed, value, combination], len(seed))
    when = np.zeros(len(seed), dtype=np.int64)
    if runs.roles.time:
        held = runs.table.columns[runs.roles.time]
        place = {label: index for index, label in enumerate(sorted(held.labels, key=str))}
        ranks = np.array([place[label] for label in held.labels] + [-1], dtype=np.int64)
        when = ranks[held.codes]
    order = np.lexsort((np.arange(len(seed)), when, key))
    last = np.append(key[order][1:] != key[order][:-1], True)
    keep = np.zeros(len(seed), dtype=bool)
    keep[order[last]] = True
    return keep


def _fill(
    metric: Numbers, crashed: Flags, seed: NDArray[Any], value: NDArray[Any], seeds: int, values: int
) -> tuple[Numbers, Flags, Flags]:
    """The mean of a cell; a cell with a crashed run has crashed."""
    cell = seed * values + value
    count = np.bincount(cell, minlength=seeds * values)
    total = np.bincount(cell, weights=np.where(crashed, 0.0, metric), minlength=seeds * values)
    broken = np.bincount(cell, weights=crashed, minlength=seeds * values) > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(broken | (count == 0), np.nan, total / count)
    shape = (seeds, values)
    return mean.reshape(shape), broken.reshape(shape), (count > 0).reshape(shape)


def _whole_crossings(seed: NDArray[Any], value: NDArray[Any], combination: NDArray[Any]) -> Flags:
    """Runs whose other settings were tried, in their seed, with every value that the seed has."""
    wanted = {int(one): len(np.unique(value[seed == one])) for one in np.unique(seed)}
    block = _combine([seed, combination], len(seed))
    pairs = np.unique(np.stack([block, value]), axis=1)
    size = np.bincount(pairs[0])
    need = np.array([wanted[int(one)] for one in seed])
    whole: Flags = (size[block] == need) & (need > 1)
    return whole
