"""What an earlier sweep says about noise: how much the difference between two values scatters over seeds."""

import math

import numpy as np

from clew.errors import ClewError
from clew.sweep.cells import cells
from clew.sweep.prepare import Request, prepare
from clew.sweep.table import Table


def paired_spread(table: Table, metric: str, param: str) -> float:
    """The standard deviation of differences between two values in one seed: sqrt(2) times the noise of a cell."""
    runs, _ = prepare(table, Request(metric, param))
    from clew.sweep.roles import known

    held = cells(runs, known(runs.table, param, "parameter"))
    whole = held.results[np.isfinite(held.results).all(1)]
    if whole.shape[0] < 2 or whole.shape[1] < 2:
        raise ClewError(f"{table.source} has too few complete seeds to estimate the noise of {metric}.")
    left = whole - whole.mean(1, keepdims=True) - whole.mean(0, keepdims=True) + whole.mean()
    freedom = (whole.shape[0] - 1) * (whole.shape[1] - 1)
    return math.sqrt(2.0 * float((left**2).sum()) / freedom)
