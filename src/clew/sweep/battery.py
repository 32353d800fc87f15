"""The same training code over several tasks, compared with a stored baseline.

The old and the new result of a task and seed are a pair. If the change did nothing, they could have come in either
order; the orders of all tasks of a seed are turned together, so that tasks may depend on one another. The statistic of
a task is the t of its differences, the largest over tasks is what is compared (max-T), and the adjusted p is at least
`guard` times the plain p, as for two values of a sweep. A crashed run ranks below every other.
"""

import math
import os
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError, did_you_mean
from clew.report.sweep_battery_page import ORDER, BatteryView, TaskRow
from clew.report.text import number
from clew.sweep import plan as planning
from clew.sweep.distributions import t_two_sided
from clew.sweep.intervals import t_interval
from clew.sweep.permute import EVERY, guard

Numbers = NDArray[np.float64]
Results = dict[str, dict[str, float | None]]
KEYS = ("name", "command", "metric", "goal", "seeds", "seconds", "tasks", "baseline")
DRAWS, ALPHA, CRASH_SHARE = 9999, 0.05, 0.2
KIND = "sweep battery baseline"


class Battery(NamedTuple):
    plan: planning.Plan
    tasks: tuple[str, ...]
    baseline: str


class Baseline(NamedTuple):
    results: Results
    code: str
    base: str
    made: str


def read_battery(path: str, baseline: str = "") -> Battery:
    table = planning.read_toml(path)
    for key in table:
        if key not in KEYS:
            raise ClewError(f"{path}: {key!r} means nothing in a battery{did_you_mean(key, KEYS) or '.'}")
    tasks = table.pop("tasks", None)
    if not isinstance(tasks, list) or not tasks or not all(isinstance(task, str) and task for task in tasks):
        raise ClewError(f"{path}: tasks must be a list of names, each put where the command says {{task}}.")
    kept = table.pop("baseline", "")
    name = str(table.get("name") or os.path.splitext(os.path.basename(path))[0])
    made = planning.plan_of({**table, "name": name, "params": {"task": tasks}}, path)
    beside = os.path.join(os.path.dirname(path), str(kept) or f"{name}.baseline.json")
    return Battery(made, tuple(tasks), baseline or beside)


def read_baseline(path: str) -> Baseline | None:
    from clew.records.exact import loads

    if not os.path.exists(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            table = loads(file.read())
        if table.get("kind") != KIND:
            raise ValueError("it is something else")
        results = {str(task): dict(seeds) for task, seeds in table["results"].items()}
        return Baseline(results, str(table["code"]), str(table["base"]), str(table["made"]))
    except (OSError, OverflowError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClewError(f"{path} is no baseline of a battery: {error}.") from error


def stored(made: Battery) -> Baseline | None:
    """The baseline of a battery, None when there is none yet."""
    old = read_baseline(made.baseline)
    if old is not None and old.base != made.plan.base:
        raise ClewError(f"{made.baseline} was made with another command or metric; --baseline names another file.")
    return old


def write_baseline(path: str, made: Battery, results: Results, code: str) -> None:
    from clew.archive.files import write_table

    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    table: dict[str, Any] = {"kind": KIND, "name": made.plan.name, "metric": made.plan.metric, "goal": made.plan.goal}
    table |= {"command": made.plan.command, "base": made.plan.base, "code": code, "made": when, "results": results}
    write_table(path, table)


def results_of(home: str, group: str, metric: str) -> tuple[Results, str]:
    """The last result of every task and seed of a group, None where the run crashed; and the digest of its code."""
    from clew.archive import runs
    from clew.sweep.archive import row_of

    found: Results = {}
    code = ""
    for record in runs.all_runs(home).records:
        held = dict(record.labels)
        if held.get("group") != group or record.state == "running":
            continue
        row = row_of(record, [])
        value = row.get(metric)
        fine = row["state"] == "finished" and isinstance(value, int | float) and math.isfinite(value)
        kept = found.setdefault(str(held.get("config.task", "")), {})
        kept[str(held.get("seed"))] = float(str(value)) if fine else None
        code = str(held.get("sweep.code", ""))
    return found, code


def compare(made: Battery, group: str, now: Results, code: str, old: Baseline | None) -> BatteryView:
    sign = 1.0 if made.plan.goal == "max" else -1.0
    tables = [_pairs(now.get(task, {}), old.results.get(task, {}) if old else {}, sign) for task in made.tasks]
    tested = _tested(tables)
    rows = tuple(
        _row(task, now.get(task, {}), old.results.get(task, {}) if old else {}, pairs, held, old is not None)
        for task, pairs, held in zip(made.tasks, tables, tested, strict=True)
    )
    verdict = next((name for name in ORDER if any(row.verdict == name for row in rows)), "no_change")
    same = None if old is None else old.code == code
    notes = ("the code is that of the baseline: differences are noise or the machine's.",) if same else ()
    test = "" if old is None else "signs of the differences turned within seeds, largest t over tasks"
    return BatteryView(
        made.plan.name,
        made.plan.metric,
        made.plan.goal,
        group,
        made.baseline,
        old.made if old else "",
        same,
        rows,
        verdict,
        _says(rows, verdict, made.baseline),
        test,
        notes,
    )


class Pairs(NamedTuple):
    """By seed, in one order: `gap` above zero is better, ranked where runs crashed; `plain` without crashed pairs."""

    seeds: tuple[str, ...]
    gap: Numbers
    plain: Numbers


def _pairs(now: dict[str, float | None], old: dict[str, float | None], sign: float) -> Pairs:
    seeds = tuple(sorted((seed for seed in now if seed in old), key=lambda one: (len(one), one)))
    held = [(now[seed], old[seed]) for seed in seeds]
    plain = np.array([sign * (new - before) for new, before in held if new is not None and before is not None])
    if len(plain) == len(held):
        return Pairs(seeds, plain, plain)
    far = float(np.abs(plain).max(initial=0.0)) + 1.0
    gap = np.array(
        [
            (sign * (new - before) if new is not None and before is not None else 0.0)
            - far * (new is None and before is not None)
            + far * (new is not None and before is None)
            for new, before in held
        ]
    )
    size = np.argsort(np.argsort(np.abs(gap), kind="stable"), kind="stable") + 1.0
    return Pairs(seeds, np.sign(gap) * size, plain)


class Tested(NamedTuple):
    t: float
    p: float
    adjusted: float
    alike: float
    least: float


def _tested(tables: list[Pairs], seed: int = 0) -> list[Tested | None]:
    """Max-T over tasks. Seeds are turned together over all tasks that have them."""
    names = sorted({one for pairs in tables for one in pairs.seeds})
    gaps = np.full((len(names), len(tables)), np.nan)
    for at, pairs in enumerate(tables):
        for one, gap in zip(pairs.seeds, pairs.gap, strict=True):
            gaps[names.index(one), at] = gap
    count = (~np.isnan(gaps)).sum(0)
    if not len(names) or (count < 2).all():
        return [None] * len(tables)
    exact = 2 ** len(names) <= EVERY
    if exact:
        signs = 1.0 - 2.0 * ((np.arange(2 ** len(names))[:, None] >> np.arange(len(names))) & 1)
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], (DRAWS, len(names)))
    observed = np.abs(_t(gaps[None])[0])
    found = np.abs(_t(gaps[None] * signs[:, :, None]))
    extra = 0 if exact else 1
    reach = observed * (1.0 - 1e-9)
    alone = ((found >= reach).sum(0) + extra) / (len(signs) + extra)
    most = ((found.max(1)[:, None] >= reach).sum(0) + extra) / (len(signs) + extra)
    lean = _t(gaps[None])[0]
    made: list[Tested | None] = []
    for at in range(len(tables)):
        if count[at] < 2:
            made.append(None)
            continue
        plain = t_two_sided(float(lean[at]), int(count[at]) - 1)
        alike = max(float(most[at]), plain)
        adjusted = max(alike, min(1.0, guard(2, int(count[at])) * plain))
        made.append(Tested(float(lean[at]), float(alone[at]), adjusted, alike, 2.0 / 2.0 ** int(count[at])))
    return made


def _t(gaps: Numbers) -> Numbers:
    """Over the axis of seeds; NaN is no pair. Differences that are all equal have a t without bound, or none at all."""
    there = ~np.isnan(gaps)
    n = there.sum(1)
    held = np.where(there, gaps, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = held.sum(1) / n
        error = np.sqrt((np.where(there, held - mean[:, None], 0.0) ** 2).sum(1) / (n - 1) / n)
        t = np.where(error > 1e-12 * np.abs(mean), mean / error, np.sign(mean) * np.inf)
    made: Numbers = np.where((n < 2) | (mean == 0.0) | np.isnan(t), 0.0, t)
    return made


def _row(
    task: str,
    now: dict[str, float | None],
    old: dict[str, float | None],
    pairs: Pairs,
    tested: Tested | None,
    compared: bool,
) -> TaskRow:
    crashed = sum(value is None for value in now.values())
    before = sum(old[seed] is None for seed in pairs.seeds)
    verdict, says = _verdict(now, old, pairs, tested, crashed, before) if compared else ("no_baseline", "")
    return TaskRow(
        task,
        verdict,
        says,
        len(pairs.seeds) if compared else len(now),
        crashed,
        before,
        _mean(now),
        _mean({seed: old[seed] for seed in pairs.seeds}),
        float(pairs.plain.mean()) if len(pairs.plain) else None,
        t_interval(pairs.plain) if len(pairs.plain) > 1 else None,
        tested.p if tested else None,
        tested.adjusted if tested else None,
        now,
        old,
    )


def _mean(held: dict[str, float | None]) -> float | None:
    there = [value for value in held.values() if value is not None]
    return sum(there) / len(there) if there else None


def _verdict(
    now: dict[str, float | None],
    old: dict[str, float | None],
    pairs: Pairs,
    tested: Tested | None,
    crashed: int,
    before: int,
) -> tuple[str, str]:
    if not now:
        return "no_baseline", "it was not run."
    if not old:
        return "no_baseline", "the baseline does not have it."
    if crashed > before and crashed >= CRASH_SHARE * len(now):
        return "crashed_runs", f"{crashed} of {len(now)} runs crashed, {before} before."
    if tested is None:
        return "too_few_seeds", f"{len(pairs.seeds)} seeds are shared with the baseline; no spread, no verdict."
    if len(pairs.plain) and not pairs.plain.any() and not crashed:
        return "no_change", "every result is the same to the last bit."
    if tested.adjusted <= ALPHA:
        better = tested.t > 0
        size = number(abs(float(pairs.plain.mean()))) if len(pairs.plain) else "an unknown amount"
        return ("improved", f"better by {size}.") if better else ("regressed", f"worse by {size}.")
    if tested.least > ALPHA:
        short = f"{len(pairs.seeds)} shared seeds reach p = {tested.least:.3f} at best; six are needed."
        return "too_few_seeds", short
    if tested.alike <= ALPHA:
        way = "better" if tested.t > 0 else "worse"
        return "too_few_seeds", f"looks {way} (p {tested.alike:.3f}), but skewed noise is not ruled out: add seeds."
    return "no_change", ""


def _says(rows: tuple[TaskRow, ...], verdict: str, baseline: str) -> str:
    if all(row.verdict == "no_baseline" for row in rows):
        return f"There is no baseline at {baseline} to compare with; --keep stores these results as one."
    counted = {name: [row.task for row in rows if row.verdict == name] for name in ORDER}
    told = [f"{name.replace('_', ' ')}: {', '.join(tasks)}" for name, tasks in counted.items() if tasks]
    lead = "Nothing got reliably worse. " if verdict not in ("regressed", "crashed_runs") else ""
    return f"{lead}{'; '.join(told)}."
