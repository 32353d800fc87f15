"""The numbers of a run: read from the traces while it runs, from columns once it has ended.

Every process of a run writes a trace, one `[name, of, step, value]` per line. When the run ends they are gathered into
`metrics.parquet` (or `metrics.jsonl` where pyarrow is not installed). Either way every point arrives exactly, NaN and
the infinities too.
"""

import os
from array import array
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from clew.archive import files
from clew.archive.model import METRICS, PARQUET, Run
from clew.errors import ClewError
from clew.records import exact
from clew.records.trace import HeldTrace, Series

SMALL = 2 << 20
"""Up to this many bytes, reading the traces is faster than importing pyarrow."""
CHUNK = 8192

Key = tuple[str, str, int]
Columns = dict[Key, tuple["array[int]", "array[float]"]]


class Metrics(NamedTuple):
    """`series` by name and part; `processes` are the pids that recorded any; `source` names the files read."""

    series: dict[tuple[str, str], Series]
    processes: tuple[int, ...]
    source: str
    remarks: tuple[str, ...]


def read_metrics(run: Run, pid: int | None = None) -> dict[tuple[str, str], Series]:
    """Every series of a run by (name, of). Where several processes recorded one, its points are merged by step."""
    return read(run, pid).series


def as_trace(run: Run) -> HeldTrace:
    return HeldTrace(run.id, read_metrics(run).values())


def read(run: Run, pid: int | None = None) -> Metrics:
    """The same, with what had to be left out. `pid` asks for the points of one process alone."""
    columns, source, remarks = _columns(run)
    chosen = {key: held for key, held in columns.items() if pid is None or key[2] == pid}
    processes = tuple(sorted({key[2] for key in columns}))
    return Metrics(_series(chosen), processes, source, tuple(remarks))


def read_numbers(path: str, damage: files.Damage | None = None) -> list[tuple[str, str, int, float]]:
    """The numbers of one trace, in order; what is torn or damaged is left out."""
    blocks = _numbers(path, damage or files.Damage())
    return [(name, of, step, float(value)) for block in blocks for name, of, step, value in block]


def traces(run: Run) -> list[tuple[int, str]]:
    """The traces of a run with the pid that wrote each."""
    try:
        names = os.listdir(run.folder)
    except OSError as error:
        raise ClewError(f"cannot read {run.folder}: {error.strerror}.") from error
    found = []
    for name in names:
        middle = name[len("trace-") : -len(".jsonl")]
        if name.startswith("trace-") and name.endswith(".jsonl") and middle.isdecimal():
            found.append((int(middle), run.path(name)))
    return sorted(found)


def gather(run: Run) -> str:
    """Put the numbers of all traces into one file of columns; returns its name, "" when there are no numbers."""
    columns, _ = _from_traces(run)
    return _keep(run, columns)


def keep(run: Run, series: Iterable[Series], pid: int = 0) -> str:
    """Write series that came from elsewhere, an importer for one, as the metrics of a run."""
    columns: Columns = {}
    for item in series:
        columns[item.name, item.of, pid] = (array("q", item.steps), array("d", item.values))
    return _keep(run, columns)


def _keep(run: Run, columns: Columns) -> str:
    if not any(len(steps) for steps, _ in columns.values()):
        return ""
    # Parquet holds no text that is not Unicode; a name with a stray surrogate is rare enough for the slower form.
    if _arrow() is not None and all(_is_unicode(name) and _is_unicode(of) for name, of, _ in columns):
        _write_parquet(run.path(PARQUET), columns)
        return PARQUET
    files.write_whole(run.path(METRICS), _lines(columns))
    return METRICS


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


# --- reading


def _columns(run: Run) -> tuple[Columns, str, list[str]]:
    """From the quickest source that is there and whole; the traces are what all others are made from."""
    remarks: list[str] = []
    held = [path for _, path in traces(run)]
    if not held or sum(os.path.getsize(path) for path in held) > SMALL:
        if os.path.exists(run.path(PARQUET)):
            try:
                return _read_parquet(run.path(PARQUET)), PARQUET, remarks
            except ClewError as error:
                if not held:
                    raise
                remarks.append(str(error))
        if os.path.exists(run.path(METRICS)):
            columns, said = _read_lines(run.path(METRICS))
            return columns, METRICS, remarks + said
    columns, said = _from_traces(run)
    return columns, "traces" if held else "", remarks + said


def _from_traces(run: Run) -> tuple[Columns, list[str]]:
    columns: Columns = {}
    remarks: list[str] = []
    for pid, path in traces(run):
        damage = files.Damage()
        for block in _numbers(path, damage):
            _sort_in(columns, pid, block)
        remarks += damage.remarks(path)
    return columns, remarks


def _sort_in(columns: Columns, pid: int, block: list[Any]) -> None:
    for name, of, step, value in block:
        held = columns.get((name, of, pid))
        if held is None:
            held = columns[name, of, pid] = (array("q"), array("d"))
        held[0].append(step)
        held[1].append(value)


def _numbers(path: str, damage: files.Damage) -> Iterable[list[Any]]:
    """The numbers of a trace, a block at a time. Lines that hold something else than a number are not meant for us."""
    for raw in files.blocks(path, damage):
        lines = [line for line in raw if line]
        try:
            # One call for thousands of lines is several times faster than one for each.
            values = files.parse(b"[" + b",".join(lines) + b"]")
            whole = len(values) == len(lines)
        except (ValueError, RecursionError):
            whole = False
        if not whole:
            values = list(_one_by_one(lines, damage))
        if not _all_numbers(values):
            damage.lines += sum(type(value) is list and not _is_number(value) for value in values)
            values = [value for value in values if _is_number(value)]
        yield values


def _one_by_one(lines: list[bytes], damage: files.Damage) -> Iterable[Any]:
    for line in lines:
        try:
            yield files.parse(line)
        except (ValueError, RecursionError):
            damage.lines += 1


def _all_numbers(values: list[Any]) -> bool:
    """What `_is_number` asks of each, asked of thousands at once."""
    if not values or set(map(type, values)) != {list} or set(map(len, values)) != {4}:
        return not values
    name, of, step, number = zip(*values, strict=True)
    return (
        {*map(type, name), *map(type, of)} == {str}
        and set(map(type, step)) == {int}
        and set(map(type, number)) == {float}
        and min(step) >= -(1 << 63)
        and max(step) < 1 << 63
    )


def _is_number(value: Any) -> bool:
    if type(value) is not list or len(value) != 4:
        return False
    name, of, step, number = value
    return (
        type(name) is str
        and type(of) is str
        and type(step) is int
        and -(1 << 63) <= step < 1 << 63
        and (type(number) is float or (type(number) is int and abs(number) < 1 << 1023))
    )


def _series(columns: Columns) -> dict[tuple[str, str], Series]:
    by_name: dict[tuple[str, str], list[tuple[array[int], array[float]]]] = {}
    for (name, of, _), held in columns.items():
        by_name.setdefault((name, of), []).append(held)
    found = {}
    for (name, of), parts in by_name.items():
        if len(parts) == 1:
            steps, values = tuple(parts[0][0]), tuple(parts[0][1])
        else:
            points = [point for part in parts for point in zip(*part, strict=True)]
            points.sort(key=lambda point: point[0])
            steps, values = tuple(step for step, _ in points), tuple(value for _, value in points)
        found[name, of] = Series(name, steps, values, of)
    return found


# --- columns as JSON, where pyarrow is not installed


def _lines(columns: Columns) -> bytes:
    """One line for some thousand points of one series."""
    made = [exact.dumps({"schema": files.SCHEMA})]
    for (name, of, pid), (steps, values) in columns.items():
        for first in range(0, len(steps), CHUNK):
            part = slice(first, first + CHUNK)
            row = {"name": name, "of": of, "pid": pid, "step": steps[part].tolist(), "value": values[part].tolist()}
            made.append(exact.dumps(row))
    return ("\n".join(made) + "\n").encode()


def _read_lines(path: str) -> tuple[Columns, list[str]]:
    columns: Columns = {}
    damage = files.Damage()
    for row in files.lines(path, damage):
        if isinstance(row, dict) and "schema" in row:
            files.check_schema(path, row["schema"])
            continue
        try:
            steps, values = array("q", row["step"]), array("d", row["value"])
            if len(steps) != len(values):
                raise ValueError("as many values as steps")
            held = columns.setdefault((str(row["name"]), str(row["of"]), int(row["pid"])), (array("q"), array("d")))
        except (KeyError, TypeError, ValueError, OverflowError):
            damage.lines += 1
            continue
        held[0].extend(steps)
        held[1].extend(values)
    return columns, damage.remarks(path)


# --- columns as Parquet


def _arrow() -> Any:
    """pyarrow with its Parquet part, or None where it is not installed."""
    from importlib import import_module

    try:
        import_module("pyarrow.parquet")
        import_module("pyarrow.compute")
        return import_module("pyarrow")
    except ImportError:
        return None


def _write_parquet(path: str, columns: Columns) -> None:
    """The points of a series stand together, in the order they were recorded."""
    arrow = _arrow()
    lengths = [len(steps) for steps, _ in columns.values()]
    starts, steps, values = array("q"), array("q"), array("d")
    for index, (held_steps, held_values) in enumerate(columns.values()):
        starts.extend(array("q", [index]) * lengths[index])
        steps.extend(held_steps)
        values.extend(held_values)
    which = arrow.Array.from_buffers(arrow.int64(), len(starts), [None, arrow.py_buffer(starts)])
    table = arrow.table(
        {
            "name": _dictionary(arrow, which, [key[0] for key in columns]),
            "of": _dictionary(arrow, which, [key[1] for key in columns]),
            "step": arrow.Array.from_buffers(arrow.int64(), len(steps), [None, arrow.py_buffer(steps)]),
            "value": arrow.Array.from_buffers(arrow.float64(), len(values), [None, arrow.py_buffer(values)]),
            "pid": arrow.array([key[2] for key in columns], arrow.int64()).take(which),
        }
    ).replace_schema_metadata({"schema": files.SCHEMA})
    sink = arrow.BufferOutputStream()
    # Steps as differences and values by byte are smaller and load in half the time. No statistics on the values: some
    # readers take them as proof that there is no NaN.
    arrow.parquet.write_table(
        table,
        sink,
        compression="zstd",
        use_dictionary=["name", "of", "pid"],
        column_encoding={"step": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"},
        write_statistics=["name", "of", "step", "pid"],
    )
    files.write_whole(path, sink.getvalue().to_pybytes())


def _dictionary(arrow: Any, which: Any, texts: list[str]) -> Any:
    """The text of every point, as a number into the texts that occur."""
    known = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    codes = arrow.array([known[text] for text in texts], arrow.int32()).take(which)
    return arrow.DictionaryArray.from_arrays(codes, arrow.array(list(known), arrow.string()))


def _read_parquet(path: str) -> Columns:
    arrow = _arrow()
    if arrow is None:
        raise ClewError(f"reading {path} needs pyarrow: pip install pyarrow")
    try:
        held = (arrow.parquet.read_schema(path).metadata or {}).get(b"schema")
        files.check_schema(path, held.decode("utf-8", "replace") if held is not None else None)
        return _split(arrow, arrow.parquet.ParquetFile(path, read_dictionary=["name", "of"]).read())
    except (OSError, arrow.ArrowInvalid) as error:
        raise ClewError(f"{path} is damaged: {str(error).splitlines()[0].rstrip('.')}.") from error
    except (KeyError, OverflowError, ValueError, AttributeError, TypeError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is damaged: it has no columns name, of, step, value and pid.") from error


def _split(arrow: Any, table: Any) -> Columns:
    """Cut the columns where the series changes, without looking at single points in Python."""
    compute = arrow.compute
    table = table.unify_dictionaries().combine_chunks()
    name, of, pid, step, value = (table[title] for title in ("name", "of", "pid", "step", "value"))
    name, of, pid, step, value = (one.combine_chunks() for one in (name, of, pid, step, value))
    if not len(step):
        return {}
    changes = None
    for codes in (name.indices, of.indices, pid):
        differs = compute.not_equal(codes.slice(1), codes.slice(0, len(codes) - 1))
        changes = differs if changes is None else compute.or_(changes, differs)
    cuts = [0, *(cut + 1 for cut in compute.indices_nonzero(changes).to_pylist()), len(step)]
    steps, values = _bytes(step.cast(arrow.int64())), _bytes(value.cast(arrow.float64()))
    columns: Columns = {}
    for first, last in pairwise(cuts):
        key = (name[first].as_py(), of[first].as_py(), pid[first].as_py())
        held = columns.setdefault(key, (array("q"), array("d")))
        held[0].frombytes(steps[8 * first : 8 * last])
        held[1].frombytes(values[8 * first : 8 * last])
    return columns


def _bytes(column: Any) -> memoryview:
    """The bytes of a column of eight-byte numbers."""
    if column.null_count:
        raise ValueError("a value is missing")
    return memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))]
