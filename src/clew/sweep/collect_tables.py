"""Tables as collectors see them: a row for every run, or a row for every step of a run, told apart by repeated run ids.

A table is read in blocks. Points go on as they come; what stays in memory is one small record for every run.
"""

import os
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clew.errors import ClewError
from clew.sweep.points import Found, Look, Points, Series
from clew.sweep.read import blocks
from clew.sweep.roles import Roles, bare, find_roles, measured
from clew.sweep.table import Column, Table, numbers

MOST = 1_000_000
"""Runs in one table: as many records fit into some gigabytes of memory."""


class _Run:
    """What is known of a run so far. `last` has each metric's step and value at the largest step."""

    __slots__ = ("config", "last", "rows", "said")

    def __init__(self) -> None:
        self.rows = 0
        self.config: dict[str, Any] = {}
        self.said: dict[str, str] = {}
        self.last: dict[str, tuple[int, float]] = {}


def read_file(path: str, look: Look, remarks: list[str]) -> Iterator[Found]:
    updated = os.stat(path).st_mtime
    source = os.path.abspath(path)
    if look.settled(updated, source):
        return
    reader = _Reader(path, source, updated, remarks)
    for block in blocks(path, remarks):
        yield from reader.take(block)
    yield from reader.runs()


class _Reader:
    def __init__(self, path: str, source: str, updated: float, remarks: list[str]) -> None:
        self.path, self.source, self.updated, self.remarks = path, source, updated, remarks
        self.held: dict[str, _Run] = {}
        self.roles: Roles | None = None
        self.settings: set[str] = set()
        self.text: dict[str, int] = {}
        self.row = 0

    def _begin(self, block: Table) -> Roles:
        """What the columns are, by the first block: its thousands of rows are taken to be like the rest."""
        roles = find_roles(block, "")
        self.settings = {name for name in (*roles.settings, roles.seed) if name}
        if roles.id:
            # What changes within a run was not chosen before it.
            ids = block.columns[roles.id]
            self.settings = {name for name in self.settings if _constant(ids, block.columns[name])}
        self.roles = roles
        return roles

    def take(self, block: Table) -> Iterator[Found]:
        roles = self.roles or self._begin(block)
        # A column that later rows add cannot be looked at with the others: by its name alone.
        known = {*self.settings, roles.id, roles.group, roles.state, roles.time, roles.step}
        metrics = {}
        for name in block.columns:
            if name not in known or (name == roles.step and not roles.id and measured(bare(name))):
                held = self._numbers(block, name)
                if held is not None:
                    metrics[name] = held
        for run, rows in self._by_run(block, roles):
            yield self._piece(run, rows, block, roles, metrics)
        self.row += block.rows
        if len(self.held) > MOST:
            hint = "`clew sweep judge` reads it as it is" if self.settings else "is its column of run ids named run_id?"
            raise ClewError(f"{self.path} has more than {MOST:,} runs, which is too many to collect; {hint}.")

    def _by_run(self, block: Table, roles: Roles) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """The rows of each run of a block. Without a column of ids, a row is known by its file and place."""
        codes = block.columns[roles.id].codes if roles.id in block.columns else np.full(block.rows, -1, dtype=np.int32)
        for row in np.flatnonzero(codes < 0):
            yield f"{self.source}:{self.row + int(row) + 1}", np.array([row])
        order = np.argsort(codes, kind="stable")
        order = order[codes[order] >= 0]
        if len(order):
            starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
            for rows in np.split(order, starts[1:]):
                yield str(block.columns[roles.id].labels[int(codes[rows[0]])]), rows

    def _numbers(self, block: Table, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]] | None:
        """A column of readings; text in it is left out and counted."""
        held = block.columns[name]
        try:
            if any(isinstance(label, bool) for label in held.labels[:10]):
                return None
            return numbers(block, name)
        except ClewError:
            values = np.array([_number(label) for label in held.labels] + [np.nan])
            text = np.array([isinstance(label, str) for label in held.labels] + [False])[held.codes]
            if text.all() or np.isnan(values[:-1]).all():
                return None
            self.text[name] = self.text.get(name, 0) + int(text.sum())
            return values[held.codes], (held.codes < 0) | text

    def _piece(
        self,
        run: str,
        rows: NDArray[np.intp],
        block: Table,
        roles: Roles,
        metrics: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]],
    ) -> Found:
        known = self.held.setdefault(run, _Run())
        steps = self._steps(block, roles.step, rows, known.rows)
        known.rows += len(rows)
        newest = int(rows[-1])
        for name in self.settings:
            value = block.columns[name].cell(newest) if name in block.columns else None
            if value is not None:
                known.config[bare(name)] = value
        for role, name in (("group", roles.group), ("state", roles.state), ("time", roles.time)):
            value = block.columns[name].cell(newest) if name in block.columns else None
            if value is not None:
                known.said[role] = str(value)
        points = Points()
        for name, (values, missing) in metrics.items():
            there = ~missing[rows]
            if there.any():
                at, held = steps[there], values[rows][there]
                points.series[name] = Series(array("q", at.tobytes()), array("d", held.tobytes()))
                last = len(at) - 1 - int(np.argmax(at[::-1]))
                if name not in known.last or at[last] >= known.last[name][0]:
                    known.last[name] = (int(at[last]), float(held[last]))
        return Found(run, self.source, "", "", "", self.updated, {}, points, more=True)

    def _steps(self, block: Table, name: str, rows: NDArray[np.intp], before: int) -> NDArray[np.int64]:
        """The steps of some rows of one run: as the table says, else by their order."""
        if name in block.columns:
            held = block.columns[name]
            try:
                values, missing = numbers(Table(len(rows), {name: held.take(rows)}, self.path), name)
                whole = ~missing & np.isfinite(values) & (np.abs(values) < 2**62)
                if whole.all() and (values == np.floor(values)).all():
                    return values.astype(np.int64)
            except ClewError:
                pass
        return np.arange(before, before + len(rows), dtype=np.int64)

    def runs(self) -> Iterator[Found]:
        """Every run, once all its points have gone on."""
        repeated = sum(held.rows > 1 for held in self.held.values())
        if repeated and self.roles is not None and not self.roles.step:
            rows = sum(held.rows for held in self.held.values() if held.rows > 1)
            why = f"{self.path}: {repeated} run ids stand in several rows ({rows} in all) and no column names the step"
            self.remarks.append(f"{why}; all rows are kept as points, and the last row of a run counts.")
        for name, count in self.text.items():
            cells = "1 cell was" if count == 1 else f"{count} cells were"
            self.remarks.append(f"{self.path}: {cells} left out of {name}, for text where a number should be.")
        for run, held in self.held.items():
            said = held.said
            last = {name: value for name, (_, value) in held.last.items()}
            yield Found(
                run,
                self.source,
                said.get("group", ""),
                said.get("state", ""),
                said.get("time", ""),
                self.updated,
                held.config,
                Points(),
                last,
            )


def _number(label: Any) -> float:
    return float("nan") if isinstance(label, str) else float(label)


def _constant(ids: Column, held: Column) -> bool:
    """Whether no run has two values of it."""
    there = (ids.codes >= 0) & (held.codes >= 0)
    pairs = ids.codes[there].astype(np.int64) * (len(held.labels) + 1) + held.codes[there]
    return len(np.unique(pairs)) == len(np.unique(ids.codes[there]))
