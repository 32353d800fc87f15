"""Reading tables of runs from CSV, Parquet, JSONL and JSON, block by block and without guessing silently."""

import os
import re
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np

from clew.errors import ClewError
from clew.reading import lines, opened, whole
from clew.sweep.table import Column, Table, column, encoded, flat, from_rows, is_id, of_numbers, stacked

BLOCK = 1 << 23
LINES = 20_000
MANY = 2_000_000
"""Rows from which columns of nearly unique cells are no longer kept: no parameter looks like that."""

MOST_UNPACKED, MOST_CELLS = 256 << 20, 1 << 27
"""Of a Parquet file: declared bytes of one group of rows, which is unpacked at once; cells, of which each stays."""


def read_table(path: str, keep: tuple[str, ...] = ()) -> Table:
    """A file of runs. `keep` are columns that are wanted whatever they hold.

    Only the columns' distinct values and four bytes a cell stay in memory, so that a file of any size can be read.
    """
    parts: dict[str, list[tuple[int, Column | None]]] = {}
    dropped: list[str] = []
    rows, notes = 0, list(_age(path))
    for block in blocks(path, notes):
        for name in block.columns.keys() - parts.keys() - set(dropped):
            parts[name] = [(rows, None)] if rows else []
        rows += block.rows
        for name in list(parts):
            held = block.columns.get(name)
            if rows > MANY and name not in keep and held is not None and len(held.labels) > 0.9 * block.rows:
                del parts[name]
                dropped.append(name)
            else:
                parts[name].append((block.rows, held))
    if dropped:
        notes.append(f"columns with a different value in nearly every row were not read: {', '.join(dropped)}.")
    columns = {}
    for name in list(parts):
        whole = parts.pop(name)
        first = whole[0][1]
        columns[name] = first if len(whole) == 1 and first is not None else stacked(whole, is_id(name))
    return Table(rows, columns, path, tuple(notes))


def blocks(path: str, notes: list[str]) -> Iterator[Table]:
    """A file of runs in parts, by its content and ending."""
    if not os.path.exists(path):
        raise ClewError(f"there is no file {path}.")
    try:
        with opened(path) as file:
            head = file.read(1 << 16)
            while not re.search(rb"[\r\n]", head) and len(head) < BLOCK and (more := file.read(1 << 20)):
                head += more
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    if len(head) >= BLOCK and not re.search(rb"[\r\n]", head) and head[:4] != b"PAR1" and not path.endswith(".json"):
        raise ClewError(f"the first line of {path} is longer than {BLOCK >> 20} MiB.")
    if not head:
        raise ClewError(f"{path} is empty.")
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if head[:4] == b"PAR1":
        made = _parquet(path)
    elif first == b"{" or path.endswith((".jsonl", ".ndjson")):
        made = _jsonl(path, notes)
    elif first == b"[" or path.endswith(".json"):
        made = _json(path)
    elif b"\0" in head and head[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise ClewError(f"{path} is no table: it holds zero bytes; CSV, Parquet and JSONL can be read.")
    else:
        made = _csv(path, head, notes)
    for block in made:
        columns = {name: column.shown(name) for name, column in block.columns.items()}
        yield block._replace(columns=columns)


def arrow_with(*parts: str) -> Any:
    from importlib import import_module

    try:
        for part in parts:
            import_module(f"pyarrow.{part}")
        return import_module("pyarrow")
    except ImportError:
        raise ClewError("Parquet files and `clew sweep collect` need pyarrow: pip install 'clew[sweep]'") from None


def _from_arrow(arrow: Any, array: Any, verbatim: bool) -> Column:
    """A column of a block. Numbers are taken over as they are, also where a file has them as text."""
    if isinstance(array, arrow.ChunkedArray):
        array = array.combine_chunks()
        array = array.chunk(0) if isinstance(array, arrow.ChunkedArray) else array
    if not verbatim and not arrow.types.is_boolean(array.type) and not arrow.types.is_dictionary(array.type):
        try:
            return _numbers(arrow, array)
        except (arrow.ArrowException, TypeError, ValueError):
            pass
    if not arrow.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return encoded(codes, array.dictionary.to_pylist(), verbatim)


def _numbers(arrow: Any, array: Any) -> Column:
    compute = arrow.compute
    if arrow.types.is_string(array.type) or arrow.types.is_large_string(array.type):
        array = compute.if_else(compute.equal(array, ""), arrow.scalar(None, array.type), array)
    elif not (arrow.types.is_integer(array.type) or arrow.types.is_floating(array.type)):
        raise TypeError
    held = array.cast(arrow.float64())
    missing = held.is_null(nan_is_null=False).to_numpy(zero_copy_only=False)
    if missing.all():
        raise ValueError
    values = held.fill_null(0.0).to_numpy(zero_copy_only=False)
    # Whole numbers beyond this have no double of their own.
    if (np.abs(values[np.isfinite(values)]) >= 1e15).any():
        raise ValueError
    return of_numbers(values, missing)


def _parquet(path: str) -> Iterator[Table]:
    arrow = arrow_with("parquet", "compute")
    try:
        with arrow.parquet.ParquetFile(path) as file:
            if not file.metadata.num_rows:
                raise ClewError(f"{path} has columns and no rows.")
            must_fit(path, file.metadata)
            for batch in file.iter_batches(1 << 17):
                held = arrow.Table.from_batches([batch]).flatten()
                names = held.column_names
                columns = {name: _from_arrow(arrow, held[at], is_id(name)) for at, name in enumerate(names)}
                yield Table(held.num_rows, columns, path)
    except (OSError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is damaged: {str(error).splitlines()[0].rstrip('.')}.") from error


def must_fit(path: str, held: Any) -> None:
    """Raises where the metadata of a Parquet file declare more than may be unpacked."""
    largest = max((held.row_group(at).total_byte_size for at in range(held.num_row_groups)), default=0)
    if largest > MOST_UNPACKED:
        raise ClewError(
            f"{path} unpacks to {largest >> 20:,} MiB in one row group, and clew reads at most {MOST_UNPACKED >> 20}."
        )
    cells = held.num_rows * held.num_columns
    if cells > MOST_CELLS:
        raise ClewError(f"{path} has {cells:,} cells, and clew reads at most {MOST_CELLS:,}.")


def _age(path: str) -> Iterator[str]:
    """How old a cache is, wherever it is used: by the source that was looked at longest ago."""
    if not path.endswith(".parquet"):
        return
    import json

    arrow = arrow_with("parquet")
    try:
        held = arrow.parquet.read_schema(path).metadata or {}
        looked = {str(name): float(at) for name, at in json.loads(held.get(b"clew.sources", b"{}")).items()}
        newest = float(held[b"clew.collected"])
    except (OSError, KeyError, OverflowError, ValueError, AttributeError, arrow.ArrowException):
        return
    name, oldest = min(looked.items(), key=lambda item: item[1], default=("", newest))
    also = f", from {name} {ago(oldest)}" if newest - oldest > 3600 else ""
    yield f"collected {ago(newest)}{also}; `clew sweep collect` brings it up to date."


def ago(moment: float) -> str:
    hours = max(0.0, time.time() - moment) / 3600
    if hours < 2:
        return f"{hours * 60:.0f} minutes ago"
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"


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


def _csv(path: str, head: bytes, notes: list[str]) -> Iterator[Table]:
    encoding, note = _encoding(path, head)
    notes += [note] if note else []
    line = head.decode("utf-8" if encoding == "utf8" else encoding, "replace").lstrip("\ufeff").splitlines()[0]
    mark = max(",;\t|", key=line.count)
    names = _header(line, mark, path)
    rows = 0
    for block in (_csv_arrow if find_spec("pyarrow") else _csv_plain)(path, encoding, mark, names):
        rows += block.rows
        yield block
    if not rows:
        raise ClewError(f"{path} has a header and no rows.")


def _csv_arrow(path: str, encoding: str, mark: str, names: list[str]) -> Iterator[Table]:
    arrow = arrow_with("csv", "compute")
    try:
        reader = arrow.csv.open_csv(
            path,
            read_options=arrow.csv.ReadOptions(encoding=encoding, block_size=BLOCK, column_names=names, skip_rows=1),
            parse_options=arrow.csv.ParseOptions(delimiter=mark, newlines_in_values=True),
            convert_options=arrow.csv.ConvertOptions(
                column_types={name: arrow.string() for name in names}, strings_can_be_null=False, check_utf8=True
            ),
        )
        for batch in reader:
            columns = {name: _from_arrow(arrow, batch.column(at), is_id(name)) for at, name in enumerate(names)}
            yield Table(batch.num_rows, columns, path)
    except (OSError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is no table: {str(error).splitlines()[0].rstrip('.')}.") from error


def _csv_plain(path: str, encoding: str, mark: str, names: list[str]) -> Iterator[Table]:
    """Without pyarrow: the same table, more slowly."""
    import csv

    try:
        with open(path, encoding="utf-8-sig" if encoding == "utf8" else encoding, newline="") as file:
            reader = csv.reader(file, delimiter=mark)
            next(reader)
            while rows := list(islice((row for row in reader if row), LINES)):
                for row in rows:
                    if len(row) != len(names):
                        raise ClewError(
                            f"{path} is no table: expected {len(names)} columns, got {len(row)}: {mark.join(row)[:80]}."
                        )
                cells = zip(names, zip(*rows, strict=True), strict=True)
                yield Table(len(rows), {name: column(list(held), is_id(name)) for name, held in cells}, path)
    except (OSError, csv.Error) as error:
        raise ClewError(f"{path} is no table: {error}.") from error


def _header(line: str, mark: str, path: str) -> list[str]:
    import csv

    names = [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    names = [name or f"column {index + 1}" for index, name in enumerate(names)]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ClewError(f"{path} has two columns named {sorted(twice)[0]!r}; rename one.")
    return names


def _jsonl(path: str, notes: list[str]) -> Iterator[Table]:
    import json

    rows: list[dict[str, Any]] = []
    count = bad = where = 0
    with opened(path) as file:
        for index, line in enumerate(lines(file, BLOCK)):
            if line is not None and not line.strip():
                continue
            try:
                held = json.loads(
                    (line or b"").removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"), parse_int=whole_number
                )
            except (ValueError, RecursionError):
                held = None
            if not isinstance(held, dict):
                bad, where = bad + 1, where or index + 1
                continue
            rows.append(flat(held))
            if len(rows) >= LINES:
                yield from_rows(rows, path)
                count, rows = count + len(rows), []
    if rows:
        yield from_rows(rows, path)
    if not count and not rows:
        raise ClewError(f"no line of {path} holds a JSON object.")
    if bad:
        notes.append(f"{bad} line{'s' * (bad != 1)} of {path} could not be read; the first is line {where}.")


def whole_number(text: str) -> int | float:
    """Of hundreds of digits it is read as 1e400 is: infinite."""
    return int(text) if len(text) < 300 else float(text)


def _json(path: str) -> Iterator[Table]:
    import json

    try:
        held = json.loads(whole(path), parse_int=whole_number)
    except OSError as error:
        raise ClewError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ClewError(f"{path} is no JSON: {error}.") from error
    rows = held.get("runs") if isinstance(held, dict) else held
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ClewError(f"{path} holds no list of runs.")
    yield from_rows([flat(row) for row in rows], path)
