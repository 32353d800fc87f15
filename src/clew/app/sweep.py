"""Sweeps: planning, running and judging them. The parts that need numpy load only when a verb is used."""

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.report.sweep_plan_page import PlanFacts
from clew.report.sweep_view import GroupView, ParamView, SweepView, ValueRow

if TYPE_CHECKING:
    from clew.sweep.collect import Gathered
    from clew.sweep.local import Done
    from clew.sweep.plan import Plan
    from clew.sweep.prepare import Request
    from clew.sweep.table import Table


class RunOptions(NamedTuple):
    """How to run a sweep. `group` or `resume` adds to an earlier one; `retry` makes crashed runs again as well."""

    jobs: int = 1
    gpus: tuple[str, ...] = ()
    group: str = ""
    resume: bool = False
    retry: bool = False
    engine: str = "local"
    address: str = ""
    cpus_per_run: float = 1.0
    gpus_per_run: float = 0.0


class Ready(NamedTuple):
    """What is about to be run: which group, which jobs are left, and what was decided on the way."""

    plan: "Plan"
    group: str
    jobs: tuple[Any, ...]
    held: int
    code: str
    notes: tuple[str, ...]


def needs_numpy() -> None:
    from importlib.util import find_spec

    if find_spec("numpy") is None:
        raise ClewError("judging sweeps needs numpy: pip install 'clew[sweep]'")


def read(paths: list[str], keep: tuple[str, ...] = ()) -> "Table":
    """The runs in these files and archives, as one table."""
    needs_numpy()
    from clew.sweep.join import join

    return join([_read(path, keep) for path in paths])


def _read(path: str, keep: tuple[str, ...]) -> "Table":
    from clew.sweep.archive import is_archive, read_archive
    from clew.sweep.read import read_table

    if is_archive(path):
        return read_archive(path)
    if os.path.isdir(path):
        raise ClewError(f"{path} is a folder without clew runs; `clew sweep collect` reads other trackers' folders.")
    return read_table(path, keep)


def judge(paths: list[str], request: "Request") -> SweepView:
    needs_numpy()
    needs_numpy()
    from clew.sweep import judge as judging
    from clew.sweep.expression import columns_of

    return judging.judge(read(paths, columns_of(request.metric)), request)


def bad(view: SweepView) -> bool:
    """Whether some verdict says that the sweep does not carry a conclusion."""
    fine = {"reliable_better", "no_effect", "dose_response"}
    return any(param.verdict not in fine for group in view.groups for param in group.params)


def to_json(view: SweepView) -> dict[str, Any]:
    """As CONTRACT has it, with more beside."""
    return {
        "schema": "clew/1",
        "command": "sweep judge",
        "metric": view.metric,
        "goal": view.goal,
        "goal_why": view.goal_why,
        "source": view.source,
        "notes": list(view.notes),
        "groups": [_group(group) for group in view.groups],
    }


def _group(group: GroupView) -> dict[str, Any]:
    return {
        "group": group.group,
        "n_runs": group.n_runs,
        "n_seeds": group.n_seeds,
        "crashed": group.crashed,
        "warnings": [item._asdict() for item in group.warnings],
        "params": [_param(param) for param in group.params],
    }


def _param(param: ParamView) -> dict[str, Any]:
    return {
        "name": param.name,
        "also_varies": list(param.also_varies),
        "values": [_value(row) for row in param.values],
        "trend": param.trend._asdict() if param.trend else None,
        "verdict": param.verdict,
        "verdicts": list(param.verdicts),
        "best": param.best,
        "says": param.says,
        "warnings": [item._asdict() for item in param.warnings],
        "test": param.test,
        "p_omnibus": param.omnibus,
        "paired": param.paired,
        "seeds": list(param.seeds),
        "results": [list(row) for row in param.results],
    }


def _value(row: ValueRow) -> dict[str, Any]:
    return row._asdict()


def plan(
    path: str,
    price: float | None = None,
    pilot: str = "",
    effect: float | None = None,
    jobs: int = 1,
    took: float | None = None,
) -> PlanFacts:
    """What a sweep will cost and can show."""
    from clew.sweep import plan as planning

    made = planning.read_plan(path)
    if took is not None:
        made = made._replace(seconds=took)
    spread = _spread(pilot, made) if pilot else None
    held = planning.power(made, spread, effect)
    hours = None if made.seconds is None else made.runs * made.seconds / 3600.0
    order = planning.queue(made)
    return PlanFacts(
        made.name,
        made.question,
        made.hypothesis,
        made.metric,
        made.goal,
        len(made.points),
        len(made.seeds),
        made.runs,
        made.seconds,
        None if hours is None else hours * 3600.0 / max(1, jobs),
        None if hours is None or price is None else hours * price,
        spread,
        held.effect,
        held.effect_in_metric,
        held.wanted,
        held.needed,
        held.power,
        tuple(job.label for job in order),
        tuple(planning.confounding(made)),
        len(made.points) == 2 and len(made.seeds) < 6,
    )


def trial(path: str) -> float:
    """Make the first run of a sweep, in a group of its own, and say how long it took."""
    made = ready(path, RunOptions())
    found: list[Any] = []
    run(made._replace(group=f"{made.plan.name}-trial", jobs=made.jobs[:1]), RunOptions(), found.append)
    if not found or not found[0].fine:
        why = found[0].last_line if found else "it did not start"
        raise ClewError(f"the trial run did not end with a {made.plan.metric}: {why or 'it printed nothing'}.")
    return float(found[0].seconds)


def _spread(pilot: str, made: "Plan") -> float:
    """The standard deviation of paired differences in an earlier sweep."""
    needs_numpy()
    from clew.sweep.pilot import paired_spread

    return paired_spread(read([pilot], (made.metric,)), made.metric, made.params[0])


def ready(path: str, options: RunOptions) -> Ready:
    """Choose the group and the jobs that are left. Nothing is run."""
    from clew.sweep.plan import read_plan

    return ready_plan(read_plan(path), options)


def ready_plan(made: "Plan", options: RunOptions) -> Ready:
    from clew.home import home
    from clew.sweep import local, sources
    from clew.sweep import plan as planning

    order = planning.queue(made)
    code = sources.code_digest(sources.sources(order[0].command, os.getcwd()), os.getcwd())
    at = home()
    notes: list[str] = []
    group = f"{made.name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    if options.group or options.resume:
        group = _join(made, code, local.groups_of(at, made.name), options.group, group, notes)
    ended = local.finished(at, group)
    left = []
    for job in order:
        state = ended.get((local.key_of({f"config.{name}": value for name, value in job.point}), job.seed))
        if state is None or (options.retry and state == "crashed"):
            left.append(job)
    return Ready(made, group, tuple(left), len(order) - len(left), code, tuple(notes))


def _join(made: "Plan", code: str, known: list[tuple[str, str, str]], wanted: str, fresh: str, notes: list[str]) -> str:
    """The earlier group, when it was made with the same code and base configuration; else one of its own."""
    if not known:
        raise ClewError(f"there is no earlier group of the sweep {made.name!r} to go on with.")
    names = [name for name, _, _ in known]
    if wanted and wanted not in names:
        raise ClewError(f"there is no group {wanted!r}{did_you_mean(wanted, names) or '; there is ' + names[-1] + '.'}")
    group, its_code, its_base = next(item for item in reversed(known) if not wanted or item[0] == wanted)
    if its_code == code and its_base == made.base:
        return group
    what = "the code" if its_code != code else "the command or metric"
    notes.append(f"{what} has changed since {group}: these runs are a group of their own and are not compared with it.")
    return f"{fresh}-fill"


def run(made: Ready, options: RunOptions, tell: Callable[["Done"], None]) -> int:
    """Run what is left; returns how many runs did not end well."""
    from clew.sweep import local

    how = local.Options(
        options.jobs,
        options.gpus,
        address=options.address,
        cpus_per_run=options.cpus_per_run,
        gpus_per_run=options.gpus_per_run,
    )
    if options.engine == "ray":
        from clew.sweep import engine_ray

        return engine_ray.run_all(made.plan, made.group, list(made.jobs), made.code, how, tell)
    return local.run_all(made.plan, made.group, list(made.jobs), made.code, how, tell)


def collect(sources: list[str], into: str, whole: bool = False) -> "Gathered":
    """Read trackers, folders and files into the cache. Only what changed since the last look is read again."""
    needs_numpy()
    from clew.sweep import collect as collecting

    return collecting.collect(sources, into, whole)


def collected_json(done: "Gathered", into: str) -> dict[str, Any]:
    sources = [item._asdict() for item in done.sources]
    return {"schema": "clew/1", "command": "sweep collect", "into": into, **done._asdict(), "sources": sources}
