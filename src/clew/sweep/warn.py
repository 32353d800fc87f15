"""Warnings beside a verdict, each with its numbers."""

import math
from functools import lru_cache

import numpy as np

from clew.report.sweep_view import Warning
from clew.report.text import number
from clew.sweep.cells import Runs
from clew.sweep.distributions import NORMAL
from clew.sweep.verdicts import Facts, leader, lucky_seed

MOST_NAMED = 6


def group_warnings(runs: Runs) -> tuple[Warning, ...]:
    if not runs.crashed.any() or not runs.roles.id:
        return ()
    held = runs.table.columns[runs.roles.id]
    names = [str(held.cell(int(row))) for row in np.flatnonzero(runs.crashed)]
    return (Warning("crashed", f"Crashed or without a finite result: {_some(names)}."),)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def warnings(facts: Facts, runs: Runs) -> tuple[Warning, ...]:
    found: list[Warning] = []
    for id, says in (
        ("also_varies", _also_varies(facts)),
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
    ):
        if says:
            found.append(Warning(id, says))
    return tuple(found)


def _also_varies(facts: Facts) -> str:
    held = facts.cells
    if held.confounded:
        return f"Also varies, and not in balance: {', '.join(held.confounded)}. Its effect is mixed into this table."
    if held.crossed:
        left = f" {held.uncrossed} runs outside complete crossings are not counted." if held.uncrossed else ""
        return f"Also varies, but crossed with every value: {', '.join(held.crossed)}. Cells are means over it.{left}"
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
        return "The values share too few seeds to be paired: the test is the weaker one for separate samples."
    shared = int((~facts.cells.missing).all(1).sum())
    return f"The values were not run with the same seeds: {shared} of {len(facts.cells.seeds)} seeds have every value."


def _duplicates(facts: Facts) -> str:
    count = facts.cells.doubled
    return f"{count} runs repeat the settings and the seed of another; of each set the newest counts." if count else ""


def _no_value(facts: Facts) -> str:
    count = facts.cells.unnamed
    return f"{count} runs do not say their {facts.param} and are not in this table." if count else ""


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
    return f"Best of {values}: noise alone would put the best {number(expected)} above the mean; here {number(lead)}."


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
    return f"Seed {facts.cells.seeds[found[0]]} carries the lead of {number(facts.cells.values[top])}."


def _few(facts: Facts) -> str:
    test = facts.decided.test
    if test is None or test.least <= 0.05:
        return ""
    return f"The smallest p that this many seeds and values allow is {test.least:.3f}."
