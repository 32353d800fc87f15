"""Reading data files as tables: plain formats only, never a pickle, and no more than a bounded part of each.

CSV, TSV, JSON, JSON lines, lines of text, tagged words (CoNLL), `.npy`, `.npz`, Parquet where pyarrow is there, and
`.bin` that holds 16-bit tokens. What cannot be read is left out with the reason.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

from clew.data.model import Array, Column, Table
from clew.reading import LONGEST, opened

MOST_ROWS = 20_000
MOST_BYTES = 64 << 20
"""Of one file, unpacked, as far as it is read."""
MOST_MEMBERS = 200
FEWEST = 8
FEW = 64
NARROW = 64
"""An array of up to so many numbers per row is looked at column by column."""
EMPTY = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
SPARSE = {"data", "shape", "format"}
"""What scipy writes beside the indices of a sparse matrix."""
READABLE = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".txt", ".conll", ".npy", ".npz", ".parquet", ".bin", ".data")


class Unread(Exception):
    """Why a file is no table."""


def read(path: str, shown: str) -> Table:
    """The table in a file; `shown` is how the file is named to people."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in READABLE:
        raise Unread(f"files ending in {ending or 'nothing'} are not read")
    try:
        with opened(path) as file:
            table = _by_ending(file, shown, ending)
    except Unread:
        raise
    except MemoryError as error:
        raise Unread("it takes more memory than a look may") from error
    except OSError as error:
        raise Unread(str(error.strerror or error)) from error
    except Exception as error:  # libraries raise whatever they like over a damaged file
        raise Unread(f"it cannot be read: {type(error).__name__}") from error
    if table.rows < FEWEST or not table.columns:
        raise Unread(f"{table.rows} rows are too few")
    return table


def _by_ending(file: BinaryIO, shown: str, ending: str) -> Table:
    if ending in (".npy", ".npz"):
        return _arrays(file, shown, ending)
    if ending == ".bin":
        return _stream(file, shown)
    if ending == ".parquet":
        return _parquet(file, shown)
    if ending == ".json":
        return _json(file, shown)
    lines, whole = _lines(file)
    if ending in (".jsonl", ".ndjson"):
        import json

        records = [json.loads(line) for line in lines if line.strip()]
        return _records(records, shown, 1, whole)
    if ending in (".csv", ".tsv"):
        return _cells(lines, shown, "\t" if ending == ".tsv" else "", whole)
    if ending == ".data" and lines and lines[0].count(",") > 1:
        return _cells(lines, shown, ",", whole)
    return _text(lines, shown, whole, ending == ".conll")


def _lines(file: BinaryIO) -> tuple[list[str], bool]:
    """Up to the most rows of a text file, and whether that is all of it."""
    found: list[str] = []
    size = 0
    with io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="") as text:
        while line := text.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise Unread(f"its line {len(found) + 1} is longer than {LONGEST >> 20} MiB")
            size += len(line)
            if len(found) > MOST_ROWS or size > MOST_BYTES:
                return found, False
            found.append(line.rstrip("\r\n"))
    return found, True


def _cells(lines: list[str], shown: str, sign: str, whole: bool) -> Table:
    import csv

    if not lines:
        raise ValueError("no lines")
    sign = sign or max(",;\t|", key=lines[0].count)
    rows = [row for row in csv.reader(lines, delimiter=sign) if row]
    width = len(rows[0])
    headed = sum(_is_number(cell) for cell in rows[0]) == 0 and (
        width > 1 or (len(rows) > 1 and any(_is_number(cell) for cell in rows[1])) or len(set(rows[0][0].split())) == 1
    )
    names = [cell.strip() for cell in rows[0]] if headed else [str(index) for index in range(width)]
    body = [row for row in rows[headed:] if len(row) == width]
    columns = [column_of(shown, name, [row[at] for row in body]) for at, name in enumerate(names)]
    # A quoted cell may hold line ends; then rows are no lines.
    line = 1 + headed if len(body) + headed == len(lines) else 0
    return Table(shown, len(body), tuple(columns), line, whole)


def _text(lines: list[str], shown: str, whole: bool, tagged: bool) -> Table:
    filled = [line for line in lines if line.strip()]
    pairs = [line.split("\t") if "\t" in line else line.split() for line in filled[:200]]
    if filled and (tagged or "\t" in filled[0]) and len({len(pair) for pair in pairs}) == 1 and len(pairs[0]) > 1:
        return _tagged(lines, shown, len(pairs[0]), whole)
    line = 1 if len(filled) == len(lines) else 0
    return Table(shown, len(filled), (Column(shown, "", "text", objects(filled)),), line, whole)


def _tagged(lines: list[str], shown: str, width: int, whole: bool) -> Table:
    """Words with their tags, a blank line between sentences. A row is a word."""
    rows = [cells for line in lines if len(cells := line.split("\t") if "\t" in line else line.split()) == width]
    names = ["word", *(f"field {at + 1}" for at in range(1, width - 1)), "tag"]
    columns = [column_of(shown, name, [row[at] for row in rows]) for at, name in enumerate(names)]
    return Table(shown, len(rows), tuple(columns), 0 if len(rows) < len(lines) else 1, whole)


def _json(file: BinaryIO, shown: str) -> Table:
    import json

    data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unread(f"it is larger than {MOST_BYTES >> 20} MiB")
    held = json.loads(data)
    if isinstance(held, dict):
        lists = {key: value for key, value in held.items() if isinstance(value, list)}
        if len(lists) == 1:
            held = next(iter(lists.values()))
        elif lists and len({len(value) for value in lists.values()}) == 1:
            columns = [column_of(shown, key, value[:MOST_ROWS]) for key, value in lists.items()]
            return Table(shown, len(columns[0].values), tuple(columns))
    if not isinstance(held, list):
        raise ValueError("not a list of records")
    return _records(held[:MOST_ROWS], shown, 0, len(held) <= MOST_ROWS)


def _records(records: list[Any], shown: str, line: int, whole: bool) -> Table:
    if not records or not all(isinstance(record, dict) for record in records):
        raise ValueError("no records")
    names = dict.fromkeys(name for record in records[:1000] for name in record)
    columns = [column_of(shown, str(name), [record.get(name) for record in records]) for name in names]
    return Table(shown, len(records), tuple(columns), line, whole)


def _parquet(file: BinaryIO, shown: str) -> Table:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise Unread("pyarrow is not installed") from error
    with pyarrow.parquet.ParquetFile(file) as stored:
        rows = size = 0
        for number in range(stored.metadata.num_row_groups):
            rows += stored.metadata.row_group(number).num_rows
            size += stored.metadata.row_group(number).total_byte_size
            if rows >= MOST_ROWS:
                break
        if size > MOST_BYTES:
            raise Unread(f"its first {rows:,} rows unpack to {size >> 20} MiB")
        total = stored.metadata.num_rows
        batches, left = [], MOST_ROWS
        for batch in stored.iter_batches(MOST_ROWS, use_threads=False):
            batches.append(batch.slice(0, left))
            left -= len(batches[-1])
            if not left:
                break
        held = pyarrow.Table.from_batches(batches, stored.schema_arrow)
    columns = [column_of(shown, name, held[name].to_pylist()) for name in held.column_names]
    return Table(shown, held.num_rows, tuple(columns), 0, total <= MOST_ROWS, total)


def _arrays(file: BinaryIO, shown: str, ending: str) -> Table:
    """Only the rows that are looked at are unpacked, however many the header claims."""
    with ExitStack() as stack:
        parts = {"": file} if ending == ".npy" else stack.enter_context(npz_members(file))
        if {*parts} >= SPARSE:
            raise Unread("it holds a sparse matrix, whose entries are not rows")
        heads = {key: array_head(part) for key, part in parts.items()}
        heads = {key: head for key, head in heads.items() if head.shape and head.dtype.kind in "fiubUS"}
        if not heads:
            raise ValueError("no numeric arrays")
        counts = [head.shape[0] for head in heads.values()]
        rows = max(set(counts), key=lambda count: (counts.count(count), count))
        heads = {key: head for key, head in heads.items() if head.shape[0] == rows}
        wide = max(
            (head.dtype.itemsize if head.dtype.kind in "US" else 4) * math.prod(head.shape[1:])
            for head in heads.values()
        )
        some = min(rows, MOST_ROWS, max(FEWEST, MOST_BYTES // max(1, wide)))
        held = {key: array_rows(parts[key], head, some) for key, head in heads.items()}
    columns = [column for key, value in held.items() for column in array_columns(shown, key, value)]
    return Table(shown, some, tuple(columns), 0, rows <= some, rows)


@contextmanager
def npz_members(file: BinaryIO) -> Iterator[dict[str, IO[bytes]]]:
    with zipfile.ZipFile(file) as stored, ExitStack() as stack:
        names = [name for name in stored.namelist() if name.endswith(".npy")]
        if len(names) > MOST_MEMBERS:
            raise Unread(f"it holds {len(names)} arrays")
        yield {name.removesuffix(".npy"): stack.enter_context(stored.open(name)) for name in names}


class Head(NamedTuple):
    shape: tuple[int, ...]
    by_column: bool
    dtype: Any


def array_head(stream: IO[bytes]) -> Head:
    version = np.lib.format.read_magic(stream)
    read_head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return Head(*read_head(stream))


def array_rows(stream: IO[bytes], head: Head, rows: int) -> Array:
    """The first rows of an array whose header was read."""
    each = math.prod(head.shape[1:])
    count = head.shape[0] * each if head.by_column and each > 1 else rows * each
    size = count * head.dtype.itemsize
    if size > 2 * MOST_BYTES:
        raise Unread(f"an array of it takes {size >> 20} MiB")
    flat = np.frombuffer(stream.read(size), head.dtype, count)
    if head.by_column:
        return flat.reshape((count // max(1, each), *head.shape[1:]), order="F")[:rows]
    return flat.reshape(rows, *head.shape[1:])


def array_columns(shown: str, key: str, value: Array) -> list[Column]:
    if value.dtype.kind in "US":
        return [column_of(shown, key, [str(item) for item in value])]
    if value.ndim == 1 or (value.ndim == 2 and value.shape[1] == 1):
        return [number_column(shown, key, np.array(value, float).reshape(len(value)))]
    if value.ndim == 2 and value.shape[1] <= NARROW:
        return [number_column(shown, f"{key}[:, {at}]", np.array(value[:, at], float)) for at in range(value.shape[1])]
    return [Column(shown, key, "array", np.array(value, np.float32))]


def _stream(file: BinaryIO, shown: str) -> Table:
    """Two bytes per token, as programs that train language models keep them."""
    held = np.fromfile(file, dtype=np.uint16, count=MOST_BYTES // 8)
    if os.fstat(file.fileno()).st_size % 2 or len(held) < 1000 or len(np.unique(held)) > min(len(held) // 8, 60_000):
        raise ValueError("no 16-bit tokens")
    return Table(shown, len(held), (Column(shown, "", "stream", held.astype(np.int64)),))


def objects(values: Sequence[Any]) -> Array:
    column = np.empty(len(values), dtype=object)
    column[:] = list(values)
    return column


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def column_of(shown: str, name: str, cells: Sequence[Any]) -> Column:
    """The column that these cells make: its kind is read off them."""
    if any(isinstance(cell, list) for cell in cells[:50]):
        return _lists(shown, name, cells)
    filled = [cell for cell in cells if cell is not None and str(cell).strip().lower() not in EMPTY]
    empty = len(cells) - len(filled)
    if not filled or all(isinstance(cell, bool) for cell in filled):
        return Column(shown, name, "category", objects([str(cell) for cell in cells]), empty)
    numbers = _numbers(cells)
    if numbers is not None and np.isnan(numbers).sum() <= empty + 0.02 * len(cells):
        return number_column(shown, name, numbers, empty)
    texts = objects(["" if cell is None else str(cell) for cell in cells])
    times = _times(texts)
    if times is not None:
        return Column(shown, name, "time", times, empty)
    return Column(shown, name, _kind(texts), texts, empty)


def _kind(texts: Array) -> str:
    distinct = len(set(texts))
    words = sum(len(text.split()) for text in texts[:500]) / max(1, min(500, len(texts)))
    if words >= 2 or (distinct > FEW and len(texts) < 4 * distinct):
        return "key" if words < 1.5 and distinct > 0.98 * len(texts) and _coded(texts) else "text"
    return "category"


def _coded(texts: Array) -> bool:
    """Names such as img_0012.png or u004: a number that tells rows apart."""
    return sum(any(sign.isdigit() for sign in text) for text in texts[:200]) > 0.9 * min(200, len(texts))


def _lists(shown: str, name: str, cells: Sequence[Any]) -> Column:
    held = [cell if isinstance(cell, list) else [] for cell in cells]
    sizes = {len(cell) for cell in held}
    flat: Iterable[Any] = (item for cell in held[:50] for item in cell)
    if len(sizes) == 1 and all(isinstance(item, int | float) for item in flat):
        return Column(shown, name, "array", np.array(held, np.float32))
    return Column(shown, name, "list", objects([tuple(str(item) for item in cell) for cell in held]))


def number_column(shown: str, name: str, values: Array, empty: int = 0) -> Column:
    """Numbers that rise by one from row to row, or are all different whole numbers in order, only count the rows."""
    finite = values[np.isfinite(values)]
    if len(finite) == len(values) and len(values) >= FEWEST and bool((finite == np.round(finite)).all()):
        rises = np.diff(finite)
        if bool((rises > 0).all()) or (len(np.unique(finite)) == len(finite) and np.abs(finite).max() > len(finite)):
            return Column(shown, name, "key", values, empty)
    return Column(shown, name, "number", values, empty)


def _numbers(cells: Sequence[Any]) -> Array | None:
    found = np.full(len(cells), math.nan)
    wrong = 0
    for index, cell in enumerate(cells):
        try:
            found[index] = float(cell)
        except (TypeError, ValueError):
            wrong += cell is not None and str(cell).strip().lower() not in EMPTY
            if wrong > 20 + 0.02 * index:
                return None
    return found if wrong <= 0.02 * len(cells) else None


def _times(texts: Array) -> Array | None:
    import re

    shape = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?")
    if not all(shape.match(text) for text in texts[:50]):
        return None
    found = np.full(len(texts), math.nan)
    for index, text in enumerate(texts):
        digits = re.sub(r"\D", "", text)[:14]
        if len(digits) >= 8:
            found[index] = float(digits.ljust(14, "0"))
    return found
