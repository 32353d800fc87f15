"""The cache of collected runs: one Parquet file of runs, one of points, and the logs beside them.

`FILE.parquet` has a row for every run with its settings and the last reading of every metric; `FILE.points.parquet` has
every reading; `FILE.logs` what the runs printed. A run that is collected again replaces what was there if it is at
least as new; columns come and go as the runs name them. Points go through a file on disk: memory holds a block of them.
"""

import fcntl
import json
import os
import shutil
import time
from typing import Any, NamedTuple

from clew.errors import ClewError
from clew.sweep.points import Found, Look, row
from clew.sweep.read import arrow_with, must_fit
from clew.sweep.spool import Spool

COLLECTED, LOOKED = b"clew.collected", b"clew.sources"
MARGIN = 86_400.0
"""Seconds before the last look from which sources are read again: clocks differ and writers are late."""
TURN = "\0turn"
ALWAYS = ("run_id", "source", "group", "state", "created", "updated_at")
ROWS = 20_000
"""How many rows are held before they become columns."""


class Kept(NamedTuple):
    new: int
    renewed: int
    total: int
    points: int


class State(NamedTuple):
    """When the cache was last filled (0: never), when each source was last read, and what is known."""

    collected: float
    looked: dict[str, float]
    known: frozenset[str]

    def look(self, source: str) -> Look:
        """Only what is new in this source. A source that was never read is read whole, however old its files are."""
        return Look(max(0.0, self.looked.get(source, 0.0) - MARGIN), self.known)


def points_path(path: str) -> str:
    return path.removesuffix(".parquet") + ".points.parquet"


def logs_path(path: str) -> str:
    return path.removesuffix(".parquet") + ".logs"


def log_name(run: str) -> str:
    return run.replace("/", "_").replace("\0", "_").lstrip(".")[-200:] + ".log"


def state(path: str) -> State:
    if not os.path.exists(path):
        return State(0.0, {}, frozenset())
    arrow = arrow_with("parquet", "compute")
    try:
        held = arrow.parquet.read_schema(path).metadata or {}
        if COLLECTED not in held:
            raise ClewError(f"{path} is a table of runs and no cache: name another file with --into.")
        must_fit(path, arrow.parquet.read_metadata(path))
        columns = arrow.parquet.read_table(path, columns=["run_id", "source", "state"]).to_pylist()
        looked = {str(name): float(at) for name, at in json.loads(held.get(LOOKED, b"{}")).items()}
        known = {str(one[name]) for one in columns if one["state"] != "running" for name in ("run_id", "source")}
        return State(float(held[COLLECTED]), looked, frozenset(known))
    except (OSError, OverflowError, ValueError, AttributeError, KeyError, arrow.ArrowException) as error:
        why = (str(error).splitlines() or ["it is damaged"])[0].rstrip(".")
        raise ClewError(f"{path} is no cache of runs: {why}.") from error


class Writer:
    """Fills a cache. Nothing that can be seen changes before `finish`; `close` gives up what was not finished."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.arrow = arrow_with("parquet", "compute")
        self.was = state(path)
        self._lock = self._locked()
        self._spool = Spool(self.arrow, f"{points_path(path)}.part-{os.getpid()}")
        self._old = self.arrow.parquet.read_table(path) if os.path.exists(path) else None
        self._updated: dict[str, float] = {}
        if self._old is not None:
            ids, times = self._old["run_id"].to_pylist(), self._old["updated_at"].to_pylist()
            self._updated = {str(name): float(at or 0.0) for name, at in zip(ids, times, strict=True)}
        self._before = frozenset(self._updated)
        self._turn: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._turns = 0
        self._rows: list[dict[str, Any]] = []
        self._tables: list[Any] = []

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()
        os.close(self._lock)

    def _locked(self) -> int:
        folder = os.path.dirname(os.path.abspath(self.path))
        try:
            handle = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise ClewError(f"cannot write into {folder}: {error.strerror}.") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise ClewError(f"another clew is collecting into {folder}; try again when it is done.") from None
        return handle

    @property
    def held(self) -> int:
        """How many runs the cache will hold."""
        return len(self._updated)

    def add(self, found: Found) -> None:
        turn = self._open.get(found.id)
        if turn is None:
            if found.updated < self._updated.get(found.id, 0.0):
                return
            turn, self._turns = self._turns, self._turns + 1
        self._spool.add(turn, found.points)
        if found.more:
            self._open[found.id] = turn
            return
        self._open.pop(found.id, None)
        self._turn[found.id], self._updated[found.id] = turn, found.updated
        made = row(found)
        if self._keep_log(found):
            made["log"] = os.path.join(os.path.basename(logs_path(self.path)), log_name(found.id))
        self._rows.append(made | {TURN: turn})
        if len(self._rows) >= ROWS:
            self._flush()

    def _keep_log(self, found: Found) -> bool:
        folder = logs_path(self.path)
        if not found.output and not found.log:
            return os.path.exists(os.path.join(folder, log_name(found.id)))
        os.makedirs(folder, exist_ok=True)
        target = os.path.join(folder, log_name(found.id))
        part = f"{target}.part-{os.getpid()}"
        if found.output:
            with open(part, "wb") as file:
                file.write(found.output)
        else:
            shutil.copyfile(found.log, part)
        os.replace(part, target)
        return True

    def _flush(self) -> None:
        names = dict.fromkeys(name for held in self._rows for name in held)
        columns = {name: _column(self.arrow, [held.get(name) for held in self._rows]) for name in names}
        if columns:
            self._tables.append(self.arrow.table(columns))
        self._rows = []

    def finish(self, looked: dict[str, float], now: float | None = None) -> Kept:
        """Merge what was added into the cache; each file is replaced whole or not at all."""
        arrow, now = self.arrow, time.time() if now is None else now
        self._flush()
        ids = arrow.array(list(self._turn), arrow.string())
        turns = arrow.array(list(self._turn.values()), arrow.int64())
        tables = [held.filter(arrow.compute.is_in(held[TURN], value_set=turns)) for held in self._tables]
        if self._old is not None:
            stays = arrow.compute.invert(arrow.compute.is_in(self._old["run_id"], value_set=ids))
            tables.insert(0, self._old.filter(stays))
        made = _merged(arrow, tables)
        said = {COLLECTED: repr(now).encode(), LOOKED: json.dumps({**self.was.looked, **looked}).encode()}
        by_turn: list[str | None] = [None] * self._turns
        for name, turn in self._turn.items():
            by_turn[turn] = name
        points = self._spool.finish(points_path(self.path), ids, arrow.array(by_turn, arrow.string()))
        _write(arrow, self.path, made.replace_schema_metadata({**said, b"schema": b"clew/1"}))
        new = sum(name not in self._before for name in self._turn)
        return Kept(new, len(self._turn) - new, made.num_rows, points)


def _column(arrow: Any, values: list[Any]) -> Any:
    """Numbers where all are numbers, else text; nothing stays nothing and NaN stays NaN."""
    there = [value for value in values if value is not None]
    if not there:
        return arrow.nulls(len(values))
    kinds = {bool if isinstance(value, bool) else type(value) for value in there}
    if kinds == {bool}:
        return arrow.array(values, arrow.bool_())
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in there):
        return arrow.array(values, arrow.int64())
    if kinds <= {int, float}:
        return arrow.array([None if value is None else float(value) for value in values], arrow.float64())
    return arrow.array([None if value is None else str(value) for value in values], arrow.string())


def _merged(arrow: Any, tables: list[Any]) -> Any:
    """One table of all columns; a column that is text in one of them is text, and one that holds nothing goes."""
    names = dict.fromkeys([*ALWAYS, *(name for held in tables for name in held.column_names if name != TURN)])
    columns = {}
    for name in names:
        chunks = [held[name] if name in held.column_names else arrow.nulls(held.num_rows) for held in tables]
        kinds = {chunk.type for chunk in chunks if chunk.null_count < len(chunk)}
        if not kinds and name not in ALWAYS:
            continue
        if len(kinds) < 2:
            kind = next(iter(kinds), arrow.float64() if name == "updated_at" else arrow.string())
        else:
            numeric = all(arrow.types.is_integer(one) or arrow.types.is_floating(one) for one in kinds)
            kind = arrow.float64() if numeric else arrow.string()
        # Not every whole number has a double of its own; the nearest one is meant.
        cast = [chunk.cast(kind, safe=False) for chunk in chunks]
        flat = [part for chunk in cast for part in (chunk.chunks if hasattr(chunk, "chunks") else [chunk])]
        columns[name] = arrow.chunked_array(flat, kind)
    return arrow.table(columns)


def _write(arrow: Any, path: str, table: Any) -> None:
    part = f"{path}.part-{os.getpid()}"
    try:
        # Without statistics: some readers take them as proof that a column holds no NaN.
        arrow.parquet.write_table(table, part, compression="zstd", write_statistics=False)
        os.replace(part, path)
    except OSError as error:
        if os.path.exists(part):
            os.unlink(part)
        raise ClewError(f"cannot write {path}: {error.strerror or error}.") from error
