"""`clew sweep`: same-seed sweeps and what they show."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from clew.app import sweep
from clew.cli import sweep_battery, sweep_run
from clew.cli.output import answer, complain, json_argument, page
from clew.errors import ClewError

if TYPE_CHECKING:
    from clew.sweep.prepare import Request


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _plan(verbs.add_parser("plan", help="what a sweep costs and what effect it can detect"))
    sweep_run.arguments(verbs.add_parser("run", help="run a sweep here: one process and one archived run each"))
    _collect(verbs.add_parser("collect", help="collect runs of clew, W&B, MLflow, TensorBoard and tables"))
    _judge(verbs.add_parser("judge", help="which value is better, and whether the evidence suffices"))
    _importance(verbs.add_parser("importance", help="which parameters of a random search mattered, and where to look"))
    sweep_battery.arguments(verbs.add_parser("battery", help="the same code over several tasks, against a baseline"))


def _plan(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="the sweep: command, metric, seeds, parameters")
    parser.add_argument("--price-per-hour", type=float, default=None, metavar="X", help="of one run's machine")
    parser.add_argument("--pilot", default="", metavar="RUNS", help="an earlier sweep, for the noise between seeds")
    words = "an effect to detect: in units of the metric with --pilot, else in standard deviations"
    parser.add_argument("--effect", type=float, default=None, metavar="X", help=words)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument("--trial", action="store_true", help="make the first run now, to measure its time")
    json_argument(parser)
    parser.set_defaults(act=plan)


def _collect(parser: ArgumentParser) -> None:
    words = (
        "a clew archive, W&B's wandb folder or wandb:ENTITY/PROJECT, MLflow's mlruns, database or http://SERVER, "
        "TensorBoard folders, CSV, Parquet, JSONL"
    )
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help=words)
    parser.add_argument("--into", default="runs.parquet", metavar="FILE", help="the cache (runs.parquet)")
    parser.add_argument("--all", action="store_true", help="read everything again, not only what is new")
    json_argument(parser)
    parser.set_defaults(act=collect)


def collect(options: Namespace) -> int:
    done = sweep.collect(options.sources, options.into, options.all)
    from clew.sweep.read import ago

    for remark in done.remarks:
        complain(remark, "note")
    made = page()
    for source in done.sources:
        if not source.failed:
            older = ", the rest is unchanged since the last collection" if source.since else ""
            made.line(f"{source.source} ({source.kind}): {_runs(source.runs)} read{older}")
    renewed = f", {done.renewed} renewed" if done.renewed else ""
    before = f"; last filled {ago(done.before)}" if done.before else ""
    made.line(f"{options.into}: {_runs(done.new)} new{renewed}; {done.total} in all, {done.points} points{before}")
    answer(options, made, lambda: sweep.collected_json(done, options.into))
    return 1 if done.remarks else 0


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"


def plan(options: Namespace) -> int:
    if options.effect is not None and not options.effect > 0:
        raise ClewError(f"--effect takes a number above zero, not {options.effect}.")
    facts = sweep.plan(options.file, options.price_per_hour, options.pilot, options.effect, options.jobs)
    if options.trial and facts.run_seconds is None:
        took = sweep.trial(options.file)
        facts = sweep.plan(options.file, options.price_per_hour, options.pilot, options.effect, options.jobs, took)
    from clew.report.sweep_plan_page import plan_page

    table = {"schema": "clew/1", "command": "sweep plan", **facts._asdict()}
    answer(options, plan_page(facts, page()), lambda: table)
    return 0


def _judge(parser: ArgumentParser) -> None:
    words = "tables of runs (CSV, Parquet, JSONL) or folders with a clew archive"
    parser.add_argument("runs", nargs="+", metavar="RUNS", help=words)
    words = "the column to compare by, or arithmetic on columns: 'tpr - fpr'"
    parser.add_argument("--metric", required=True, metavar="M", help=words)
    parser.add_argument("--param", default="", metavar="P", help="the parameter to judge (all that vary)")
    _choice(parser)
    parser.add_argument("--html", metavar="FILE", help="write the report as one page")
    parser.set_defaults(act=judge)


def _choice(parser: ArgumentParser) -> None:
    """Which runs, which way is better, and where the machine-readable result goes."""
    parser.add_argument("--goal", default="", metavar="max|min", help="which way is better (by the metric's name)")
    parser.add_argument("--group", nargs="+", action="extend", default=[], metavar="G", help="these groups only")
    words = "groups of one sweep that was run in parts, to be judged as one"
    parser.add_argument("--merge", nargs="+", action="extend", default=[], metavar="G", help=words)
    parser.add_argument("--after", default="", metavar="DATE", help="runs made on or after this date only")
    parser.add_argument("--where", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="these runs only")
    parser.add_argument("--seed-by", default="", metavar="COLUMN", help="the column that names the seed (seed)")
    parser.add_argument("--group-by", default="", metavar="COLUMN", help="the column that names the group (group)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of clew's own random draws (0)")
    json_argument(parser)


def _importance(parser: ArgumentParser) -> None:
    words = "tables of runs (CSV, Parquet, JSONL) or folders with a clew archive"
    parser.add_argument("runs", nargs="+", metavar="RUNS", help=words)
    parser.add_argument("--metric", required=True, metavar="M", help="the column to compare by")
    words = "a parameter to weigh, as often as needed (all that vary)"
    parser.add_argument("--param", action="append", default=[], metavar="P", help=words)
    _choice(parser)
    parser.set_defaults(act=importance)


def importance(options: Namespace) -> int:
    sweep.needs_numpy()
    from clew.app import sweep_more
    from clew.report.sweep_search_page import search_page

    view = sweep_more.search(options.runs, _request(options, ""), tuple(options.param))
    answer(options, search_page(view, page()), lambda: sweep_more.search_json(view))
    return 0


def _request(options: Namespace, param: str) -> "Request":
    from clew.sweep.prepare import Request

    return Request(
        options.metric,
        param,
        options.goal,
        tuple(options.group),
        options.after,
        tuple(options.where),
        options.seed_by,
        options.group_by,
        options.seed,
        tuple(options.merge),
    )


def judge(options: Namespace) -> int:
    sweep.needs_numpy()
    view = sweep.judge(options.runs, _request(options, options.param))
    from clew.report.sweep_html import sweep_html
    from clew.report.sweep_page import sweep_page

    answer(options, sweep_page(view, page()), lambda: sweep.to_json(view), lambda: sweep_html(view))
    return 1 if sweep.bad(view) else 0
