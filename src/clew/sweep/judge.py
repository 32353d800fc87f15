"""What a sweep shows: for every group and parameter a table, a test, the warnings and a verdict."""

import math
from typing import NamedTuple

import numpy as np

from clew.errors import ClewError
from clew.report.sweep_view import Cell, GroupView, ParamView, SweepView, TrendRow, ValueRow, Warning
from clew.sweep.cells import Cells, Runs, cells, varying
from clew.sweep.decide import Decided, OfValue, decide
from clew.sweep.intervals import Interval
from clew.sweep.prepare import Request, goal_of, prepare
from clew.sweep.roles import bare, shown
from clew.sweep.table import Table
from clew.sweep.trend import Trend, trend
from clew.sweep.verdicts import Facts, verdict
from clew.sweep.warn import group_warnings, warnings

MOST_VALUES = 1000
MANY_GROUPS = 50


class Judged(NamedTuple):
    """One parameter of one group, with what the verdict was drawn from. Larger is better in `decided`."""

    cells: Cells
    decided: Decided
    trend: Trend | None


def judge(table: Table, request: Request) -> SweepView:
    runs, metric = prepare(table, request)
    goal, why = goal_of(request, metric)
    notes = list(runs.notes)
    groups = []
    parts = split(runs)
    many = len(parts) > MANY_GROUPS
    if many:
        notes.append(f"{len(parts)} groups: bootstrap intervals are left out; judge one with --group to have them.")
    for name, part in parts:
        groups.append(_group(name, part, request, 1.0 if goal == "max" else -1.0, many))
    judged = sum(len(group.params) for group in groups)
    if not judged:
        raise ClewError(_nothing(runs, request))
    return SweepView(metric, goal, why, tuple(groups), table.source, tuple(notes))


def _nothing(runs: Runs, request: Request) -> str:
    if runs.table.rows == 1:
        return f"{runs.table.source} holds one run: a sweep compares several."
    if request.param:
        return f"{request.param} has the same value in all {runs.table.rows} runs: there is nothing to compare."
    return f"no parameter varies within a group of {runs.table.source}; --param names the column to judge."


def split(runs: Runs) -> list[tuple[str, Runs]]:
    """Runs are only ever compared within their group."""
    if not runs.roles.group:
        return [("all runs", runs)]
    held = runs.table.columns[runs.roles.group]
    found = []
    order = np.argsort(held.codes, kind="stable")
    cuts = np.flatnonzero(np.diff(held.codes[order])) + 1
    for rows in np.split(order, cuts):
        code = int(held.codes[rows[0]])
        found.append(("no group" if code < 0 else str(held.labels[code]), runs.take(np.sort(rows))))
    return found


def _group(name: str, runs: Runs, request: Request, sign: float, many: bool) -> GroupView:
    asked = _asked(runs, request)
    params = tuple(_param(runs, param, request, sign, many) for param in asked)
    seeds = runs.table.columns[runs.roles.seed].codes if runs.roles.seed else np.arange(runs.table.rows)
    return GroupView(
        name, runs.table.rows, len(np.unique(seeds)), int(runs.crashed.sum()), params, group_warnings(runs)
    )


def _asked(runs: Runs, request: Request) -> list[str]:
    found = varying(runs)
    if request.param:
        return [name for name in found if name == request.param or bare(name) == bare(request.param)][:1]
    return found


def judge_param(runs: Runs, param: str, sign: float, seed: int, many: bool = False) -> Judged:
    held = cells(runs, param)
    if len(held.values) > MOST_VALUES:
        raise ClewError(
            f"{param} has {len(held.values)} values; up to {MOST_VALUES} can be compared. Is it a setting at all?"
        )
    decided = decide(sign * held.results, held.crashed, seed, many)
    numeric = [value for value in held.values if isinstance(value, int | float) and not isinstance(value, bool)]
    found = None
    if len(numeric) == len(held.values):
        kept = [index for index in range(len(numeric)) if index not in decided.apart]
        table = sign * held.results[:, kept]
        found = trend([float(numeric[index]) for index in kept], table)
    return Judged(held, decided, found)


def _param(runs: Runs, param: str, request: Request, sign: float, many: bool) -> ParamView:
    judged = judge_param(runs, param, sign, request.seed, many)
    held, decided = judged.cells, judged.decided
    held = held._replace(
        confounded=tuple(map(shown, held.confounded)), crossed=tuple(map(shown, held.crossed)), param=shown(param)
    )
    facts = Facts(held.param, held, decided, judged.trend, sign)
    said = verdict(facts)
    best = None if said.best is None else held.values[said.best]
    return ParamView(
        held.param,
        (*held.confounded, *held.crossed),
        tuple(_row(held.values[v], row, v in decided.apart, sign) for v, row in enumerate(decided.rows)),
        _trend(judged.trend, sign),
        said.verdicts[0],
        said.verdicts,
        best,
        said.says,
        warnings(facts, runs),
        _test(decided),
        decided.test.omnibus if decided.test else None,
        decided.paired,
        held.seeds,
        tuple(tuple(_number(float(one)) for one in row) for row in held.results),
    )


def _test(decided: Decided) -> str:
    if decided.test is None:
        return "no test: there is one seed, or one value"
    how = f"all {decided.test.tables}" if decided.test.exact else f"{decided.test.tables} random"
    where = "within seeds" if decided.paired else "over all runs, because the values share no seeds"
    ranks = "; on ranks, a crashed run the lowest" if decided.ranked else ""
    return f"{how} rearrangements {where}, largest statistic over values{ranks}"


def _row(value: Cell, row: OfValue, apart: bool, sign: float) -> ValueRow:
    """In the metric's own units; `difference` above zero always means better."""

    def low_high(one: float, other: float) -> tuple[float | None, float | None]:
        pair = (one, other) if sign > 0 else (-other, -one)
        return _number(pair[0]), _number(pair[1])

    q10, q90 = low_high(row.q10, row.q90)
    return ValueRow(
        value,
        row.n,
        row.crashed,
        _number(sign * row.mean),
        q10,
        q90,
        _number(sign * row.iqm),
        _number(row.z),
        _number(row.t) if math.isfinite(row.t) else None,  # a lead that is the same in every seed has no t
        _number(row.lead),
        _interval(row.ci),
        _interval(row.ci_t),
        _interval(row.ci_bca),
        _number(row.improvement),
        _interval(row.improvement_ci),
        _number(row.p),
        _number(row.adjusted),
        apart,
    )


def _trend(found: Trend | None, sign: float) -> TrendRow | None:
    """With the sign of the metric as it is: a rising loss rises."""
    if found is None:
        return None
    shape = found.shape
    if sign < 0:
        shape = {"rising": "falling", "falling": "rising", "peak": "valley"}.get(shape, shape)
    return TrendRow(
        sign * found.r,
        sign * found.spearman,
        sign * found.slope,
        sign * found.t,
        found.p,
        found.log,
        shape,
        found.peak,
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _interval(value: Interval) -> Interval | None:
    return None if math.isnan(value[0]) else value


__all__ = ["Judged", "Warning", "judge", "judge_param"]
