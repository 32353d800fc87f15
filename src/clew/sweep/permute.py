"""Which value stands out, by permuting the values within each seed.

Under the hypothesis that the parameter does nothing, the results of one seed could have come in any order: every
rearrangement within the seeds is as likely as the one observed. The statistic of a value is its mean lead over the
other values of the same seed; the largest over all values is compared with the largest in each rearrangement, which
adjusts for having looked at all of them (Westfall and Young's max-T). All rearrangements are gone through when there
are few; else a fixed number is drawn with a generator that the caller seeds.

A value whose results merely scatter more than the others would be flagged too often by that alone: in rearranged
tables its scatter is spread over all values. So the lead must also hold against the value's own scatter: the adjusted p
is never below `guard` times the plain p of its t. The factors were chosen by simulation (docs/SWEEP.md); for two to
four values they are large because differences between few values stay skewed when noise is skewed and spreads differ,
and neither this test nor a t test keeps its level for the mean of a skewed difference.

Cannot tell: a shift from a change of shape, beyond what that factor allows for.
"""

import math
from collections.abc import Iterator
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.sweep.distributions import t_two_sided

Numbers = NDArray[np.float64]
DRAWS = 9999
EVERY = 50_000
"""Up to this many rearrangements, all are gone through."""
HOPELESS = 0.1
CHUNK_CELLS = 4_000_000


class Permuted(NamedTuple):
    """`p` and `adjusted` by value; `omnibus` for "any value differs"; `least` is the smallest p that was possible.

    `lean` is the statistic itself: above zero where a value is better on the scale that was tested.
    """

    p: tuple[float, ...]
    adjusted: tuple[float, ...]
    omnibus: float
    least: float
    tables: int
    exact: bool
    lean: tuple[float, ...]
    alike: tuple[float, ...] = ()
    """`adjusted` before the guard: what holds if the noise of all values is alike."""


def leads(table: Numbers) -> Numbers:
    """Seeds x values: each result less the mean of the other values in its seed; NaN where a cell is missing."""
    there = ~np.isnan(table)
    count = there.sum(-1, keepdims=True)
    total = np.where(there, table, 0.0).sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(there & (count > 1), table - (total - table) / (count - 1), np.nan)


def statistics(table: Numbers) -> Numbers:
    """The mean lead of every value over the last two axes (seeds, values), weighed by the root of its seeds."""
    total = table.sum(-2)
    if not np.isnan(total).any():
        seeds, values = table.shape[-2:]
        whole: Numbers = (total - total.mean(-1, keepdims=True)) * (values / (values - 1) / math.sqrt(seeds))
        return whole
    lead = leads(table)
    count = (~np.isnan(lead)).sum(-2)
    result: Numbers = np.where(np.isnan(lead), 0.0, lead).sum(-2) / np.sqrt(np.maximum(count, 1))
    return result


def own_t(table: Numbers) -> list[tuple[float, int]]:
    """The t of the lead of every value against its own scatter, with the seeds that it rests on."""
    found = []
    for held in leads(table).T:
        held = held[~np.isnan(held)]
        n = len(held)
        if n < 2:
            found.append((0.0, n))
            continue
        mean, error = float(held.mean()), float(held.std(ddof=1)) / math.sqrt(n)
        # Leads that are equal up to rounding: what is left of their scatter says nothing.
        flat = error <= 1e-10 * abs(mean) or error == 0.0
        found.append((math.copysign(math.inf, mean) if flat and mean else 0.0 if flat else mean / error, n))
    return found


SKEW = {2: 6.0, 3: 6.0, 4: 4.0}


def guard(values: int, seeds: int) -> float:
    """How many times its own plain p a value's adjusted p is at least. With fewer seeds the t table allows for more."""
    return max(2.0, min(SKEW.get(values, 2.0), seeds - values + 1.0), values * seeds / 50.0)


def within_seeds(table: Numbers, seed: int = 0, draws: int = DRAWS, first: int = 0) -> Permuted:
    """Seeds x values, NaN where a cell is missing (never where a run crashed: those have a rank).

    With `first`, so many are drawn to begin with, and that is all when they leave no doubt that nothing stands out.
    """
    there = ~np.isnan(table)
    counts = [int(count) for count in there.sum(1)]
    ways = math.prod(math.factorial(count) for count in counts)
    lean = statistics(table)
    observed = np.abs(lean)
    # Renaming all values at once changes nothing of the largest statistic: that many tables look like the observed.
    alike = math.factorial(table.shape[1]) if there.all() else 2 if max(counts, default=0) == 2 else 1
    exact = ways <= EVERY
    random = np.random.default_rng(seed)
    above, above_any, seen = np.zeros_like(observed), np.zeros_like(observed), 0
    for block in _every(table) if exact else _drawn(table, random, draws, first):
        found = np.abs(statistics(block))
        above += _reaches(found, observed).sum(0)
        above_any += _reaches(found.max(-1, keepdims=True), observed).sum(0)
        seen += len(block)
        if first and not exact and (above_any.min() + 1) / (seen + 1) > HOPELESS:
            break
    extra = 0 if exact else 1
    p, adjusted = (above + extra) / (seen + extra), (above_any + extra) / (seen + extra)
    omnibus = float(adjusted.min(initial=1.0))
    factor = guard(*table.shape[::-1])
    plain = np.array([t_two_sided(t, n - 1) if n > 1 else 1.0 for t, n in own_t(table)])
    adjusted = np.maximum(adjusted, p)
    alike_noise = np.maximum(adjusted, plain)
    adjusted = np.maximum(adjusted, np.minimum(1.0, factor * plain))
    least = min(1.0, max(alike / ways, 1.0 / (seen + extra)))
    leans, free = tuple(map(float, lean)), tuple(map(float, alike_noise))
    return Permuted(tuple(map(float, p)), tuple(map(float, adjusted)), omnibus, least, seen, exact, leans, free)


def _reaches(found: Numbers, observed: Numbers) -> NDArray[np.bool_]:
    """At least as large, rounding aside: rearrangements that give the same table must count as the same."""
    rounding = 1e-12 * max(found.max(initial=0.0), observed.max(initial=0.0))  # leads that cancel are zero but for it
    near: NDArray[np.bool_] = found >= observed * (1.0 - 1e-9) - rounding
    return near


def _chunk(table: Numbers) -> int:
    return max(1, CHUNK_CELLS // max(table.size, 1))


def _every(table: Numbers) -> Iterator[Numbers]:
    """All rearrangements within the seeds, the observed one among them."""
    rows = []
    for row in table:
        held = np.flatnonzero(~np.isnan(row))
        orders = np.array(list(permutations(held)))
        options = np.full((len(orders), len(row)), np.nan)
        options[:, held] = row[orders]
        rows.append(options)
    sizes = [len(options) for options in rows]
    chunk = _chunk(table)
    for first in range(0, math.prod(sizes), chunk):
        which = np.unravel_index(np.arange(first, min(first + chunk, math.prod(sizes))), sizes)
        yield np.stack([options[at] for options, at in zip(rows, which, strict=True)], axis=1)


def _drawn(table: Numbers, random: np.random.Generator, draws: int, first: int = 0) -> Iterator[Numbers]:
    """Random rearrangements within the seeds; cells that are missing stay missing."""
    gaps = np.isnan(table)
    left, chunk = draws, _chunk(table)
    while left > 0:
        count = min(chunk, left, first or left)
        first = 0
        keys = random.random((count, *table.shape))
        if not gaps.any():
            yield np.take_along_axis(np.broadcast_to(table, keys.shape), keys.argsort(-1), -1)
        else:
            yield _around_gaps(table, gaps, keys)
        left -= count


def _around_gaps(table: Numbers, gaps: NDArray[np.bool_], keys: Numbers) -> Numbers:
    result = np.full(keys.shape, np.nan)
    for row, missing in enumerate(gaps):
        held = np.flatnonzero(~missing)
        order = keys[:, row, held].argsort(-1)
        result[:, row, held] = table[row, held][order]
    return result


def unpaired(groups: list[Numbers], seed: int = 0, draws: int = DRAWS) -> Permuted:
    """Values whose seeds differ: all results are rearranged, and the statistic is Welch's t against the rest."""
    sizes = [len(held) for held in groups]
    pool = np.concatenate(groups) if groups else np.zeros(0)
    edges = np.cumsum([0, *sizes])
    lean = _welch(pool[None], edges)[0]
    observed = np.abs(lean)
    random = np.random.default_rng(seed)
    above, above_any = np.zeros(len(groups)), np.zeros(len(groups))
    left, chunk = draws, max(1, CHUNK_CELLS // max(len(pool), 1))
    while left > 0:
        count = min(chunk, left)
        order = random.random((count, len(pool))).argsort(-1)
        found = np.abs(_welch(pool[order], edges))
        above += _reaches(found, observed).sum(0)
        above_any += _reaches(found.max(-1, keepdims=True), observed).sum(0)
        left -= count
    p, adjusted = (above + 1) / (draws + 1), (above_any + 1) / (draws + 1)
    ways = math.factorial(len(pool)) // math.prod(math.factorial(size) for size in sizes) if len(pool) < 200 else 10**9
    least = max(1.0 / ways, 1.0 / (draws + 1)) * (2 if len(set(sizes)) == 1 and len(sizes) == 2 else 1)
    omnibus, leans = float(adjusted.min(initial=1.0)), tuple(map(float, lean))
    return Permuted(tuple(map(float, p)), tuple(map(float, adjusted)), omnibus, least, draws, False, leans)


def _welch(pools: Numbers, edges: NDArray[np.int64]) -> Numbers:
    total, squares, n = pools.sum(-1), (pools**2).sum(-1), pools.shape[-1]
    columns = []
    for first, last in pairwise(edges):
        own = pools[..., first:last]
        a, b = int(last - first), n - int(last - first)
        if a < 2 or b < 2:
            columns.append(np.zeros(len(pools)))
            continue
        mean_a, mean_b = own.mean(-1), (total - own.sum(-1)) / b
        var_a = own.var(-1, ddof=1)
        var_b = np.maximum((squares - (own**2).sum(-1) - b * mean_b**2) / (b - 1), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            t = (mean_a - mean_b) / np.sqrt(var_a / a + var_b / b)
        columns.append(np.where(np.isnan(t), 0.0, t))
    return np.stack(columns, -1)
