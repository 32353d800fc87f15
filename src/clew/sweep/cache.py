"""The cache of collected runs: one Parquet file of runs, one of points, and the logs beside them.

`FILE.parquet` has a row for every run with its settings and the last reading of every metric; `FILE.points.parquet` has
every reading. A run that is collected again replaces what was there when it is as new or newer; columns come and go as
the runs name them.
"""

import os
import shutil
import time
from importlib import import_module
from typing import Any, NamedTuple

from clew.errors import ClewError
from clew.sweep.points import Collected, Found, row

COLLECTED = b"clew.collected"
MARGIN = 86_400.0
"""Seconds before the last look from which sources are read again: clocks differ and writers are late."""


class Kept(NamedTuple):
    new: int
    renewed: int
    total: int
    points: int


def _arrow() -> Any:
    import_module("pyarrow.parquet")
    return import_module("pyarrow")


def points_path(path: str) -> str:
    return path.removesuffix(".parquet") + ".points.parquet"


def last_look(path: str) -> float:
    """When the cache was last filled, in seconds since 1970; 0 when there is none."""
    if not os.path.exists(path):
        return 0.0
    arrow = _arrow()
    try:
        held = (arrow.parquet.read_schema(path).metadata or {}).get(COLLECTED)
        return float(held) if held is not None else 0.0
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise ClewError(f"{path} is no cache of runs: {str(error).splitlines()[0].rstrip('.')}.") from error


def keep(path: str, collected: Collected, now: float | None = None) -> Kept:
    """Merge what was collected into the cache; it is replaced whole or not at all."""
    arrow = _arrow()
    now = time.time() if now is None else now
    last_look(path)
    old = arrow.parquet.read_table(path).to_pylist() if os.path.exists(path) else []
    known = {str(item["run_id"]): item for item in old}
    taken: dict[str, Found] = {}
    for found in collected.runs:
        earlier = taken.get(found.id)
        if earlier is None or found.updated >= earlier.updated:
            taken[found.id] = found
    taken = {
        name: found
        for name, found in taken.items()
        if name not in known or found.updated >= float(known[name].get("updated_at") or 0.0)
    }
    new = sum(name not in known for name in taken)
    known |= {name: row(found) for name, found in taken.items()}
    kept_points = _points(arrow, points_path(path), taken)
    names = dict.fromkeys(name for item in known.values() for name in item)
    columns = {name: _column(arrow, [item.get(name) for item in known.values()]) for name in names}
    table = arrow.table(columns).replace_schema_metadata({COLLECTED: repr(now).encode(), b"schema": b"clew/1"})
    _write(arrow, points_path(path), kept_points)
    _write(arrow, path, table)
    _logs(path, taken)
    return Kept(new, len(taken) - new, len(known), kept_points.num_rows)


def _column(arrow: Any, values: list[Any]) -> Any:
    """Numbers where all are numbers, else text; nothing stays nothing and NaN stays NaN."""
    there = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in there) and there:
        return arrow.array(values, arrow.bool_())
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in there):
        return arrow.array([None if value is None else float(value) for value in values], arrow.float64())
    return arrow.array([None if value is None else str(value) for value in values], arrow.string())


def _points(arrow: Any, path: str, taken: dict[str, Found]) -> Any:
    rows = [(found.id, *point) for found in taken.values() for point in found.points]
    made = arrow.table(
        {
            "run_id": arrow.array([one[0] for one in rows], arrow.string()),
            "name": arrow.array([one[1] for one in rows], arrow.string()),
            "step": arrow.array([one[2] for one in rows], arrow.int64()),
            "value": arrow.array([one[3] for one in rows], arrow.float64()),
        }
    )
    if not os.path.exists(path):
        return made
    compute = import_module("pyarrow.compute")
    old = arrow.parquet.read_table(path)
    stays = compute.invert(compute.is_in(old["run_id"], value_set=arrow.array(list(taken), arrow.string())))
    return arrow.concat_tables([old.filter(stays).replace_schema_metadata(None), made])


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


def _logs(path: str, taken: dict[str, Found]) -> None:
    folder = path.removesuffix(".parquet") + ".logs"
    for found in taken.values():
        if found.log:
            os.makedirs(folder, exist_ok=True)
            shutil.copyfile(found.log, os.path.join(folder, f"{os.path.basename(found.id)}.log"))
