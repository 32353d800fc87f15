"""Several tables of runs as one: columns merged as they come, nothing dropped."""

from typing import Any

import numpy as np

from clew.errors import ClewError
from clew.sweep.table import Column, Table, encoded


def join(tables: list[Table]) -> Table:
    if not tables:
        raise ClewError("name at least one table of runs.")
    if len(tables) == 1:
        return tables[0]
    names = dict.fromkeys(name for table in tables for name in table.columns)
    rows = sum(table.rows for table in tables)
    columns = {name: _joined([(table.rows, table.columns.get(name)) for table in tables]) for name in names}
    source = ", ".join(table.source for table in tables[:3]) + (" …" if len(tables) > 3 else "")
    return Table(rows, columns, source, tuple(note for table in tables for note in table.notes))


def _joined(parts: list[tuple[int, Column | None]]) -> Column:
    labels: list[Any] = []
    codes = []
    for rows, held in parts:
        if held is None:
            codes.append(np.full(rows, -1, dtype=np.int32))
            continue
        codes.append(np.where(held.codes < 0, np.int32(-1), held.codes + np.int32(len(labels))).astype(np.int32))
        labels += held.labels
    return encoded(np.concatenate(codes), labels)
