"""Columns of a table that are averages of the labels, taken by group over the very rows that are about to be split.

Such a column shows in the values: it is one number per group, and the same shrunken mean of the group's labels in all
of them. Only small groups count, in which a row's own label is a good part of the mean.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from clew.records.place import Place

LABEL = re.compile(r"^(y|labels?|targets?|outcome)$", re.IGNORECASE)
FEWEST, MOST = 100, 500_000
COLUMNS = 48
KEYS = 12
GROUPS = 20
OWN = 0.03
"""How much of the mean is a row's own label, on average over the rows."""
MIXED = 0.2
"""Share of the groups in which labels differ; where none do, the label belongs to the group and not to the row."""
EXACT = 1e-2
"""Of the spread of the group means; leaves room for a column that was rounded."""


class Encoded(NamedTuple):
    column: str
    key: str
    groups: int
    own: float
    place: Place | None  # where the column is made
    split: Place | None


def label_columns(table: Any, given: Iterable[Any]) -> Iterator[Any]:
    """The labels that a split was told of, beside the table or as what it is stratified by, or else by their name."""
    told = [values for values in given if values is not None]
    for values in told or [table[name] for name in table.columns if LABEL.match(str(name))]:
        held = np.asarray(values)
        if held.shape == (len(table),) and held.dtype.kind in "biuf":
            yield held.astype(float)


def encoded(table: Any, given: Iterable[Any], split: Place | None) -> Encoded | None:
    """A column of a table that is split which averages its labels; `given` is what else the split was given."""
    if not hasattr(table, "columns") or not FEWEST <= len(table) <= MOST or table.shape[1] > COLUMNS:
        return None
    columns = {str(name): table.iloc[:, at] for at, name in enumerate(table.columns)}
    targets = [target for target in label_columns(table, given) if np.isfinite(target).all() and np.ptp(target) > 0]
    codes = dict(_keys(columns)) if targets else {}
    for name, column in columns.items():
        if column.dtype.kind != "f":
            continue
        values = column.to_numpy(float)
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            continue
        for key, (group, count) in codes.items():
            own = float((1 / count)[group].mean())
            if key != name and own >= OWN and any(_averages(values, target, group, count) for target in targets):
                return Encoded(name, key, len(count), own, made(name, split), split)
    return None


def _keys(columns: dict[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Columns that part the rows into groups, with the group of each row and how many rows each group has."""
    found = 0
    for name, column in columns.items():
        if column.dtype.kind == "f" or found >= KEYS:
            continue
        group = np.asarray(column.factorize()[0])
        count = np.bincount(group[group >= 0])
        if GROUPS <= len(count) <= len(group) / 1.5 and bool((group >= 0).all()):
            found += 1
            yield name, (group, count)


def _averages(values: Any, target: Any, group: Any, count: Any) -> bool:
    """Whether the values are (sum + a) / (count + b) of the target in each group, with the same a and b in all."""
    mean = np.bincount(group, values) / count
    if not np.allclose(values, mean[group], rtol=1e-6, atol=1e-9):
        return False
    total = np.bincount(group, target)
    squares = np.bincount(group, target * target) - total * total / count
    several = count > 1
    if several.sum() < GROUPS or float((squares[several] > 1e-9 * np.var(target)).mean()) < MIXED:
        return False
    left = mean * count - total
    terms = np.stack([np.ones_like(mean), -mean], 1)
    found = np.linalg.lstsq(terms, left, rcond=None)[0]
    signal = total - count * target.mean()
    return bool(found[1] > -EXACT and np.std(left - terms @ found) < EXACT * np.std(signal))


def made(name: str, split: Place | None) -> Place | None:
    """The last line before the split that gives the column its values, where it is spelled out."""
    if split is None or not split.file or not split.line:
        return None
    sets = re.compile(rf"""["']{re.escape(name)}["']\s*\]\s*=[^=]|[(,\s]{re.escape(name)}\s*=[^=]""")
    path = os.path.abspath(split.file)
    lines = (line for line in range(split.line - 1, 0, -1) if sets.search(linecache.getline(path, line)))
    line = next(lines, None)
    return None if line is None else split._replace(line=line, end_line=None, role="the column is made here")
