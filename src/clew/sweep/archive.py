"""Runs of a clew archive as a table: what a sweep said of each run, how it ended, the last value of every metric.

A run that was started by hand has no labels; its settings are then the `--name value` words of its command.
"""

import os
from typing import Any

from clew.archive import metrics, runs
from clew.archive.model import RUN, Record
from clew.errors import ClewError
from clew.records.masked import masked
from clew.sweep.roles import OBSERVED, SEEDS
from clew.sweep.table import Table, from_rows

FAILED, RUNNING, FINISHED = "crashed", "running", "finished"


def is_archive(path: str) -> bool:
    return bool(home_of(path))


def home_of(path: str) -> str:
    """The `.clew` folder that is meant by a path to it, to its `runs`, or to the folder around it; "" for none."""
    full = os.path.abspath(path)
    tried = [full, os.path.join(full, ".clew")]
    if os.path.basename(full) == "runs":
        tried.append(os.path.dirname(full))
    for home in tried:
        held = os.path.join(home, "runs")
        if os.path.isdir(held) and any(os.path.isfile(os.path.join(held, name, RUN)) for name in os.listdir(held)):
            return home
    return ""


def read_archive(path: str) -> Table:
    home = home_of(path)
    listing = runs.all_runs(home)
    if not listing.records:
        raise ClewError(f"{path} holds no run.")
    notes = list(listing.remarks)
    rows = [row_of(record, notes) for record in listing.records]
    return from_rows(rows, path, tuple(notes))


def row_of(record: Record, notes: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"run_id": record.run.id, "created": record.started, "state": _state(record)}
    swept = dict(record.labels)
    for name, value in swept.items() if swept else words(record.command):
        row[name if swept or name in SEEDS else f"config.{name}"] = masked(name, value)
    row.setdefault("group", record.script)
    try:
        for (name, of), series in metrics.read_metrics(record.run).items():
            if not of and series.values:
                row.setdefault(name if swept else f"{OBSERVED}{name}", series.values[-1])
    except ClewError as error:
        notes.append(str(error))
    return row


def _state(record: Record) -> str:
    if record.state == "running":
        return RUNNING
    end = record.end
    return FINISHED if end is not None and end.exit == 0 and not end.signal else FAILED


def words(command: tuple[str, ...]) -> list[tuple[str, str]]:
    """The settings in a command line: `--lr 0.1`, `--lr=0.1`, `lr=0.1`; a flag alone is true."""
    found = []
    for index, word in enumerate(command):
        name, sign, value = word.lstrip("-").partition("=")
        if not name or not name[0].isalpha() or os.sep in name:
            continue
        if sign:
            found.append((name.replace("-", "_"), value))
        elif word.startswith("--"):
            after = command[index + 1] if index + 1 < len(command) else "--"
            found.append((name.replace("-", "_"), "true" if after.startswith("--") else after))
    return found
