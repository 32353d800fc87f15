"""`clew sweep`: same-seed sweeps and what they show."""

import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from clew.app import sweep
from clew.cli.output import page, save, show
from clew.errors import ClewError
from clew.report.text import number, seconds

if TYPE_CHECKING:
    from clew.sweep.local import Done


def arguments(parser: ArgumentParser, _: str = "") -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    _plan(verbs.add_parser("plan", help="what a sweep will cost and what it can show"))
    _run(verbs.add_parser("run", help="run a sweep here, a process and an archived run for each"))
    _collect(verbs.add_parser("collect", help="runs of clew, W&B, MLflow, TensorBoard and tables into one file"))
    _judge(verbs.add_parser("judge", help="which value is better, and whether that can be said at all"))


def _plan(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="the sweep: command, metric, seeds, parameters")
    parser.add_argument("--price-per-hour", type=float, default=None, metavar="X", help="of one run's machine")
    parser.add_argument("--pilot", default="", metavar="RUNS", help="an earlier sweep, for the noise between seeds")
    words = "an effect to be shown: in units of the metric with --pilot, else in standard deviations"
    parser.add_argument("--effect", type=float, default=None, metavar="X", help=words)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument("--trial", action="store_true", help="make the first run now, to measure its time")
    parser.add_argument("--json", metavar="FILE", help="write the machine-readable plan")
    parser.set_defaults(act=plan)


def _run(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="the sweep: command, metric, seeds, parameters")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument("--gpus", default="", metavar="0,1,…", help="one run at a time on each of these GPUs")
    parser.add_argument("--resume", action="store_true", help="go on with the latest group of this sweep")
    parser.add_argument("--group", default="", metavar="G", help="add what is missing to this group")
    parser.add_argument("--retry", action="store_true", help="make crashed runs again as well")
    parser.set_defaults(act=run)


def _collect(parser: ArgumentParser) -> None:
    words = "a clew archive, W&B's wandb folder, MLflow's mlruns or database, TensorBoard folders, CSV, Parquet, JSONL"
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help=words)
    parser.add_argument("--into", default="runs.parquet", metavar="FILE", help="the cache (runs.parquet)")
    parser.add_argument("--all", action="store_true", help="read everything again, not only what is new")
    parser.set_defaults(act=collect)


def collect(options: Namespace) -> int:
    done = sweep.collect(options.sources, options.into, options.all)
    for remark in done.remarks:
        print(f"note: {remark}", file=sys.stderr)
    renewed = f", {done.renewed} renewed" if done.renewed else ""
    print(f"{options.into}: {done.new} new runs{renewed}; {done.total} in all, {done.points} points")
    return 1 if done.remarks else 0


def plan(options: Namespace) -> int:
    if options.effect is not None and not options.effect > 0:
        raise ClewError(f"--effect takes a number above zero, not {options.effect}.")
    facts = sweep.plan(options.file, options.price_per_hour, options.pilot, options.effect, options.jobs)
    if options.trial and facts.run_seconds is None:
        took = sweep.trial(options.file)
        facts = sweep.plan(options.file, options.price_per_hour, options.pilot, options.effect, options.jobs, took)
    if options.json:
        from clew.records.exact import pretty

        save(options.json, pretty({"schema": "clew/1", "command": "sweep plan", **facts._asdict()}))
    from clew.report.sweep_plan_page import plan_page

    show(plan_page(facts, page()))
    return 0


def run(options: Namespace) -> int:
    if options.jobs < 1:
        raise ClewError(f"--jobs takes a number of runs at a time, not {options.jobs}.")
    gpus = tuple(part.strip() for part in options.gpus.split(",") if part.strip())
    how = sweep.RunOptions(options.jobs, gpus, options.group, options.resume, options.retry)
    made = sweep.ready(options.file, how)
    for note in made.notes:
        print(f"note: {note}", file=sys.stderr)
    held = f", {made.held} are there already" if made.held else ""
    print(f"{made.group}: {len(made.jobs)} runs to make{held}", file=sys.stderr, flush=True)
    line = Line(len(made.jobs), made.plan.metric)
    failed = sweep.run(made, how, line)
    print(f"{made.group}: {line.count} runs made, {failed} of them crashed or without {made.plan.metric}")
    print(f"clew sweep judge . --metric {made.plan.metric} --goal {made.plan.goal} --group {made.group}")
    return 1 if failed else 0


class Line:
    """A line for every run that has ended, failures with the last thing they printed."""

    def __init__(self, total: int, metric: str) -> None:
        self.total, self.metric, self.count, self.began = total, metric, 0, time.monotonic()

    def __call__(self, done: "Done") -> None:
        self.count += 1
        left = (time.monotonic() - self.began) / self.count * (self.total - self.count)
        if done.fine:
            said = f"{self.metric} {number(done.value)}"
        elif done.exit == 0:
            said = f"ended without printing {self.metric}"
        else:
            said = f"CRASHED ({done.signal or f'exit {done.exit}'}): {done.last_line or 'no output'}"
        place = f"[{self.count}/{self.total}]"
        print(f"{place} {done.job.label}: {said}, {seconds(done.seconds)}; {seconds(left)} left", file=sys.stderr)


def _judge(parser: ArgumentParser) -> None:
    words = "tables of runs (CSV, Parquet, JSONL) or folders with a clew archive"
    parser.add_argument("runs", nargs="+", metavar="RUNS", help=words)
    parser.add_argument("--metric", required=True, metavar="M", help="the column to compare by")
    parser.add_argument("--param", default="", metavar="P", help="the parameter to judge (all that vary)")
    parser.add_argument("--goal", default="", metavar="max|min", help="which way is better (by the metric's name)")
    parser.add_argument("--group", nargs="+", action="extend", default=[], metavar="G", help="these groups only")
    parser.add_argument("--after", default="", metavar="DATE", help="runs made on or after this date only")
    parser.add_argument("--where", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="these runs only")
    parser.add_argument("--seed-by", default="", metavar="COLUMN", help="the column that names the seed (seed)")
    parser.add_argument("--group-by", default="", metavar="COLUMN", help="the column that names the group (group)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of clew's own random draws (0)")
    parser.add_argument("--json", metavar="FILE", help="write the machine-readable result")
    parser.add_argument("--html", metavar="FILE", help="write the report as one page")
    parser.set_defaults(act=judge)


def judge(options: Namespace) -> int:
    sweep.needs_numpy()
    from clew.sweep.prepare import Request

    request = Request(
        options.metric,
        options.param,
        options.goal,
        tuple(options.group),
        options.after,
        tuple(options.where),
        options.seed_by,
        options.group_by,
        options.seed,
    )
    view = sweep.judge(options.runs, request)
    if options.json:
        from clew.records.exact import pretty

        save(options.json, pretty(sweep.to_json(view)))
    if options.html:
        from clew.report.sweep_html import sweep_html

        save(options.html, sweep_html(view))
    from clew.report.sweep_page import sweep_page

    show(sweep_page(view, page()))
    return 1 if sweep.bad(view) else 0
