"""Which parameters of a random search mattered, how sure that is, and where to look next.

The unit is a setting: its runs over seeds are ranked after the level of each seed is taken away, a crashed run lowest,
and averaged; the averages become normal scores. An additive model is fitted, a curve for every numeric parameter (in
the rank of its values, so that logarithmic axes need no saying) and a level for every word. A parameter's F compares
the fit with and without it; the largest F over all parameters is compared with the largest when the scores are dealt
out anew, so that in a search where nothing matters something is found in at most one of twenty.

Cannot tell: parameters that act only together with others, and peaks narrower than the distance between settings.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError
from clew.report.sweep_view import Cell
from clew.sweep.cells import Runs
from clew.sweep.decide import aligned_ranks
from clew.sweep.distributions import NORMAL, f_cdf
from clew.sweep.trend import ranks

Numbers = NDArray[np.float64]
DRAWS = 1999
HIGHEST_DEGREE = 3
LEAST_SETTINGS = 8


class Settings(NamedTuple):
    """One row per setting. `columns` hold the values of each parameter; `score` is larger for better."""

    names: tuple[str, ...]
    columns: tuple[tuple[Cell | None, ...], ...]
    score: Numbers
    seeds: Numbers
    crashed: Numbers


class Share(NamedTuple):
    """`share` of the variance that the others leave, with a 95 % interval; `p` is adjusted for all parameters."""

    name: str
    share: float
    low: float
    high: float
    p: float
    degree: int


def settings_of(runs: Runs, names: list[str], sign: float) -> Settings:
    codes = [runs.table.columns[name].codes for name in names]
    points, unit = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)
    unit = unit.reshape(-1)
    seed = runs.table.columns[runs.roles.seed].codes if runs.roles.seed else np.zeros(runs.table.rows, dtype=np.int64)
    _, row = np.unique(seed, return_inverse=True)
    shared = np.bincount(row).mean() > 1.5
    height = _ranked(sign * runs.metric, runs.crashed, row if shared else np.zeros_like(row))
    count = np.bincount(unit)
    mean = np.bincount(unit, height) / count
    n = len(mean)
    score = np.array([NORMAL.inv_cdf((one - 0.5) / n) for one in ranks(mean)])
    columns = tuple(
        tuple(None if code < 0 else runs.table.columns[name].labels[code] for code in points[:, at])
        for at, name in enumerate(names)
    )
    return Settings(tuple(names), columns, score, count.astype(float), np.bincount(unit, runs.crashed).astype(float))


def _ranked(metric: Numbers, crashed: NDArray[np.bool_], block: NDArray[np.integer]) -> Numbers:
    """Ranks of all runs, after the median of their seed is taken away; crashed runs lowest."""
    held = np.full((int(block.max(initial=0)) + 1, int(np.bincount(block).max())), np.nan)
    lost = np.zeros(held.shape, dtype=bool)
    place = np.zeros(len(block), dtype=np.int64)
    filled = np.zeros(held.shape[0], dtype=np.int64)
    for index, row in enumerate(block):
        place[index], filled[row] = filled[row], filled[row] + 1
    held[block, place], lost[block, place] = metric, crashed
    made: Numbers = aligned_ranks(held, lost)[block, place]
    return made


def basis(values: tuple[Cell | None, ...], degree: int) -> Numbers:
    """Columns for one parameter, each of mean zero: powers of the rank for numbers, a level for every other word."""
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if numeric:
        x = ranks(np.array([float(value) for value in values if value is not None]))
        x = 2.0 * (x - x.min()) / max(x.max() - x.min(), 1.0) - 1.0
        degree = min(degree, len(np.unique(x)) - 1)
        made = [np.polynomial.legendre.Legendre.basis(power)(x) for power in range(1, degree + 1)]
    else:
        words = [str(value) for value in values]
        counts = {word: words.count(word) for word in dict.fromkeys(words)}
        common = max(counts, key=lambda word: counts[word])
        made = [np.array([float(word == name) for word in words]) for name in counts if name != common]
    table = np.stack(made, axis=1) if made else np.zeros((len(values), 0))
    return np.asarray(table - table.mean(0))


def shares(held: Settings, seed: int = 0, draws: int = DRAWS) -> tuple[Share, ...]:
    n = len(held.score)
    if n < LEAST_SETTINGS:
        raise ClewError(f"{n} settings are too few to tell parameters apart; a random search needs at least eight.")
    degree, parts = HIGHEST_DEGREE, [basis(column, HIGHEST_DEGREE) for column in held.columns]
    while degree > 1 and sum(part.shape[1] for part in parts) * 3 > n:
        degree -= 1
        parts = [basis(column, degree) for column in held.columns]
    used = sum(part.shape[1] for part in parts)
    if used * 2 > n:
        raise ClewError(f"{n} settings cannot tell {len(parts)} parameters apart: about {2 * used} are needed.")
    y = np.random.default_rng(seed).permuted(np.broadcast_to(held.score, (draws, n)), axis=1)
    f, freedom = _f(np.vstack([held.score, y]), parts)
    largest = f[1:].max(1)
    found = []
    for at, name in enumerate(held.names):
        p = (1.0 + float((largest >= f[0, at] * (1 - 1e-9)).sum())) / (draws + 1.0)
        d1, d2 = freedom[at]
        share = max(0.0, (f[0, at] - 1.0) * d1 / ((f[0, at] - 1.0) * d1 + n))
        low, high = share_interval(float(f[0, at]), d1, d2)
        found.append(Share(name, share, low, high, p, d1))
    return tuple(found)


def _f(y: Numbers, parts: list[Numbers]) -> tuple[Numbers, list[tuple[int, int]]]:
    """The F of every part given the others, for every row of y."""
    n = y.shape[1]
    y = y - y.mean(1, keepdims=True)
    whole, rank = _left(y, np.hstack(parts))
    freedom = n - 1 - rank
    made, degrees = [], []
    for at in range(len(parts)):
        rest, smaller = _left(y, np.hstack([*parts[:at], np.zeros((n, 0)), *parts[at + 1 :]]))
        d1 = rank - smaller
        degrees.append((max(d1, 1), freedom))
        made.append((rest - whole) / max(d1, 1) / np.maximum(whole / freedom, 1e-300) if d1 else np.zeros(len(y)))
    return np.stack(made, axis=1), degrees


def _left(y: Numbers, x: Numbers) -> tuple[Numbers, int]:
    """Squares that the columns of x leave of every row of y, and their rank."""
    if not x.shape[1]:
        return (y**2).sum(1), 0
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    u = u[:, s > 1e-9 * s.max(initial=0.0)] if s.max(initial=0.0) > 0 else u[:, :0]
    return np.maximum((y**2).sum(1) - ((y @ u) ** 2).sum(1), 0.0), u.shape[1]


def share_interval(f: float, d1: int, d2: int, level: float = 0.95) -> tuple[float, float]:
    """The shares under which an F this large or this small would not be rare: by the noncentral F (Smithson 2001)."""

    def shift(wanted: float) -> float:
        if f_cdf(f, d1, d2, 0.0) < wanted:
            return 0.0
        low, high = 0.0, 1.0
        while f_cdf(f, d1, d2, high) > wanted and high < 1e5:
            high *= 2.0
        for _ in range(36):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if f_cdf(f, d1, d2, middle) > wanted else (low, middle)
        return high

    size = d1 + d2 + 1
    ends = [shift(0.5 + level / 2), shift(0.5 - level / 2)]
    return ends[0] / (ends[0] + size), ends[1] / (ends[1] + size)


class Narrowed(NamedTuple):
    """Where the best settings lie. `by_chance`: how often so few settings would lie so close together anyway."""

    name: str
    low: float | None
    high: float | None
    words: tuple[tuple[str, int, int], ...]
    kept: float
    carried: int
    of: int
    by_chance: float | None
    edge: str


def narrowed(held: Settings, at: int) -> Narrowed:
    """The range of a parameter among the best quarter of the settings, and half the way to the next one tried."""
    n = len(held.score)
    count = max(3, round(n / 4))
    best = np.argsort(-held.score, kind="stable")[:count]
    values, name = held.columns[at], held.names[at]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        words = [str(value) for value in values]
        top = [words[one] for one in best]
        kept = [(word, top.count(word), words.count(word)) for word in sorted(set(top), key=lambda w: -top.count(w))]
        return Narrowed(name, None, None, tuple(kept), len(kept) / len(set(words)), count, n, None, "")
    x = np.array([float(value) for value in values if value is not None])
    order = np.unique(x)
    low, high = float(x[best].min()), float(x[best].max())
    first, last = int(np.searchsorted(order, low)), int(np.searchsorted(order, high))
    log = bool(order[0] > 0 and order[-1] >= 8 * order[0])
    edge = " and ".join(["the lowest"] * (first == 0) + ["the highest"] * (last == len(order) - 1))
    # Not towards a setting that crashed: the way there may be lost as well.
    crashed = set(x[held.crashed > 0])
    if first > 0 and order[first - 1] not in crashed:
        low = _between(float(order[first - 1]), low, log)
    if last < len(order) - 1 and order[last + 1] not in crashed:
        high = _between(high, float(order[last + 1]), log)
    span = _span(low, high, log) / max(_span(float(order[0]), float(order[-1]), log), 1e-300)
    close = (ranks(x)[best].max() - ranks(x)[best].min()) / max(n - 1, 1)
    chance = count * close ** (count - 1) - (count - 1) * close**count
    return Narrowed(name, low, high, (), min(1.0, span), count, n, min(1.0, float(chance)), edge)


def _between(low: float, high: float, log: bool) -> float:
    return math.sqrt(low * high) if log else 0.5 * (low + high)


def _span(low: float, high: float, log: bool) -> float:
    return math.log(high / low) if log else high - low


class Cliff(NamedTuple):
    """The settings next to the best one on one side, nearly all among the worst. `p` is adjusted for all sides."""

    name: str
    value: float
    side: str
    next_value: float
    bad: int
    of: int
    crashed: int
    p: float


def cliffs(held: Settings, alpha: float = 0.05) -> tuple[Cliff, ...]:
    """Beside the best setting, along every numeric parameter: are the next four on a side among the worst third?"""
    n, found = len(held.score), []
    best = int(np.argmax(held.score))
    bad = held.score <= np.sort(held.score)[max(0, n // 3 - 1)]
    total = int(bad.sum())
    numeric = [
        at
        for at, column in enumerate(held.columns)
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in column)
    ]
    for at in numeric:
        x = np.array([float(value) for value in held.columns[at] if value is not None])
        for side, sign in (("above", 1.0), ("below", -1.0)):
            beyond = np.flatnonzero(sign * (x - x[best]) > 0)
            near = beyond[np.argsort(sign * x[beyond], kind="stable")][:4]
            hits = int(bad[near].sum())
            p = 2 * len(numeric) * _at_least(hits, len(near), total, n - 1)
            if len(near) >= 3 and p <= alpha:
                crashed = int((held.crashed[near] > 0).sum())
                step = float(x[near[0]])
                found.append(Cliff(held.names[at], float(x[best]), side, step, hits, len(near), crashed, p))
    return tuple(found)


def _at_least(hits: int, drawn: int, marked: int, total: int) -> float:
    """The chance of so many marked ones among those drawn (hypergeometric)."""
    ways = [math.comb(marked, k) * math.comb(total - marked, drawn - k) for k in range(hits, min(drawn, marked) + 1)]
    return sum(ways) / math.comb(total, drawn)
