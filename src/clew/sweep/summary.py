"""The plain table of very many runs at once: mean, quantiles, z and t of every value in every group.

No Python loop over runs or cells: a million runs take well under a second.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.integer]
Numbers = NDArray[np.float64]


class Summary(NamedTuple):
    """Arrays of groups x values. `n` counts finite results, `crashed` the others."""

    n: NDArray[np.int64]
    crashed: NDArray[np.int64]
    mean: Numbers
    q10: Numbers
    q90: Numbers
    z: Numbers
    t: Numbers


def summarise(group: Codes, value: Codes, seed: Codes, metric: Numbers) -> Summary:
    """Codes from zero for group, value and seed of every run."""
    groups, values, seeds = (int(codes.max(initial=0)) + 1 for codes in (group, value, seed))
    cell = group.astype(np.int64) * values + value
    size = groups * values
    fine = np.isfinite(metric)
    crashed = np.bincount(cell[~fine], minlength=size)
    cell, block, x = cell[fine], group[fine].astype(np.int64) * seeds + seed[fine], metric[fine]
    n = np.bincount(cell, minlength=size)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(cell, x, size) / n
        in_block = np.bincount(block, minlength=groups * seeds)
        off = x - (np.bincount(block, x, groups * seeds) / in_block)[block]
        spread = np.sqrt(np.bincount(block, off * off, groups * seeds) / (in_block - 1))
        z = off / spread[block]
        usable = np.isfinite(z)
        cell_z, z = cell[usable], z[usable]
        n_z = np.bincount(cell_z, minlength=size)
        mean_z = np.bincount(cell_z, z, size) / n_z
        rest = z - mean_z[cell_z]
        deviation = np.sqrt(np.bincount(cell_z, rest * rest, size) / (n_z - 1))
        t = mean_z / (deviation / np.sqrt(n_z))
    low, high = _quantiles(cell, x, n, (0.1, 0.9))
    shape = (groups, values)
    numbers = [part.reshape(shape) for part in (mean, low, high, mean_z, t)]
    return Summary(n.reshape(shape), crashed.reshape(shape), *numbers)


def _quantiles(cell: NDArray[np.int64], x: Numbers, n: NDArray[np.int64], shares: tuple[float, ...]) -> list[Numbers]:
    """Linear between neighbours, as numpy does for one array."""
    order = np.argsort(x)
    order = order[np.argsort(cell[order], kind="stable")]
    held = np.append(x[order], np.nan)
    start = np.cumsum(n) - n
    found = []
    for share in shares:
        place = share * np.maximum(n - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(n - 1, 0))
        low, high = held[start + below], held[start + above]
        made = low + (high - low) * (place - below)
        found.append(np.where(n > 0, made, np.nan))
    return found
