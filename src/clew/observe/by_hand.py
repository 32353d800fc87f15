"""Splits of a table that a script makes by hand: a random mask and its opposite, or a sample and what is left.

Only tables count whose rows are series in time: dates at a regular step, with one row for each series and date. A mask
that follows from a column, or that keeps whole series or whole stretches of time together, is no random one.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clew.observe.times import NAMES, is_date, numbers, regular

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]

FEWEST, MOST = 100, 2_000_000
COLUMNS = 64
KEPT = 8
LEAST_SHARE = 0.03
LEVELS = 200
FILLED = 0.8
MIXED = 0.5
TIMES_RANDOM = 0.8  # changes of side between neighbours in time, of those in a random order


class _Taken(NamedTuple):
    table: weakref.ref[Any]
    mask: Mask


_taken: list[_Taken] = []
_samples: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []  # a table, and the index of a sample of it


def masked(table: Any, key: Any) -> Mask | None:
    """A mask was taken of a table; the mask itself where its opposite was taken before."""
    mask = np.asarray(key)
    if mask.dtype != np.bool_ or mask.shape != (len(table),) or not FEWEST <= len(mask) <= MOST:
        return None
    if not LEAST_SHARE < float(mask.mean()) < 1 - LEAST_SHARE:
        return None
    for held in _taken:
        if held.table() is table and bool((held.mask != mask).all()):
            return held.mask
    _taken.append(_Taken(weakref.ref(table), mask.copy()))
    del _taken[:-KEPT]
    return None


def sampled_from(table: Any, result: Any) -> None:
    """A part of a table was drawn, without rows that come twice."""
    if FEWEST <= len(table) <= MOST and len(result) < len(table):
        _samples.append((weakref.ref(table), weakref.ref(result)))
        del _samples[:-KEPT]


def dropped(table: Any, labels: Any) -> Mask | None:
    """Rows were dropped by their labels: which rows were drawn, where they are those of a sample of this table."""
    for held, drawn in _samples:
        sample, of_it = drawn(), bool(held() is table)
        if not of_it or sample is None or not hasattr(labels, "equals") or not table.index.is_unique:
            continue
        if len(labels) == len(sample) and labels.equals(sample.index):
            return np.asarray(table.index.isin(labels))
    return None


def random_over_time(table: Any, mask: Mask) -> str:
    """How the rows are known to be series in time that the mask cuts at random; "" where it is not so."""
    for column in table.columns[:COLUMNS]:
        values = table[column]
        if getattr(values, "ndim", 0) != 1 or not (is_date(values) or str(column).lower() in NAMES):
            continue
        times = numbers(values)
        if times is None or not regular(np.unique(times)):
            continue
        series = _series(table, column, times)
        if series is not None and _scattered(times, series, mask) and not _from_a_column(table, column, mask):
            kinds = len(np.unique(series))
            return f"{kinds} series of {len(np.unique(times))} dates in its column {column}"
    return ""


def _series(table: Any, date: Any, times: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """A number for each series: columns of few values that, with the date, name every row once."""
    dates = len(np.unique(times))
    if dates == len(times):
        return np.zeros(len(times), dtype=np.int64)
    names = [c for c in table.columns[:COLUMNS] if c != date and getattr(table[c], "ndim", 0) == 1]
    keys = [c for c in names if table[c].dtype.kind in "OUTiub" or _text(table[c])]
    keys = [c for c in keys if 1 < table[c].nunique() <= max(LEVELS, len(table) // dates)]
    for chosen in ([[c] for c in keys] + [[a, b] for i, a in enumerate(keys[:8]) for b in keys[i + 1 : 8]])[:48]:
        series = np.asarray(table.groupby(chosen, sort=False).ngroup().to_numpy(), dtype=np.int64)
        count = int(series.max()) + 1
        if len(times) < FILLED * count * dates or len(times) > count * dates:
            continue
        order = np.lexsort((times, series))
        same = (np.diff(series[order]) == 0) & (np.diff(times[order]) == 0)
        if not same.any():
            return series
    return None


def _text(column: Any) -> bool:
    return str(column.dtype) in ("category", "str", "string")


def _scattered(times: NDArray[np.float64], series: NDArray[np.int64], mask: Mask) -> bool:
    """Neighbours in time change sides as often as by chance, in most of the series."""
    order = np.lexsort((times, series))
    inside = np.diff(series[order]) == 0
    changes = float((np.diff(mask[order].astype(np.int8)) != 0)[inside].mean())
    share = float(mask.mean())
    _, rows = np.unique(series, return_inverse=True)
    of_series = np.bincount(rows, mask) / np.bincount(rows)
    mixed = float(((of_series > 0) & (of_series < 1)).mean())
    return changes > TIMES_RANDOM * 2 * share * (1 - share) and mixed > MIXED


def _from_a_column(table: Any, date: Any, mask: Mask) -> bool:
    """Whether a column decides on which side a row is: by its value, or by a limit."""
    for column in table.columns[:COLUMNS]:
        values = table[column]
        if column == date or getattr(values, "ndim", 0) != 1:
            continue
        if values.nunique() <= len(values) // 10:
            codes = values.factorize()[0]
            known = codes >= 0
            share = np.bincount(codes[known], mask[known]) / np.maximum(1, np.bincount(codes[known]))
            if bool(((share == 0) | (share == 1)).mean() > MIXED):
                return True
        held = numbers(values)
        if held is not None and (held[mask].max() <= held[~mask].min() or held[~mask].max() <= held[mask].min()):
            return True
    return False
