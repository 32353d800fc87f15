"""`clew sweep run`, and what other verbs that run sweeps share with it."""

import shlex
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from clew.app import sweep
from clew.cli.output import complain
from clew.errors import ClewError
from clew.home import home
from clew.records.place import near
from clew.report.text import number, seconds

if TYPE_CHECKING:
    from clew.sweep.local import Done


def arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.toml", help="the sweep: command, metric, seeds, parameters")
    engine(parser)
    parser.set_defaults(act=run)


def engine(parser: ArgumentParser) -> None:
    """Where and how the runs are made."""
    words = "runs at a time (1; on Ray as many as the cluster has room for)"
    parser.add_argument("--jobs", type=int, default=None, metavar="N", help=words)
    words = "where to run: local, a process for each on this machine, or ray, on a Ray cluster (local)"
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help=words)
    words = "of the Ray cluster (RAY_ADDRESS, else a cluster of this machine alone)"
    parser.add_argument("--address", default="", metavar="HOST:PORT", help=words)
    parser.add_argument("--cpus-per-run", type=float, default=1.0, metavar="X", help="with --engine ray (1)")
    parser.add_argument("--gpus-per-run", type=float, default=0.0, metavar="X", help="with --engine ray (0)")
    parser.add_argument("--gpus", default="", metavar="0,1,…", help="one run at a time on each of these GPUs")
    parser.add_argument("--resume", action="store_true", help="go on with the latest group of this sweep")
    parser.add_argument("--group", default="", metavar="G", help="add what is missing to this group")
    parser.add_argument("--retry", action="store_true", help="make crashed runs again as well")


def run(options: Namespace) -> int:
    chosen = how(options)
    made = sweep.ready(options.file, chosen)
    line, failed = make(made, chosen)
    print(f"{made.group}: {line.count} runs made, {failed} of them crashed or without {made.plan.metric}")
    words = ["clew", "sweep", "judge", near(home()), "--metric", made.plan.metric]
    print(shlex.join([*words, "--goal", made.plan.goal, "--group", made.group]))
    return 1 if failed else 0


def make(made: sweep.Ready, chosen: sweep.RunOptions) -> "tuple[Line, int]":
    """Run what is left, with a line for every run; returns the lines and how many runs did not end well."""
    for note in made.notes:
        complain(note, "note")
    held = f", {made.held} are there already" if made.held else ""
    print(f"{made.group}: {len(made.jobs)} runs to make{held}", file=sys.stderr, flush=True)
    line = Line(len(made.jobs), made.plan.metric)
    return line, sweep.run(made, chosen, line)


def how(options: Namespace) -> sweep.RunOptions:
    on_ray = options.engine == "ray"
    if options.jobs is not None and options.jobs < 1:
        raise ClewError(f"--jobs takes a number of runs at a time, not {options.jobs}.")
    if on_ray and options.gpus:
        raise ClewError("--gpus names GPUs of this machine; with --engine ray say --gpus-per-run 1.")
    if not on_ray and (options.address or options.gpus_per_run or options.cpus_per_run != 1.0):
        raise ClewError("--address, --cpus-per-run and --gpus-per-run belong to --engine ray.")
    if options.cpus_per_run < 0 or options.gpus_per_run < 0:
        raise ClewError("--cpus-per-run and --gpus-per-run take a number that is not below zero.")
    return sweep.RunOptions(
        options.jobs if options.jobs is not None else 0 if on_ray else 1,
        tuple(part.strip() for part in options.gpus.split(",") if part.strip()),
        options.group,
        options.resume,
        options.retry,
        options.engine,
        options.address,
        options.cpus_per_run,
        options.gpus_per_run,
    )


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
        if done.lost:
            again = "made again" if done.fine or done.signal != "lost" else "twice"
            said += f" (worker lost, {again})"
        place = f"[{self.count}/{self.total}]"
        print(f"{place} {done.job.label}: {said}, {seconds(done.seconds)}; {seconds(left)} left", file=sys.stderr)
