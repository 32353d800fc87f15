"""Whether the rows of a table are ordered in time, as seen in the rows themselves.

Three things show it: dates in ascending order at a regular step, a column named for time that does the same, and
columns that repeat one another a row later, as lags and sliding windows do, also where every window was scaled by
itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS = 20
PAIRS = 256
COLUMNS = 32
SHORTEST, TURNS, NEAR, MOST = 6, 3, 1e-2, 0.9
NAMES = ("time", "timestamp", "date", "datetime", "ts")


def order_in_time(tables: Sequence[Any]) -> str:
    """How the rows are known to stand in order of time; "" when nothing shows it."""
    for table in tables:
        if getattr(table, "shape", (0,))[:1] < (ROWS,) or not hasattr(table, "iloc"):
            continue
        found = regular(numbers(table.index)) if is_date(table.index) else ""
        if found:
            return f"its index holds dates {found}"
        columns = [(str(table.name), table)] if table.ndim == 1 else [(str(c), table[c]) for c in table.columns[:256]]
        for name, column in columns:
            if getattr(column, "ndim", 0) == 1 and (is_date(column) or name.lower() in NAMES):
                found = regular(numbers(column))
                if found:
                    return f"its column {name} ascends {found}"
    return _lagged(tables)


def is_date(column: Any) -> bool:
    return getattr(getattr(column, "dtype", None), "kind", "") == "M"


def numbers(column: Any) -> NDArray[np.float64] | None:
    values = np.asarray(column.to_numpy())
    if values.dtype.kind == "O" or values.dtype.kind in "UT":
        values = _dates(values)
    if values.dtype.kind == "M":
        values = values.view(np.int64)
    return values.astype(np.float64) if values.dtype.kind in "iuf" else None


def _dates(values: NDArray[Any]) -> NDArray[Any]:
    """ISO dates written as text; anything else stays what it is."""
    texts = [str(value)[:19] for value in values]
    if not all(len(text) >= 10 and text[:4].isdigit() and text[4] == "-" for text in texts[:ROWS]):
        return values
    try:
        return np.array(texts, dtype="datetime64[s]")
    except ValueError:
        return values


def regular(values: NDArray[np.float64] | None) -> str:
    """Ascending without repeats, most steps alike: a series, and no list of events that somebody sorted."""
    if values is None or len(values) < ROWS or not np.isfinite(values).all():
        return ""
    steps = np.diff(values)
    if (steps <= 0).any():
        return ""
    usual = float(np.median(steps))
    alike = float((np.abs(steps - usual) <= 0.05 * usual).mean())
    return f"at a regular step in {len(values)} rows" if alike >= 0.6 else ""


def _lagged(tables: Sequence[Any]) -> str:
    """Columns of real numbers that repeat another one a row later."""
    columns: list[tuple[str, NDArray[np.float64]]] = []
    start, count = 0, 0
    for table in tables:
        if not hasattr(table, "shape") or len(table.shape) == 0 or table.shape[0] < ROWS:
            continue
        if count == 0:
            count = int(table.shape[0])
            start = max(0, (count - PAIRS) // 2)
        if int(table.shape[0]) == count:
            columns += _columns(table, start)
    columns = columns[: COLUMNS + 1]
    for earlier, first in columns:
        for later, second in columns:
            if earlier != later and _repeats(first, second):
                return f"{later} is {earlier} shifted by one row, as in lags and sliding windows"
    return next((found for table in tables if (found := _own_scale(table))), "")


def _own_scale(table: Any) -> str:
    """Sliding windows each of which has a zero or a unit of its own: what one step in it is of the step before is the
    same in the next row, one column earlier."""
    shape: tuple[int, ...] = getattr(table, "shape", (0,))
    if len(shape) < 2 or shape[0] < ROWS or shape[1] < SHORTEST:
        return ""
    columns = [held for _, held in _columns(table, max(0, (shape[0] - PAIRS) // 2))]
    steps = [second - first for first, second in itertools.pairwise(columns)]
    with np.errstate(divide="ignore", invalid="ignore"):
        turns = [second / first for first, second in itertools.pairwise(steps)]
    pairs = list(itertools.pairwise(turns))[:TURNS]
    if len(pairs) == TURNS and all(_repeats(earlier, later, NEAR, MOST) for later, earlier in pairs):
        return (
            "each row is the previous one shifted by one column and scaled by its own statistics, as in sliding windows"
        )
    return ""


def _columns(table: Any, start: int) -> list[tuple[str, NDArray[np.float64]]]:
    """The first columns of real numbers, over some neighbouring rows."""
    if hasattr(table, "iloc"):
        part = table.iloc[start : start + PAIRS + 1]
        if part.ndim == 1:
            part = part.to_frame()
        held = [(f"column {c}", np.asarray(part.iloc[:, i].to_numpy())) for i, c in enumerate(part.columns[:COLUMNS])]
    elif isinstance(table, np.ndarray):
        flat = table[start : start + PAIRS + 1]
        flat = flat.reshape(len(flat), -1)
        last = 1 if table.ndim < 3 else int(np.prod(table.shape[2:]))
        held = [(f"column {i}", flat[:, i]) for i in range(0, flat.shape[1], last)][:COLUMNS]
        if table.ndim == 1:
            held = [("the target", flat[:, 0])]
    else:
        return []
    return [(name, values.astype(np.float64)) for name, values in held if values.dtype.kind == "f"]


def _repeats(earlier: NDArray[np.float64], later: NDArray[np.float64], near: float = 1e-6, most: float = 0.98) -> bool:
    """Whether the second column holds the first one's values a row later, and the values are many."""
    known = np.isfinite(earlier[:-1]) & np.isfinite(later[1:])
    if known.sum() < ROWS - 1:
        return False
    first, second = earlier[:-1][known], later[1:][known]
    distinct = len(np.unique(first))
    moving = float((np.diff(first) != 0).mean())
    return distinct > 0.5 * len(first) and moving > 0.9 and float(np.isclose(first, second, rtol=near).mean()) > most
