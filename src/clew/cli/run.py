"""`clew run`: a script under observation, and what is wrong with it."""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace

from clew.app import cases, run
from clew.app.times import seconds_of
from clew.cli.output import answer, case_argument, into_case, json_argument, page
from clew.errors import ClewError
from clew.report.run_page import run_page

VALUED = ("--steps", "--sample", "--domain", "--json", "--html", "--fail-on", "--budget", "--case")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """clew's own options come before the script; everything from the script on belongs to it."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        if words[index] in ("-m", "--"):
            return words[:index], words[index:]
        index += 2 if words[index] in VALUED else 1
    return words[:index], words[index:]


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.usage = "clew run [options] SCRIPT [ARGS…]  |  -m MODULE [ARGS…]  |  -- COMMAND…"
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="stop after N optimiser steps")
    parser.add_argument("--sample", default="auto", metavar="every|auto|N", help="which steps are measured in detail")
    parser.add_argument("--domain", default="general", metavar="DOMAIN", help="vision, llm, tabular, rl, pinn, …")
    parser.add_argument("--twice", action="store_true", help="run it a second time and compare the losses bit for bit")
    parser.add_argument("--no-exams", action="store_true", help="only observe: run no exams on the captured step")
    parser.add_argument("--budget", default="60s", metavar="TIME", help="time for exams after the run (60s, 2m)")
    parser.add_argument("--keep-capture", action="store_true", help="keep the captured step for clew exam RUN")
    parser.add_argument("--no-instruments", action="store_true", help="only archive: is an error the script's own?")
    parser.add_argument("--all", action="store_true", help="list every check: passed, failed or not run")
    parser.add_argument("--quiet", action="store_true", help="print no progress and no report")
    json_argument(parser)
    case_argument(parser)
    parser.add_argument("--html", metavar="FILE", help="write the report as one page")
    parser.add_argument("--fail-on", choices=("fault", "suspect"), help="exit with 1 when the verdict is that or worse")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    words = options.rest
    if options.steps < 0:
        raise ClewError(f"--steps takes a number of steps, not {options.steps}.")
    if options.sample not in ("auto", "every") and not (options.sample.isdigit() and int(options.sample) > 0):
        raise ClewError(f"--sample takes every, auto or a number of steps, not {options.sample!r}.")
    module, launcher = "", words[:1] == ["--"]
    if words[:1] == ["-m"]:
        if len(words) < 2:
            raise ClewError("-m takes the name of a module: clew run -m package.train")
        module, words = words[1], words[2:]
    elif launcher:
        words = words[1:]
    watched = sys.stderr.isatty() and not options.quiet and os.environ.get("TERM") != "dumb"
    how = run.Options(
        options.steps,
        options.sample,
        options.domain,
        watched,
        options.twice,
        None if options.quiet else _say,
        not options.no_exams,
        seconds_of(options.budget),
        options.keep_capture,
        not options.no_instruments,
    )
    if options.case:
        cases.open_case(options.case)
    done = run.run(words, module, launcher, how)
    if not options.quiet:
        print()
    made = None if options.quiet else run_page(done.seen, run.facts(done), page(), options.all)
    into_case(options.case, (held.clue for held in done.seen.counted), made, done.run.id)
    answer(options, made, lambda: run.to_json(done), lambda: run.page(done))
    worse = {"fault": ("fault",), "suspect": ("fault", "suspect"), None: ()}[options.fail_on]
    if done.seen.verdict.word in worse:
        return 1
    if done.ended.signal:
        _end_like(done.ended.signal)
    return done.ended.status


def _say(text: str) -> None:
    print(f"clew: {text}", file=sys.stderr, flush=True)


def _end_like(number: int) -> None:
    """End by the signal that ended the script, so that whoever waits for clew sees what they would have seen."""
    sys.stdout.flush()
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(signal.Signals(number))
