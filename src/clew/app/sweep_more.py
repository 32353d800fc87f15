"""Random searches read, and batteries of tasks held against a baseline."""

import os
from typing import TYPE_CHECKING, Any

from clew.app.sweep import Ready, RunOptions, needs_numpy, read, ready_plan
from clew.errors import ClewError

if TYPE_CHECKING:
    from clew.report.sweep_battery_page import BatteryView
    from clew.report.sweep_search_page import SearchesView
    from clew.sweep.battery import Battery
    from clew.sweep.prepare import Request


def search(paths: list[str], request: "Request", params: tuple[str, ...] = ()) -> "SearchesView":
    """Which parameters of a random search mattered, and where to look next."""
    needs_numpy()
    from clew.sweep.expression import columns_of

    table = read(paths, (*columns_of(request.metric), *params))
    from clew.sweep import search as searching

    return searching.search(table, request, params)


def search_json(view: "SearchesView") -> dict[str, Any]:
    groups = []
    for group in view.groups:
        rows = {name: [row._asdict() for row in getattr(group, name)] for name in ("importance", "ranges", "cliffs")}
        groups.append({**group._asdict(), **rows})
    return {"schema": "clew/1", "command": "sweep importance", **view._asdict(), "groups": groups}


def battery_plan(path: str, baseline: str = "") -> "Battery":
    needs_numpy()
    from clew.sweep.battery import read_battery

    return read_battery(path, baseline)


def may_keep(made: "Battery", wanted: bool, replace: bool) -> None:
    """A baseline is replaced only when that was asked for, and must be one: said before anything is run."""
    if replace and not wanted:
        raise ClewError("--replace goes with --keep.")
    if wanted and not replace and os.path.exists(made.baseline):
        raise ClewError(f"{made.baseline} is there already; --keep --replace stores these results in its place.")
    from clew.sweep.battery import stored

    if not (wanted and replace):
        stored(made)


def battery_ready(made: "Battery", options: RunOptions) -> Ready:
    return ready_plan(made.plan, options)


def battery(made: "Battery", group: str = "") -> "BatteryView":
    """Compare a group of runs, the latest when none is named, with the baseline if there is one."""
    from clew.home import home
    from clew.sweep import battery as held
    from clew.sweep.local import groups_of

    at = home()
    if not group:
        known = groups_of(at, made.plan.name)
        if not known:
            raise ClewError(f"there is no run of the battery {made.plan.name!r} yet.")
        group = known[-1][0]
    results, code = held.results_of(at, group, made.plan.metric)
    if not results:
        raise ClewError(f"the group {group!r} holds no run that has ended.")
    return held.compare(made, group, results, code, held.stored(made))


def keep(made: "Battery", view: "BatteryView") -> "BatteryView":
    """Store the results that were just compared as the baseline."""
    from clew.home import home
    from clew.sweep import battery as held

    results, code = held.results_of(home(), view.group, made.plan.metric)
    held.write_baseline(made.baseline, made, results, code)
    return view._replace(notes=(*view.notes, f"these results are now the baseline, in {made.baseline}."))


def battery_json(view: "BatteryView") -> dict[str, Any]:
    tasks = [row._asdict() for row in view.tasks]
    return {"schema": "clew/1", "command": "sweep battery", **view._asdict(), "tasks": tasks}
