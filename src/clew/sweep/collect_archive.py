"""clew's own archive and plain tables, as collectors see them."""

import os
from typing import Any

from clew.archive import metrics, runs
from clew.archive.model import epoch
from clew.errors import ClewError
from clew.sweep.archive import home_of, row_of
from clew.sweep.points import Collected, Found, Point
from clew.sweep.roles import bare, find_roles
from clew.sweep.table import read_table


def read_runs(path: str, since: float = 0.0) -> Collected:
    found: list[Found] = []
    remarks: list[str] = []
    listing = runs.all_runs(home_of(path))
    remarks += listing.remarks
    for record in listing.records:
        updated = max(epoch(record.started), runs.last_change(record.run))
        if updated < since:
            continue
        row = row_of(record, remarks)
        config = {bare(name): value for name, value in row.items() if name.startswith("config.")}
        config |= {"seed": row["seed"]} if "seed" in row else {}
        try:
            points = [
                Point(name if not of else f"{name}/{of}", step, value)
                for (name, of), series in metrics.read_metrics(record.run).items()
                for step, value in zip(series.steps, series.values, strict=True)
            ]
        except ClewError as error:
            remarks.append(str(error))
            points = []
        group, state = str(row["group"]), str(row["state"])
        found.append(Found(record.run.id, path, group, state, record.started, updated, config, tuple(points)))
    return Collected(tuple(found), tuple(remarks))


def read_file(path: str) -> Collected:
    """A table of runs. Without a column of run ids, a row is known by its file and place."""
    table = read_table(path)
    roles = find_roles(table, "")
    updated = os.stat(path).st_mtime
    settings = {name for name in (*roles.settings, roles.seed) if name}
    taken = settings | {roles.id, roles.group, roles.state, roles.time}
    found = []
    for row in range(table.rows):

        def held(name: str, row: int = row) -> Any:
            return table.columns[name].cell(row) if name else None

        points = []
        for name in table.columns:
            value = None if name in taken else held(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                points.append(Point(name, 0, float(value)))
        found.append(
            Found(
                str(held(roles.id) or f"{os.path.basename(path)}:{row + 1}"),
                path,
                str(held(roles.group) or ""),
                str(held(roles.state) or ""),
                str(held(roles.time) or ""),
                updated,
                {bare(name): held(name) for name in settings if held(name) is not None},
                tuple(points),
            )
        )
    return Collected(tuple(found), table.notes)
