"""Points on their way into the cache, through a file: memory holds a block of them, however many there are."""

import os
from importlib import import_module
from typing import Any

import numpy as np

from clew.errors import ClewError
from clew.sweep.points import Points, Series

BLOCK = 1 << 18
GROUP = 1 << 20
"""Rows in a row group of the Parquet file."""


class Spool:
    """A turn is one run as it was read once; a later turn may replace it, which only the end can tell."""

    def __init__(self, arrow: Any, part: str) -> None:
        self.arrow, self.part = arrow, part
        import_module("pyarrow.ipc")
        kinds = [("turn", arrow.int64()), ("name", arrow.int32()), ("step", arrow.int64()), ("value", arrow.float64())]
        self._schema = arrow.schema(kinds)
        self._names: dict[str, int] = {}
        self._held: list[tuple[int, int, Series]] = []
        self._count = 0
        self._file: Any = None
        self._writer: Any = None

    def add(self, turn: int, points: Points) -> None:
        for name, series in points.series.items():
            self._held.append((turn, self._names.setdefault(name, len(self._names)), series))
            self._count += len(series.steps)
        if self._count >= BLOCK:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        sizes = [len(series.steps) for _, _, series in self._held]
        columns = [
            np.repeat(np.array([turn for turn, _, _ in self._held], dtype=np.int64), sizes),
            np.repeat(np.array([name for _, name, _ in self._held], dtype=np.int32), sizes),
            np.concatenate([np.frombuffer(series.steps, dtype=np.int64) for _, _, series in self._held]),
            np.concatenate([np.frombuffer(series.values, dtype=np.float64) for _, _, series in self._held]),
        ]
        # NaN is a reading: it must not become a cell with nothing in it.
        arrays = [self.arrow.array(held, from_pandas=False) for held in columns]
        try:
            if self._writer is None:
                self._file = self.arrow.OSFile(self.part, "wb")
                self._writer = self.arrow.ipc.new_stream(self._file, self._schema)
            self._writer.write_batch(self.arrow.record_batch(arrays, schema=self._schema))
        except OSError as error:
            raise ClewError(f"cannot write {self.part}: {error.strerror or error}.") from error
        self._held, self._count = [], 0

    def finish(self, path: str, replaced: Any, ids: Any) -> int:
        """Write the points file anew: the old points but for runs in `replaced`, then the turns that have an id."""
        arrow = self.arrow
        self._flush()
        schema = arrow.schema(
            [("run_id", arrow.string()), ("name", arrow.string()), ("step", arrow.int64()), ("value", arrow.float64())]
        )
        part = f"{self.part}-new"
        count = 0
        try:
            # Without statistics: some readers take them as proof that a column holds no NaN.
            with arrow.parquet.ParquetWriter(part, schema, compression="zstd", write_statistics=False) as writer:
                for table in _grouped(arrow, self._old(path, replaced, schema), self._new(ids, schema)):
                    count += table.num_rows
                    writer.write_table(table)
            os.replace(part, path)
        except (OSError, arrow.ArrowException) as error:
            if os.path.exists(part):
                os.unlink(part)
            raise ClewError(f"cannot write {path}: {str(error).splitlines()[0].rstrip('.')}.") from error
        return count

    def _old(self, path: str, replaced: Any, schema: Any) -> Any:
        arrow = self.arrow
        if not os.path.exists(path):
            return
        with arrow.parquet.ParquetFile(path) as held:
            for batch in held.iter_batches(BLOCK, columns=schema.names):
                table = arrow.Table.from_batches([batch]).replace_schema_metadata(None)
                yield table.filter(arrow.compute.invert(arrow.compute.is_in(table["run_id"], value_set=replaced)))

    def _new(self, ids: Any, schema: Any) -> Any:
        arrow = self.arrow
        if self._writer is None:
            return
        self._shut()
        names = arrow.array(list(self._names), arrow.string())
        with arrow.OSFile(self.part, "rb") as file:
            for batch in arrow.ipc.open_stream(file):
                runs = ids.take(batch.column(0))
                columns = [runs, names.take(batch.column(1)), batch.column(2), batch.column(3)]
                table = arrow.table(columns, schema=schema)
                yield table.filter(arrow.compute.is_valid(runs))

    def _shut(self) -> None:
        if self._file is not None and not self._file.closed:
            self._writer.close()
            self._file.close()

    def close(self) -> None:
        self._shut()
        if os.path.exists(self.part):
            os.unlink(self.part)


def _grouped(arrow: Any, *streams: Any) -> Any:
    held: list[Any] = []
    rows = 0
    for stream in streams:
        for table in stream:
            held.append(table)
            rows += table.num_rows
            if rows >= GROUP:
                yield arrow.concat_tables(held)
                held, rows = [], 0
    if held:
        yield arrow.concat_tables(held)
