"""Tables of runs: one row per run.

Every column is kept as codes into its distinct values. Text that is a number is that number, so 0.1, "0.1" and 1e-1 are
one value wherever they come from.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError
from clew.records.masked import masked
from clew.report.sweep_view import Cell

Codes = NDArray[np.int32]
MISSING = {"", "na", "n/a", "none", "null", "-", "<na>", "missing"}
NOT_A_NUMBER = {"nan", "-nan", "crashed", "failed", "diverged", "crash", "error", "oom", "killed"}
INFINITE = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
IDS = {"run_id", "id", "run", "run_uuid", "trial_id", "uid"}
FARTHEST = 1 << 1023
"""Whole numbers from here on have no double, as 1e400 has none."""
FEW = 10_000
"""Up to so many different numbers, each is kept as it is shown."""


class Distinct(Sequence[Cell]):
    """Very many different numbers as labels, eight bytes each."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, at: int) -> Cell: ...
    @overload
    def __getitem__(self, at: slice) -> "Distinct": ...
    def __getitem__(self, at: int | slice) -> "Cell | Distinct":
        return Distinct(self.values[at]) if isinstance(at, slice) else _whole(float(self.values[at]))


class Column(NamedTuple):
    """`codes` point into `labels`; -1 is a cell with nothing in it."""

    codes: Codes
    labels: Sequence[Cell]

    def cell(self, row: int) -> Cell | None:
        code = int(self.codes[row])
        return None if code < 0 else self.labels[code]

    def shown(self, name: str) -> "Column":
        """Without what looks like a password or a key: it names no setting that is compared."""
        if isinstance(self.labels, Distinct):
            return self
        labels = tuple(masked(name, label) for label in self.labels)
        return self if labels == self.labels else encoded(self.codes, labels)

    def take(self, rows: NDArray[Any]) -> "Column":
        return Column(self.codes[rows], self.labels)


class Table(NamedTuple):
    rows: int
    columns: dict[str, Column]
    source: str
    notes: tuple[str, ...] = ()

    def take(self, rows: NDArray[Any]) -> "Table":
        columns = {name: held.take(rows) for name, held in self.columns.items()}
        count = int(rows.sum()) if rows.dtype == bool else len(rows)
        return self._replace(rows=count, columns=columns)


def cell(value: Any) -> Cell | None:
    """One value as it is compared: numbers as numbers, however they were written; None for nothing."""
    if value is None or isinstance(value, bool | int):
        return value if value is None or abs(value) < FARTHEST else math.inf if value > 0 else -math.inf
    if isinstance(value, float):
        return _whole(value)
    if not isinstance(value, str):
        return str(value)
    text = value.strip()
    low = text.lower()
    if low in MISSING:
        return None
    if low in INFINITE:
        return INFINITE[low]
    if low == "nan":
        return math.nan
    if low in ("true", "false"):
        return low == "true"
    if text[:1] in "+-.0123456789" and "_" not in text:
        try:
            # A whole number of many digits has no double of its own; as a number it stays itself.
            return int(text) if text.isdecimal() and 15 < len(text) < 40 else _whole(float(text))
        except ValueError:
            return text
    return text


def _whole(value: float) -> Cell:
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else value


def column(values: list[Any], verbatim: bool = False) -> Column:
    """A column from Python values."""
    return encoded(np.arange(len(values), dtype=np.int32), values, verbatim)


def is_id(name: str) -> bool:
    """Whether a column names runs: what it holds is a name even where it looks like a number."""
    return name.strip().lower().replace(".", "_") in IDS


def encoded(codes: Codes, raw: Sequence[Any], verbatim: bool = False) -> Column:
    """Codes into raw labels, with labels that mean the same made one; `verbatim`: each is a text and means itself."""
    known: dict[tuple[str, Cell], int] = {}
    labels: list[Cell] = []
    again = np.full(len(raw) + 1, -1, dtype=np.int32)
    for index, item in enumerate(raw):
        held = str(item) if verbatim and item is not None and item != "" else cell(item)
        if held is None:
            continue
        # NaN is not equal to itself, and True is equal to 1: neither may decide what is the same label.
        key = ("nan", 0) if isinstance(held, float) and math.isnan(held) else (str(isinstance(held, bool)), held)
        if key not in known:
            known[key] = len(labels)
            labels.append(held)
        again[index] = known[key]
    return Column(again[codes], tuple(labels))


def of_numbers(values: NDArray[np.float64], missing: NDArray[np.bool_]) -> Column:
    """A column from numbers alone; cells that are missing hold nothing."""
    values = np.where(missing, np.nan, values)
    order = np.argsort(values, kind="stable")
    values = values[order]
    new = np.ones(len(values), dtype=bool)
    new[1:] = (values[1:] != values[:-1]) & ~np.isnan(values[:-1])
    codes = np.empty(len(values), dtype=np.int32)
    codes[order] = np.cumsum(new, dtype=np.int32) - 1
    distinct = values[new]
    codes[missing] = -1
    if np.isnan(distinct[-1:]).any() and missing.any() and not (codes == len(distinct) - 1).any():
        distinct = distinct[:-1]
    if len(distinct) > FEW:
        return Column(codes, Distinct(distinct))
    return Column(codes, tuple(_whole(float(value)) for value in distinct))


def stacked(parts: list[tuple[int, Column | None]], verbatim: bool = False) -> Column:
    """Columns one below the other, each with its rows; None is a part that has no such column."""
    size = sum(len(held.labels) for _, held in parts if held is not None)
    if size > FEW and not verbatim and all(held is None or _is_numeric(held) for _, held in parts):
        values = np.empty(sum(rows for rows, _ in parts))
        missing = np.empty(len(values), dtype=bool)
        at = 0
        for rows, held in parts:
            values[at : at + rows], missing[at : at + rows] = _values(rows, held)
            at += rows
        # The parts are as large as the whole, and nobody needs them any more.
        parts.clear()
        return of_numbers(values, missing)
    labels: list[Any] = []
    codes = []
    for rows, held in parts:
        if held is None:
            codes.append(np.full(rows, -1, dtype=np.int32))
            continue
        codes.append(np.where(held.codes < 0, np.int32(-1), held.codes + np.int32(len(labels))).astype(np.int32))
        labels += held.labels
    return encoded(np.concatenate(codes), labels, verbatim)


def _is_numeric(held: Column) -> bool:
    labels = held.labels
    return isinstance(labels, Distinct) or not any(
        isinstance(one, bool | str) or (abs(one) >= 1e15 and isinstance(one, int)) for one in labels
    )


def _values(rows: int, held: Column | None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers, and where there are none, of a column of numbers alone."""
    if held is None:
        return np.full(rows, np.nan), np.ones(rows, dtype=bool)
    labels = held.labels
    known = labels.values if isinstance(labels, Distinct) else np.array(labels, dtype=np.float64)
    return np.append(known, np.nan)[held.codes], held.codes < 0


def numbers(table: Table, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as numbers (NaN where there is none) and where it had nothing at all. Text is refused, with its row."""
    held = table.columns[name]
    if isinstance(held.labels, Distinct):
        return _values(table.rows, held)
    values = np.full(len(held.labels) + 1, np.nan)
    for code, label in enumerate(held.labels):
        if isinstance(label, str):
            if label.strip().lower() in NOT_A_NUMBER:
                continue
            row = int(np.flatnonzero(held.codes == code)[0])
            hint = "; write the decimal point as a point" if _comma(label) else ""
            raise ClewError(f"{name} is text in row {row + 1} of {table.source}: {label[:40]!r} is no number{hint}.")
        values[code] = float(label)
    return values[held.codes], held.codes < 0


def _comma(text: str) -> bool:
    return text.replace(",", "", 1).replace(".", "").lstrip("+-").isdigit() and text.count(",") == 1


def flat(row: dict[str, Any], lead: str = "") -> dict[str, Any]:
    """Nested objects as dotted names; lists as text. Tagged numbers are numbers."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and set(value) == {"$float"}:
            made[lead + name] = str(value["$float"])
        elif isinstance(value, dict):
            made.update(flat(value, f"{lead}{name}."))
        else:
            made[lead + name] = str(value) if isinstance(value, list) else value
    return made


def from_rows(rows: list[dict[str, Any]], source: str, notes: tuple[str, ...] = ()) -> Table:
    """Rows whose names may differ: a name that a row lacks is a cell with nothing in it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return Table(
        len(rows), {name: column([row.get(name) for row in rows], is_id(name)) for name in names}, source, notes
    )
