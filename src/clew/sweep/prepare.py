"""From a table of runs to the runs that count: which metric, which goal, what crashed, what is still running."""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError
from clew.report.sweep_view import Cell
from clew.sweep.cells import Runs
from clew.sweep.expression import with_metric
from clew.sweep.merge import codes_of, merged
from clew.sweep.roles import Roles, bare, find_roles, known, named
from clew.sweep.table import Table, cell, numbers

FAILED = {"crashed", "failed", "killed", "error", "failure", "interrupted", "preempted", "aborted", "oom", "diverged"}
RUNNING = {"running", "queued", "pending", "scheduled", "created", "starting"}
SMALL_IS_GOOD = re.compile(
    r"(.*[_./ ])?(\w*loss|\w*error|err|mse|mae|rmse|ppl|perplexity|nll|bpb|bpc|fid|wer|cer|regret|time|cost|ece)"
    r"([_./ ].*)?"
)


class Request(NamedTuple):
    """What to judge. `groups` and `where` choose runs; `after` is a date; `seed` fixes every random draw."""

    metric: str
    param: str = ""
    goal: str = ""
    groups: tuple[str, ...] = ()
    after: str = ""
    where: tuple[str, ...] = ()
    seed_column: str = ""
    group_column: str = ""
    seed: int = 0
    merge: tuple[str, ...] = ()


def goal_of(request: Request, metric: str) -> tuple[str, str]:
    if request.goal:
        if request.goal not in ("max", "min"):
            raise ClewError(f"--goal is max or min, not {request.goal!r}.")
        return request.goal, "as asked"
    if re.search(r" [-+*/] |[+*(]", metric):
        return "max", "assumed for an expression; --goal min says otherwise"
    goal = "min" if SMALL_IS_GOOD.fullmatch(bare(metric)) else "max"
    return goal, "by its name; --goal max or --goal min says otherwise"


def prepare(table: Table, request: Request) -> tuple[Runs, str]:
    """The runs that count, and the name of the metric's column."""
    table, metric, results = with_metric(table, request.metric)
    param = known(table, request.param, "parameter") if request.param else ""
    if param == metric:
        raise ClewError(f"{metric} cannot be both the metric and the parameter.")
    roles = find_roles(table, metric, param, request.seed_column, request.group_column, results)
    notes = [*table.notes, *roles.notes]
    if request.merge:
        table = merged(table, roles, request.merge)
    table = _chosen(table, roles, request)
    table = _measured(table, roles, metric, notes)
    table = _last_rows(table, roles, metric, notes)
    values, _ = numbers(table, metric)
    crashed, running = _states(table, roles)
    if running.any():
        count = int(running.sum())
        notes.append(f"{count} run{'s are' if count > 1 else ' is'} still running and not counted yet.")
        table, values, crashed = table.take(~running), values[~running], crashed[~running]
    if not table.rows:
        raise ClewError(f"no run of {table.source} is left to judge.")
    crashed = crashed | ~np.isfinite(values)
    if crashed.all():
        raise ClewError(f"not one of {table.rows} runs has a finite {metric}: there is nothing to compare.")
    return Runs(table, roles, np.where(crashed, np.nan, values), crashed, tuple(notes)), metric


def _measured(table: Table, roles: Roles, metric: str, notes: list[str]) -> Table:
    """Without the groups in which no run has the metric: they are other work that lies beside."""
    if not roles.group:
        return table
    groups, there = table.columns[roles.group].codes, table.columns[metric].codes >= 0
    keep = np.isin(groups, groups[there])
    if keep.all() or not keep.any():
        return table
    named = table.columns[roles.id or roles.group]
    names = sorted({str(named.cell(int(row))) for row in np.flatnonzero(~keep)})
    more = " and others" if len(names) > 3 else ""
    left = int((~keep).sum())
    says = f"{left} run{'s' * (left != 1)} without {metric} {'are' if left != 1 else 'is'} left out"
    notes.append(f"{says}: {', '.join(names[:3])}{more}.")
    return table.take(keep)


def _chosen(table: Table, roles: Roles, request: Request) -> Table:
    keep = np.ones(table.rows, dtype=bool)
    if request.groups:
        codes = codes_of(table, roles, request.groups)
        keep &= np.isin(table.columns[roles.group].codes, codes)
    for words in request.where:
        name, sign, wanted = words.partition("=")
        if not sign:
            raise ClewError(f"--where takes NAME=VALUE, not {words!r}.")
        held = table.columns[known(table, name, "column")]
        codes = [code for code, label in enumerate(held.labels) if label == cell(wanted)]
        keep &= np.isin(held.codes, codes)
    if request.after:
        keep &= _after(table, roles, request.after)
    if not keep.any():
        raise ClewError(f"none of the {table.rows} runs of {table.source} is what was asked for.")
    return table.take(keep) if not keep.all() else table


def _after(table: Table, roles: Roles, after: str) -> NDArray[np.bool_]:
    if not roles.time:
        raise ClewError(f"{table.source} has no column that says when a run was made, so --after cannot choose.")
    since = _moment(after)
    if since is None:
        raise ClewError(f"--after takes a date such as 2026-03-31, not {after!r}.")
    held = table.columns[roles.time]
    late = [moment is not None and moment >= since for moment in map(_moment, held.labels)]
    return np.array([*late, False])[held.codes]


def _moment(value: Cell) -> float | None:
    """Seconds since 1970, from a date or from seconds or milliseconds."""
    from datetime import UTC, datetime

    if isinstance(value, int | float):
        return float(value) / 1000 if value > 1e11 else float(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _last_rows(table: Table, roles: Roles, metric: str, notes: list[str]) -> Table:
    """One row per run: of a run logged step by step the last row, of a run id given twice the newest."""
    if not roles.id:
        return table
    held = table.columns[roles.id]
    ids = held.codes[held.codes >= 0]
    if len(np.unique(ids)) == len(ids):
        return table
    order_by = roles.step or roles.time or named(table, ("updated_at", "ended"))
    when = np.zeros(table.rows)
    if order_by:
        column = table.columns[order_by]
        ranks = {label: index for index, label in enumerate(sorted(column.labels, key=_sort_key))}
        when = np.array([*(ranks[label] for label in column.labels), -1])[column.codes]
    key = np.where(held.codes >= 0, held.codes, -1 - np.arange(table.rows))
    order = np.lexsort((np.arange(table.rows), when, key))
    last = order[np.append(key[order][1:] != key[order][:-1], True)]
    dropped = table.rows - len(last)
    by = f"the last by {order_by}" if order_by else "the last row"
    notes.append(f"{dropped} rows repeat a run id in {roles.id}: of each run {by} counts for {metric}.")
    return table.take(np.sort(last))


def _sort_key(label: Cell) -> tuple[int, float, str]:
    return (1, 0.0, label) if isinstance(label, str) else (0, float(label), "")


def _states(table: Table, roles: Roles) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    none = np.zeros(table.rows, dtype=bool)
    if not roles.state:
        return none, none
    held = table.columns[roles.state]
    words = [str(label).strip().lower() for label in held.labels]
    is_exit = bare(roles.state) in ("exit", "exit_code", "returncode")
    failed = [
        word in FAILED or (is_exit and not isinstance(label, str) and label != 0)
        for word, label in zip(words, held.labels, strict=True)
    ]
    going = [word in RUNNING for word in words]
    return np.array([*failed, False])[held.codes], np.array([*going, False])[held.codes]
