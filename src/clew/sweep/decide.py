"""The statistics of one parameter in one group: the table per value, and the test that decides.

Larger is better here; the caller turns the sign for a metric that should be small. A crashed run is ranked below every
run that finished. A value that lies far below all others is set apart first: in z-scores it would make every other
value look good.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.sweep.intervals import NONE, Interval, bca, bootstrap_t, improvement, iqm, t_interval, wilson
from clew.sweep.permute import Permuted, leads, unpaired, within_seeds
from clew.sweep.trend import ranks

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
FIRST, MANY_DRAWS = 199, 1999
FAR = 10.0
"""A value this many robust standard deviations below the others is set apart."""


class OfValue(NamedTuple):
    """Figures of one value; NaN and NONE where there are too few seeds.

    `lead` is that of the runs that finished; `lean`, above zero for better, is what the test saw, crashed runs and all.
    """

    n: int
    crashed: int
    mean: float
    q10: float
    q90: float
    iqm: float
    z: float
    t: float
    lead: float
    ci: Interval
    ci_t: Interval
    ci_bca: Interval
    improvement: float
    improvement_ci: Interval
    p: float
    adjusted: float
    lean: float


class Decided(NamedTuple):
    """`apart` are values set apart; `ranked`: crashed runs made ranks necessary; `paired`: seeds were shared."""

    rows: tuple[OfValue, ...]
    apart: tuple[int, ...]
    ranked: bool
    paired: bool
    test: Permuted | None


def plain_recipe(results: Numbers) -> tuple[Numbers, Numbers]:
    """z within each seed, its mean over seeds, and the t of that mean, as the plain recipe has it."""
    there = np.isfinite(results)
    count = there.sum(1, keepdims=True)
    held = np.where(there, results, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = held.sum(1, keepdims=True) / count
        spread = np.sqrt((np.where(there, held - mean, 0.0) ** 2).sum(1, keepdims=True) / (count - 1))
        z = np.where(there & (count > 1) & (spread > 0), (held - mean) / spread, np.nan)
    seen = np.isfinite(z)
    n = seen.sum(0)
    score = np.where(seen, z, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_z = score.sum(0) / n
        deviation = np.sqrt((np.where(seen, score - mean_z, 0.0) ** 2).sum(0) / (n - 1))
        t = mean_z / (deviation / np.sqrt(n))
    # Two values have z of +-0.71 in every seed: once they all agree, the recipe has no spread left and t no bound.
    t = np.where(deviation <= 1e-12, np.where(mean_z == 0, 0.0, np.copysign(np.inf, mean_z)), t)
    t = np.where(n > 1, t, np.nan)
    return mean_z, t


def aligned_ranks(results: Numbers, crashed: Flags) -> Numbers:
    """Ranks over the whole table after taking the seed's median away; crashed runs share the lowest rank.

    What is taken away does not depend on the order within a seed, so rearrangements stay equally likely.
    """
    finite = np.isfinite(results)
    middle = np.array(
        [np.median(row[there]) if there.any() else 0.0 for row, there in zip(results, finite, strict=True)]
    )
    held = np.where(finite, results - middle[:, None], np.nan)
    floor = np.nanmin(held) - 1.0 if finite.any() else 0.0
    held = np.where(crashed, floor, held)
    made = np.full(results.shape, np.nan)
    there = np.isfinite(held)
    made[there] = ranks(held[there])
    return made


def far_below(results: Numbers, crashed: Flags) -> tuple[int, ...]:
    """Values to set apart: every run crashed, or all results far below everything else. At least two values stay."""
    values = results.shape[1]
    finite = np.isfinite(results)
    gone = [v for v in range(values) if crashed[:, v].any() and not finite[:, v].any()]
    left = [v for v in range(values) if v not in gone and finite[:, v].any()]
    while len(left) > 2:
        middle = _medians(results[:, left])
        deviation = results[:, left] - middle[:, None]
        level = np.array([np.median(one[np.isfinite(one)]) for one in deviation.T])
        scatter = 1.4826 * float(np.median(np.abs(deviation - level)[np.isfinite(deviation)]))
        worst = int(np.argmin(level))
        rest = np.delete(level, worst)
        scale = max(scatter, 1.4826 * float(np.median(np.abs(rest - np.median(rest)))))
        below = np.nanmax(results[:, left[worst]]) < np.nanmin(np.delete(results[:, left], worst, axis=1))
        if not (scale > 0 and np.median(rest) - level[worst] > FAR * scale and below):
            break
        gone.append(left.pop(worst))
    return tuple(sorted(gone)) if len(left) >= 2 else ()


def _medians(table: Numbers) -> Numbers:
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else 0.0 for row in table])


def decide(results: Numbers, crashed: Flags, seed: int = 0, many: bool = False) -> Decided:
    """Seeds x values: NaN where a run crashed (then `crashed`) or is missing.

    `many`: one of very many tables, so the test ends early where nothing stands out and nothing is bootstrapped.
    """
    apart = far_below(results, crashed)
    kept = [v for v in range(results.shape[1]) if v not in apart]
    there = np.isfinite(results) | crashed
    paired = bool(
        ((there[:, kept].sum(1) > 1).sum() >= 2)
        and there[:, kept][there[:, kept].sum(1) > 1].sum() * 2 >= there[:, kept].sum()
    )
    ranked = bool(crashed[:, kept].any())
    enough = int(there.sum(0).max(initial=0)) > 1
    p = np.full(results.shape[1], np.nan)
    adjusted = np.full(results.shape[1], np.nan)
    lean = np.full(results.shape[1], np.nan)
    test = None
    if enough and len(kept) > 1:
        test = _test(results[:, kept], crashed[:, kept], paired, seed, many)
        p[kept], adjusted[kept], lean[kept] = test.p, test.adjusted, test.lean
        if apart:
            whole = _test(results, crashed, paired, seed, many)
            p[list(apart)] = [whole.p[v] for v in apart]
            adjusted[list(apart)] = [whole.adjusted[v] for v in apart]
            lean[list(apart)] = [whole.lean[v] for v in apart]
    z, t = np.full(results.shape[1], np.nan), np.full(results.shape[1], np.nan)
    z[kept], t[kept] = plain_recipe(results[:, kept])
    rows = [
        _row(
            results,
            crashed,
            there,
            v,
            [u for u in kept if u != v],
            paired,
            None if many else seed,
            (z[v], t[v], p[v], adjusted[v], lean[v]),
        )
        for v in range(results.shape[1])
    ]
    return Decided(tuple(rows), apart, ranked, paired, test)


def _test(results: Numbers, crashed: Flags, paired: bool, seed: int, many: bool) -> Permuted:
    table = aligned_ranks(results, crashed) if crashed.any() else results
    if paired:
        return within_seeds(table[(~np.isnan(table)).sum(1) > 1], seed, *((MANY_DRAWS, FIRST) if many else ()))
    if crashed.any():
        flat = np.where(crashed, np.nanmin(results) - 1.0 if np.isfinite(results).any() else 0.0, results)
        table = np.full(results.shape, np.nan)
        table[np.isfinite(flat)] = ranks(flat[np.isfinite(flat)])
    return unpaired([column[np.isfinite(column)] for column in table.T], seed)


def _row(
    results: Numbers,
    crashed: Flags,
    there: Flags,
    v: int,
    others: list[int],
    paired: bool,
    seed: int | None,
    tested: tuple[float, float, float, float, float],
) -> OfValue:
    own = results[:, v]
    held = own[np.isfinite(own)]
    n = int(there[:, v].sum())
    lead = leads(results[:, [v, *others]])[:, 0] if paired else np.zeros(0)
    lead = lead[np.isfinite(lead)]
    wins, met = _wins(results, crashed, there, v, others) if paired else (0.0, 0)
    several = len(lead) > 1
    q10, q90 = np.quantile(held, [0.1, 0.9]) if len(held) else (math.nan, math.nan)
    return OfValue(
        n,
        int(crashed[:, v].sum()),
        float(held.mean()) if len(held) else math.nan,
        float(q10),
        float(q90),
        iqm(held),
        tested[0],
        tested[1],
        float(lead.mean()) if len(lead) else _unpaired_lead(results, v, others),
        t_interval(lead) if several else NONE,
        bootstrap_t(lead, seed) if several and seed is not None else NONE,
        bca(lead, seed) if several and seed is not None else NONE,
        wins / met if met else math.nan,
        wilson(wins, met) if met > 1 else NONE,
        tested[2],
        tested[3],
        tested[4],
    )


def _unpaired_lead(results: Numbers, v: int, others: list[int]) -> float:
    own, rest = results[:, v], results[:, others]
    own, rest = own[np.isfinite(own)], rest[np.isfinite(rest)]
    return float(own.mean() - rest.mean()) if len(own) and len(rest) else math.nan


def _wins(results: Numbers, crashed: Flags, there: Flags, v: int, others: list[int]) -> tuple[float, int]:
    """Seeds in which the value beats the mean of the others, and seeds in which it met any. A crash loses to all."""
    low = np.where(crashed, -np.inf, results)
    rest = np.where(there[:, others] & ~crashed[:, others], results[:, others], np.nan)
    met = there[:, v] & there[:, others].any(1)
    count = np.isfinite(rest).sum(1)
    # Where all the others crashed, anything that finished beats them.
    bar = np.where(count > 0, np.nansum(rest, 1) / np.maximum(count, 1), -np.inf)
    return improvement(low[met, v], bar[met]) * int(met.sum()) if met.any() else 0.0, int(met.sum())
