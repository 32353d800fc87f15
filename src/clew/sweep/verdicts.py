"""From figures to a verdict. Larger is better here, whatever the goal.

A sweep may deserve several verdicts; the first is the one to act on: what makes a comparison void comes before what the
comparison shows.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.report.text import number
from clew.sweep.cells import Cells
from clew.sweep.decide import Decided
from clew.sweep.distributions import t_two_sided
from clew.sweep.permute import SKEW
from clew.sweep.trend import Trend, trend

ALPHA = 0.05
OUTLIER = 5.0
"""A seed whose result lies this many robust standard deviations from its value's others is luck or a fault."""
LEAST_SEEDS = 2


class Facts(NamedTuple):
    param: str
    cells: Cells
    decided: Decided
    trend: Trend | None
    sign: float


class Said(NamedTuple):
    """`best` is a position among the values, None when none may be called better."""

    verdicts: tuple[str, ...]
    best: int | None
    says: str


def verdict(facts: Facts) -> Said:
    top = leader(facts)
    found: list[tuple[str, str]] = []
    seeds = max((row.n for row in facts.decided.rows), default=0)
    if seeds < LEAST_SEEDS or top is None:
        found.append(("too_few_seeds", _one_seed(facts, seeds)))
    if facts.cells.confounded:
        found.append(("confounded", _confounded(facts)))
    if top is None or seeds < LEAST_SEEDS:
        return _said(found + _crashes(facts, top), None)
    row = facts.decided.rows[top]
    better = row.adjusted <= ALPHA and row.lean > 0
    crashes = _crashes(facts, top)
    heavy = bool(crashes) and (row.crashed > 0 or not better) and _heavy(facts)
    if heavy:
        found += crashes
    lucky = None if better else lucky_seed(facts, top)
    if lucky is not None:
        found.append(("lucky_seed", _lucky(facts, top, lucky)))
    if (dose := _dose(facts)) is not None:
        found.append(("dose_response", dose))
    if better:
        found.append(("reliable_better", _better(facts, top)))
    elif facts.decided.test is not None and facts.decided.test.least > ALPHA:
        found.append(("too_few_seeds", _out_of_reach(facts)))
    elif _if_alike(facts, top) <= ALPHA and row.lean > 0:
        found.append(("too_few_seeds", _skew_left_open(facts, top)))
    elif row.p <= ALPHA or (len(facts.cells.values) >= 8 and _plain(row.t, row.n) <= ALPHA):
        found.append(("multiple_comparisons", _best_of_many(facts, top)))
    else:
        found.append(("no_effect", _no_effect(facts, top)))
    if not heavy:
        found += crashes
    return _said(found, top if better and not facts.cells.confounded else None)


def _heavy(facts: Facts) -> bool:
    """Whether so many runs crashed that the rest cannot be taken for all: a tenth of all, or a fifth of one value."""
    rows = [row for row in facts.decided.rows if row.n]
    share = sum(row.crashed for row in rows) / sum(row.n for row in rows)
    return share >= 0.1 or max(row.crashed / row.n for row in rows) >= 0.2


def _said(found: list[tuple[str, str]], best: int | None) -> Said:
    return Said(tuple(dict.fromkeys(name for name, _ in found)), best, found[0][1])


def leader(facts: Facts) -> int | None:
    """The value with the best mean lead among those not set apart; None when there are no two to compare."""
    rows = facts.decided.rows
    able = [v for v in range(len(rows)) if v not in facts.decided.apart and not math.isnan(rows[v].lead)]
    if len(able) < 2:
        return None
    if facts.decided.ranked:
        # With crashed runs the mean of the rest flatters: the value that the ranks put first leads.
        return max(able, key=lambda v: (rows[v].lean, rows[v].lead))
    return max(able, key=lambda v: rows[v].lead)


def lucky_seed(facts: Facts, top: int) -> tuple[int, float] | None:
    """The seed without which the leader no longer leads or loses most of its lead, and how far out its result lies."""
    table = facts.sign * facts.cells.results
    kept = [v for v in range(table.shape[1]) if v not in facts.decided.apart]
    own = ahead(table[:, kept], kept.index(top))
    if np.isfinite(own).sum() < 3:
        return None
    scale = scatter(table[:, kept])
    # Compared with the other seeds of the same value, so that an effect of the value itself is no luck.
    off = own - np.median(own[np.isfinite(own)])
    at = int(np.nanargmax(off))
    far = float(off[at]) / scale if scale > 0 else math.inf if off[at] > 0 else 0.0
    if far < OUTLIER:
        return None
    rest = np.delete(table[:, kept], at, axis=0)
    means = [float(np.nanmean(column)) if np.isfinite(column).any() else -math.inf for column in rest.T]
    others = [mean for index, mean in enumerate(means) if kept[index] != top and math.isfinite(mean)]
    lead = means[kept.index(top)] - float(np.mean(others)) if others else 0.0
    lost = lead < 0.4 * facts.decided.rows[top].lead
    return (at, far) if lost or means[kept.index(top)] < max(means) else None


def ahead(table: NDArray[np.float64], v: int) -> NDArray[np.float64]:
    """The results of one value less the median of the others in the same seed."""
    rest = np.delete(table, v, axis=1)
    middle = [np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else math.nan for row in rest]
    left: NDArray[np.float64] = table[:, v] - np.array(middle)
    return left


def scatter(table: NDArray[np.float64]) -> float:
    """The robust standard deviation of a result, from the differences between values within seeds."""
    found = []
    for u in range(table.shape[1]):
        for v in range(u):
            gap = table[:, u] - table[:, v]
            gap = gap[np.isfinite(gap)]
            if len(gap) > 1:
                # The median gap itself is left out once: with few seeds its zero would halve the scale.
                found += sorted(np.abs(gap - np.median(gap)))[len(gap) % 2 :]
    return 1.4826 * float(np.median(found)) / math.sqrt(2.0) if found else 0.0


def _dose(facts: Facts) -> str | None:
    """A trend that all seeds share, that is monotone, and that holds without the value at its better end."""
    found = facts.trend
    if found is None or found.shape not in ("rising", "falling") or not found.p <= ALPHA or abs(found.spearman) < 0.5:
        return None
    kept = [v for v in range(len(facts.cells.values)) if v not in facts.decided.apart]
    table = facts.sign * facts.cells.results[:, kept]
    values = [float(facts.cells.values[v]) for v in kept]
    if found.t < 0:
        rest, left = values[1:], table[:, 1:]
    else:
        rest, left = values[:-1], table[:, :-1]
    if not _still(rest, left, found.t):
        return None
    up = (found.t > 0) == (facts.sign > 0)
    by = f"log {facts.param}" if found.log else facts.param
    return (
        f"The metric {('rises' if up else 'falls')} with {facts.param}: linear in {by}, mean r "
        f"{facts.sign * found.r:+.2f} over seeds, p {_p(found.p)} for the per-seed slopes. The better end is "
        f"{('the largest' if found.t > 0 else 'the smallest')} value tried; the best may lie beyond it."
    )


def _still(values: list[float], table: NDArray[np.float64], t: float) -> bool:
    if len(values) > 2:
        again = trend(values, table)
        return again is not None and again.p <= ALPHA and again.t * t > 0
    steps = table[:, 1] - table[:, 0]
    steps = steps[np.isfinite(steps)]
    if len(steps) < 2 or float(steps.std(ddof=1)) == 0.0:
        return len(steps) >= 2 and bool((steps * t > 0).all())
    again_t = float(steps.mean() / (steps.std(ddof=1) / math.sqrt(len(steps))))
    return again_t * t > 0 and t_two_sided(again_t, len(steps) - 1) <= ALPHA


def _crashes(facts: Facts, top: int | None) -> list[tuple[str, str]]:
    rows = facts.decided.rows
    count, total = sum(row.crashed for row in rows), sum(row.n for row in rows)
    if not count:
        return []
    named = [f"{number(facts.cells.values[v])}: {row.crashed} of {row.n}" for v, row in enumerate(rows) if row.crashed]
    own = ""
    if top is not None and rows[top].crashed:
        own = (
            f" The leading value {number(facts.cells.values[top])} is among them: its mean covers only the runs "
            "that survived."
        )
    return [
        (
            "crashed_runs",
            f"{count} of {total} runs crashed or have no finite result ({facts.param} {', '.join(named[:8])}). They "
            f"are ranked last, not dropped; read their logs before trusting any mean.{own}",
        )
    ]


def _plain(t: float, n: int) -> float:
    return t_two_sided(t, n - 1) if n > 1 and not math.isnan(t) else 1.0


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _one_seed(facts: Facts, seeds: int) -> str:
    if seeds < LEAST_SEEDS:
        return (
            f"Every value of {facts.param} has one seed: the spread between seeds is unknown, so there is no "
            "interval, no t and no verdict. Repeat all values with at least five more seeds."
        )
    return f"Fewer than two values of {facts.param} have comparable results."


def _out_of_reach(facts: Facts) -> str:
    test = facts.decided.test
    least = test.least if test is not None else 1.0
    values = len(facts.cells.values) - len(facts.decided.apart)
    seeds = facts.cells.results.shape[0]
    need = " Two values need six shared seeds." if values == 2 else ""
    return (
        f"{values} values of {facts.param} over {seeds} seeds can at best reach p = {least:.3f}, whatever the results: "
        f"too few seeds for a verdict.{need}"
    )


def _if_alike(facts: Facts, top: int) -> float:
    """The adjusted p if the noise of all values is alike; 1 where the number of values is what speaks against it."""
    test = facts.decided.test
    kept = [v for v in range(len(facts.cells.values)) if v not in facts.decided.apart]
    if test is None or not test.alike or len(kept) not in SKEW:
        return 1.0
    return test.alike[kept.index(top)]


def _skew_left_open(facts: Facts, top: int) -> str:
    row = facts.decided.rows[top]
    return (
        f"{facts.param} = {number(facts.cells.values[top])} leads by {number(row.lead)}, p {_p(_if_alike(facts, top))} "
        f"if the noise of all values is alike. {row.n} seeds cannot rule out skewed noise of unequal spread, which "
        f"makes such leads too: allowing for it, p is {_p(row.adjusted)}. Repeat with more seeds before relying on it."
    )


def _confounded(facts: Facts) -> str:
    names = ", ".join(facts.cells.confounded)
    are = "varies" if len(facts.cells.confounded) == 1 else "vary"
    return (
        f"{names} also {are} between the values of {facts.param}: a difference cannot be attributed to "
        f"{facts.param} alone."
    )


def _better(facts: Facts, top: int) -> str:
    row, value = facts.decided.rows[top], number(facts.cells.values[top])
    held = f" (95 % interval {number(row.ci[0])} to {number(row.ci[1])})" if not math.isnan(row.ci[0]) else ""
    return (
        f"{facts.param} = {value} is reliably better: {number(row.lead)} better than the mean of the others{held} over "
        f"{row.n} seeds, adjusted p {_p(row.adjusted)}."
    )


def _lucky(facts: Facts, top: int, lucky: tuple[int, float]) -> str:
    at, far = lucky
    away = f"{far:.0f} robust standard deviations above its other seeds" if math.isfinite(far) else "far above the rest"
    return (
        f"{facts.param} = {number(facts.cells.values[top])} has the best mean because of seed "
        f"{facts.cells.seeds[at]}, which lies {away}; without that seed the lead is gone. Not reliable."
    )


def _best_of_many(facts: Facts, top: int) -> str:
    row, count = facts.decided.rows[top], len(facts.cells.values)
    return (
        f"{facts.param} = {number(facts.cells.values[top])} looks better on its own (p {_p(row.p)}), but it is the "
        f"best of {count} values: adjusted for that, p is {_p(row.adjusted)}. Test it again on new seeds."
    )


def _no_effect(facts: Facts, top: int) -> str:
    row = facts.decided.rows[top]
    held = ""
    if not math.isnan(row.ci[0]):
        held = f"; the lead of the best, {number(facts.cells.values[top])}, is {number(row.lead)} "
        held += f"(95 % interval {number(row.ci[0])} to {number(row.ci[1])})"
    return f"No effect of {facts.param} can be told from the noise between seeds: adjusted p {_p(row.adjusted)}{held}."
