"""Tables of runs: one row per run, read from CSV, Parquet or JSONL without guessing silently.

Every column is kept as codes into its distinct values. Text that is a number is that number, so 0.1, "0.1" and 1e-1 are
one value wherever they come from.
"""

import math
import os
import time
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError
from clew.report.sweep_view import Cell

Codes = NDArray[np.int32]
MISSING = {"", "na", "n/a", "none", "null", "-", "<na>", "missing"}
NOT_A_NUMBER = {"nan", "-nan", "crashed", "failed", "diverged", "crash", "error", "oom", "killed"}
INFINITE = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "-inf": -math.inf, "-infinity": -math.inf}
MANY = 2_000_000
"""Rows from which columns of nearly unique text are no longer kept: no parameter looks like that."""


class Column(NamedTuple):
    """`codes` point into `labels`; -1 is a cell with nothing in it."""

    codes: Codes
    labels: tuple[Cell, ...]

    def cell(self, row: int) -> Cell | None:
        code = int(self.codes[row])
        return None if code < 0 else self.labels[code]

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
        return value
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
            return _whole(float(text))
        except ValueError:
            return text
    return text


def _whole(value: float) -> Cell:
    return int(value) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else value


def column(values: list[Any]) -> Column:
    """A column from Python values."""
    return encoded(np.arange(len(values), dtype=np.int32), values)


def encoded(codes: Codes, raw: list[Any]) -> Column:
    """Codes into raw labels, with labels that mean the same made one."""
    known: dict[tuple[str, Cell], int] = {}
    labels: list[Cell] = []
    again = np.full(len(raw) + 1, -1, dtype=np.int32)
    for index, item in enumerate(raw):
        held = cell(item)
        if held is None:
            continue
        # NaN is not equal to itself, and True is equal to 1: neither may decide what is the same label.
        key = ("nan", 0) if isinstance(held, float) and math.isnan(held) else (str(isinstance(held, bool)), held)
        if key not in known:
            known[key] = len(labels)
            labels.append(held)
        again[index] = known[key]
    return Column(again[codes], tuple(labels))


def numbers(table: Table, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as numbers (NaN where there is none) and where it had nothing at all. Text is refused, with its row."""
    held = table.columns[name]
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


def read_table(path: str, keep: tuple[str, ...] = ()) -> Table:
    """A file of runs, by its content and ending. `keep` are columns that are wanted whatever they hold."""
    if not os.path.exists(path):
        raise ClewError(f"there is no file {path}.")
    try:
        if os.path.getsize(path) == 0:
            raise ClewError(f"{path} is empty.")
        with open(path, "rb") as file:
            head = file.read(1 << 16)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    if head[:4] == b"PAR1":
        return _parquet(path)
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if first == b"{" or path.endswith((".jsonl", ".ndjson")):
        return _jsonl(path)
    if first == b"[" or path.endswith(".json"):
        return _json(path)
    if b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise ClewError(f"{path} is no table: it holds zero bytes; CSV, Parquet and JSONL can be read.")
    return _csv(path, head, keep)


def _arrow(*parts: str) -> Any:
    from importlib import import_module

    try:
        for part in parts:
            import_module(f"pyarrow.{part}")
        return import_module("pyarrow")
    except ImportError:
        raise ClewError("reading tables of runs needs pyarrow: pip install 'clew[sweep]'") from None


def _from_arrow(arrow: Any, array: Any) -> Column:
    if not arrow.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    array = array.combine_chunks() if hasattr(array, "combine_chunks") else array
    if isinstance(array, arrow.ChunkedArray):
        array = array.unify_dictionaries().combine_chunks()
        array = array.chunk(0) if isinstance(array, arrow.ChunkedArray) else array
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return encoded(codes, array.dictionary.to_pylist())


def _parquet(path: str) -> Table:
    arrow = _arrow("parquet")
    try:
        held = arrow.parquet.read_table(path).flatten()
    except (OSError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is damaged: {str(error).splitlines()[0].rstrip('.')}.") from error
    if not held.num_rows:
        raise ClewError(f"{path} has columns and no rows.")
    columns = {name: _from_arrow(arrow, held[index]) for index, name in enumerate(held.column_names)}
    return Table(held.num_rows, columns, path, _age(held.schema.metadata or {}))


def _age(metadata: dict[bytes, bytes]) -> tuple[str, ...]:
    """How old a cache is, wherever it is used."""
    try:
        hours = (time.time() - float(metadata[b"clew.collected"])) / 3600
    except (KeyError, ValueError):
        return ()
    old = f"{hours * 60:.0f} minutes" if hours < 2 else f"{hours:.0f} hours" if hours < 48 else f"{hours / 24:.0f} days"
    return (f"collected {old} ago; `clew sweep collect` brings it up to date.",)


def _encoding(path: str, head: bytes) -> tuple[str, str]:
    for mark, name in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if head.startswith(mark):
            return name, f"{path} is written in {name}."
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                decoder.decode(block)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return "cp1252", f"{path} is not UTF-8 and was read as Windows-1252."
    return "utf8", ""


def _csv(path: str, head: bytes, keep: tuple[str, ...]) -> Table:
    """A block at a time: a file of any size, as long as its distinct values fit into memory."""
    arrow = _arrow("csv", "compute")
    encoding, note = _encoding(path, head)
    line = head.decode("utf-8" if encoding == "utf8" else encoding, "replace").lstrip("\ufeff").splitlines()[0]
    mark = max(",;\t|", key=line.count)
    names = _header(line, mark, path)
    options = arrow.csv.ConvertOptions(
        column_types={name: arrow.string() for name in names}, strings_can_be_null=False, check_utf8=True
    )
    blocks: dict[str, list[Any]] = {name: [] for name in names}
    dropped: list[str] = []
    rows = 0
    try:
        reader = arrow.csv.open_csv(
            path,
            read_options=arrow.csv.ReadOptions(encoding=encoding, block_size=1 << 23, column_names=names, skip_rows=1),
            parse_options=arrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            convert_options=options,
        )
        for batch in reader:
            rows += batch.num_rows
            for name in list(blocks):
                made = batch.column(batch.schema.get_field_index(name)).dictionary_encode()
                if rows > MANY and name not in keep and len(made.dictionary) > 0.9 * batch.num_rows:
                    del blocks[name]
                    dropped.append(name)
                else:
                    blocks[name].append(made)
    except (OSError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is no table: {str(error).splitlines()[0].rstrip('.')}.") from error
    if not rows:
        raise ClewError(f"{path} has a header and no rows.")
    columns = {name: _from_arrow(arrow, arrow.chunked_array(held)) for name, held in blocks.items()}
    notes = [note] if note else []
    if dropped:
        notes.append(f"columns with a value of its own in nearly every row were left unread: {', '.join(dropped)}.")
    return Table(rows, columns, path, tuple(notes))


def _header(line: str, mark: str, path: str) -> list[str]:
    import csv

    names = [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    names = [name or f"column {index + 1}" for index, name in enumerate(names)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ClewError(f"{path} has two columns named {sorted(twice)[0]!r}; rename one.")
    return names


def _jsonl(path: str) -> Table:
    import json

    rows: list[dict[str, Any]] = []
    bad, where = 0, 0
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for index, line in enumerate(file):
            if not line.strip():
                continue
            try:
                held = json.loads(line)
            except (ValueError, RecursionError):
                held = None
            if isinstance(held, dict):
                rows.append(flat(held))
            else:
                bad, where = bad + 1, where or index + 1
    if not rows:
        raise ClewError(f"no line of {path} holds a JSON object.")
    notes = (f"{bad} line{'s' * (bad != 1)} of {path} could not be read, the first is line {where}.",) if bad else ()
    return from_rows(rows, path, notes)


def _json(path: str) -> Table:
    import json

    try:
        with open(path, encoding="utf-8-sig") as file:
            held = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ClewError(f"{path} is no JSON: {error}.") from error
    rows = held.get("runs") if isinstance(held, dict) else held
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ClewError(f"{path} holds no list of runs.")
    return from_rows([flat(row) for row in rows], path)


def flat(row: dict[str, Any], lead: str = "") -> dict[str, Any]:
    """Nested objects as dotted names; lists as text. Tagged numbers are numbers."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, dict) and set(value) == {"$float"}:
            made[lead + name] = float(value["$float"])
        elif isinstance(value, dict):
            made.update(flat(value, f"{lead}{name}."))
        else:
            made[lead + name] = str(value) if isinstance(value, list) else value
    return made


def from_rows(rows: list[dict[str, Any]], source: str, notes: tuple[str, ...] = ()) -> Table:
    """Rows whose names may differ: a name that a row lacks is a cell with nothing in it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return Table(len(rows), {name: column([row.get(name) for row in rows]) for name in names}, source, notes)
