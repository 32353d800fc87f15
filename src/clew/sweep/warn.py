"""Warnings beside a verdict, each with its numbers."""

import math
from functools import lru_cache

import numpy as np

from clew.report.sweep_view import Warning
from clew.report.text import number
from clew.sweep.cells import Runs
from clew.sweep.crash_logs import what_the_logs_show
from clew.sweep.distributions import NORMAL, f_cdf
from clew.sweep.roles import shown
from clew.sweep.verdicts import Facts, leader, lucky_seed

MOST_NAMED = 6


def group_warnings(runs: Runs) -> tuple[Warning, ...]:
    if not runs.crashed.any() or not runs.roles.id:
        return ()
    held = runs.table.columns[runs.roles.id]
    names = [str(held.cell(int(row))) for row in np.flatnonzero(runs.crashed)]
    found = [Warning("crashed", f"Crashed or without a finite result: {_some(names)}.")]
    if logs := what_the_logs_show(runs):
        found.append(Warning("crash_logs", logs))
    return tuple(found)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def warnings(facts: Facts, runs: Runs) -> tuple[Warning, ...]:
    found: list[Warning] = []
    for id, says in (
        ("also_varies", _also_varies(facts, runs)),
        ("one_seed", _one_seed(facts)),
        ("missing_cells", _missing(facts)),
        ("seed_sets_differ", _seed_sets(facts)),
        ("duplicates", _duplicates(facts)),
        ("no_value", _no_value(facts)),
        ("diverged", _diverged(facts)),
        ("crashed", _crashed(facts, runs)),
        ("saturated", _saturated(facts)),
        ("best_of_many", _best_of_many(facts)),
        ("lucky_seed", _lucky(facts)),
        ("few_seeds", _few(facts)),
        ("spreads_differ", _spreads(facts)),
        ("cliff", _cliff(facts)),
    ):
        if says:
            found.append(Warning(id, says))
    return tuple(found)


def _also_varies(facts: Facts, runs: Runs) -> str:
    held = facts.cells
    counts = {shown(name): len(np.unique(runs.table.columns[name].codes)) for name in runs.roles.settings}

    def told(names: tuple[str, ...]) -> str:
        return ", ".join(f"{name} ({counts.get(name, 0)} values)" for name in names)

    if held.confounded:
        return f"Also varies, unbalanced: {told(held.confounded)}. Its effect is mixed into this table."
    if held.crossed:
        left = f" {held.uncrossed} runs outside complete crossings are not counted." if held.uncrossed else ""
        return f"Also varies, but crossed with every value: {told(held.crossed)}. Cells are means over it.{left}"
    return ""


def _one_seed(facts: Facts) -> str:
    names = [number(value) for value, row in zip(facts.cells.values, facts.decided.rows, strict=True) if row.n == 1]
    return f"One seed only: {_some(names)}. A single run says nothing about its spread." if names else ""


def _missing(facts: Facts) -> str:
    if not facts.decided.paired or not facts.cells.missing.any():
        return ""
    rows, columns = np.nonzero(facts.cells.missing)
    names = [
        f"{number(facts.cells.values[v])} with seed {facts.cells.seeds[s]}" for s, v in zip(rows, columns, strict=True)
    ]
    return f"{len(names)} of {facts.cells.missing.size} cells have no run: {_some(names)}."


def _seed_sets(facts: Facts) -> str:
    sets = {tuple(column) for column in facts.cells.missing.T}
    if len(sets) < 2:
        return ""
    if not facts.decided.paired:
        return "The values share too few seeds to be paired: the weaker test for separate samples is used."
    shared = int((~facts.cells.missing).all(1).sum())
    return f"The values were not run with the same seeds: {shared} of {len(facts.cells.seeds)} seeds have every value."


def _duplicates(facts: Facts) -> str:
    count = facts.cells.doubled
    return f"{count} runs repeat the settings and the seed of another; the newest of each counts." if count else ""


def _no_value(facts: Facts) -> str:
    count = facts.cells.unnamed
    return f"{count} runs do not report their {facts.param} and are left out of this table." if count else ""


def _diverged(facts: Facts) -> str:
    if not facts.decided.apart:
        return ""
    names = []
    for v in facts.decided.apart:
        row = facts.decided.rows[v]
        level = f"mean {number(facts.sign * row.mean)}" if not math.isnan(row.mean) else "all crashed"
        names.append(f"{number(facts.cells.values[v])} ({level})")
    return f"Set apart as diverged, so that it does not distort the others: {_some(names)}."


def _crashed(facts: Facts, runs: Runs) -> str:
    rows = facts.decided.rows
    count = sum(row.crashed for row in rows)
    if not count:
        return ""
    rates = [f"{number(facts.cells.values[v])}: {row.crashed} of {row.n}" for v, row in enumerate(rows) if row.crashed]
    unequal = len({row.crashed / row.n for row in rows if row.n}) > 1
    why = " The rate differs between values, so leaving them out would bias the means." if unequal else ""
    states = ""
    if runs.roles.state:
        held = runs.table.columns[runs.roles.state]
        words = sorted({str(held.cell(int(row))) for row in np.flatnonzero(runs.crashed)})
        states = f" Their state: {', '.join(words[:4])}."
    return f"{count} cells crashed ({_some(rates)}); they rank last.{why}{states}"


def _saturated(facts: Facts) -> str:
    held = facts.cells.results[np.isfinite(facts.cells.results)]
    if len(held) < 4:
        return ""
    top = float((facts.sign * held).max())
    share = float((facts.sign * held >= top).mean())
    if share >= 0.5:
        return f"{share:.0%} of the results are exactly {number(facts.sign * top)}: the metric is saturated."
    return ""


def _best_of_many(facts: Facts) -> str:
    top = leader(facts)
    values = len(facts.cells.values) - len(facts.decided.apart)
    if top is None or values < 5:
        return ""
    table = (
        facts.sign * facts.cells.results[:, [v for v in range(len(facts.cells.values)) if v not in facts.decided.apart]]
    )
    spread = _noise(table)
    seeds = facts.decided.rows[top].n
    if not spread > 0:
        return ""
    expected = expected_maximum(values) * spread / math.sqrt(max(seeds, 1))
    lead = facts.decided.rows[top].lead * (values - 1) / values
    return (
        f"Best of {values}: noise alone would put the best {number(expected)} above the mean; here it is "
        f"{number(lead)} above."
    )


def _noise(table: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
    """The standard deviation within cells once seed and value are taken away."""
    there = np.isfinite(table)
    if not there.all():
        table = table[there.all(1)]
    seeds, values = table.shape
    if seeds < 2 or values < 2:
        return math.nan
    left = table - table.mean(1, keepdims=True) - table.mean(0, keepdims=True) + table.mean()
    return math.sqrt(float((left**2).sum()) / ((seeds - 1) * (values - 1)))


@lru_cache(maxsize=256)
def expected_maximum(count: int) -> float:
    """The expected largest of this many standard normal numbers, by numerical integration."""
    edges = np.linspace(-9.0, 9.0, 4001)
    below = np.array([NORMAL.cdf(edge) for edge in edges]) ** count
    return float(9.0 - (below[1:] + below[:-1]).sum() * (edges[1] - edges[0]) / 2)


def _lucky(facts: Facts) -> str:
    top = leader(facts)
    found = lucky_seed(facts, top) if top is not None else None
    if top is None or found is None:
        return ""
    own = facts.cells.results[:, top]
    rest = np.delete(own, found[0])
    middle = float(np.median(rest[np.isfinite(rest)]))
    return (
        f"Seed {facts.cells.seeds[found[0]]} carries the lead of {number(facts.cells.values[top])}: "
        f"{number(float(own[found[0]]))} there, with a median of {number(middle)} over its other seeds."
    )


def _few(facts: Facts) -> str:
    test = facts.decided.test
    if test is None or test.least <= 0.05:
        return ""
    return f"The smallest p that this many seeds and values allow is {test.least:.3f}."


DIFFERS, RATIO = 0.01, 2.0


def _spreads(facts: Facts) -> str:
    """Values that scatter differently: the test then tells a difference, but not for certain one of the means."""
    kept = [v for v in range(len(facts.cells.values)) if v not in facts.decided.apart]
    table = facts.cells.results[:, kept]
    if len(kept) > 2:
        with np.errstate(invalid="ignore"):
            count = np.isfinite(table).sum(1, keepdims=True)
            table = table - np.nansum(table, 1, keepdims=True) / np.maximum(count, 1)
    columns = [column[np.isfinite(column)] for column in table.T]
    if len(columns) < 2 or min(len(column) for column in columns) < 4:
        return ""
    p, spread = brown_forsythe(columns), [float(column.std(ddof=1)) for column in columns]
    low, high = int(np.argmin(spread)), int(np.argmax(spread))
    if not p <= DIFFERS or not spread[low] > 0 or spread[high] < RATIO * spread[low]:
        return ""
    return (
        f"The values have different noise over seeds: standard deviation {number(spread[high])} for "
        f"{number(facts.cells.values[kept[high]])}, {number(spread[low])} for "
        f"{number(facts.cells.values[kept[low]])} (Brown-Forsythe p {p:.1g}). Where noise is skewed as well, "
        "a lead may come from that: look at the seeds."
    )


def brown_forsythe(columns: "list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]") -> float:
    """The p of equal spreads: analysis of variance of the distances from each column's median."""
    far = [np.abs(column - np.median(column)) for column in columns]
    total, count = np.concatenate(far), len(far)
    inside = float(sum(((one - one.mean()) ** 2).sum() for one in far))
    between = float(sum(len(one) * (one.mean() - total.mean()) ** 2 for one in far))
    if inside <= 0.0:
        return 1.0 if between <= 0.0 else 0.0
    return 1.0 - f_cdf(between / (count - 1) / (inside / (len(total) - count)), count - 1, len(total) - count)


def _cliff(facts: Facts) -> str:
    """Whether the leading value has a neighbour that diverged, mostly crashed, or lost most of the range tried."""
    top, values, rows = leader(facts), facts.cells.values, facts.decided.rows
    if top is None or any(isinstance(value, str | bool) for value in values):
        return ""
    apart = facts.decided.apart
    means = [row.mean for v, row in enumerate(rows) if v not in apart and not math.isnan(row.mean)]
    reach = max(means) - min(means)
    for v in (top - 1, top + 1):
        if not 0 <= v < len(rows) or not rows[v].n:
            continue
        lead = f"Cliff: {number(values[top])} leads, and next to it {number(values[v])} "
        if v in apart or rows[v].crashed * 2 > rows[v].n:
            how = (
                "diverged"
                if v in apart and not rows[v].crashed
                else f"crashed in {rows[v].crashed} of {rows[v].n} runs"
            )
            return f"{lead}{how}. A value further away is safer where seeds or data change."
        drop = rows[top].mean - rows[v].mean
        if len(means) > 3 and drop > 0.6 * reach and rows[v].adjusted <= 0.05 and rows[v].lean < 0:
            return f"{lead}loses {number(drop)}, {drop / reach:.0%} of the whole range of means."
    return ""
