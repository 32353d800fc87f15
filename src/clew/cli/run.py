"""`clew run`: a script under observation, and what is wrong with it."""

import os
import sys
import traceback
from argparse import ArgumentParser, Namespace

from clew.app import cases, run
from clew.app.times import seconds_of
from clew.archive.runs import signal_name
from clew.cli.output import answer, case_argument, into_case, json_argument, laid_out, page
from clew.errors import ClewError
from clew.observe.launch import Told, end_like
from clew.report.run_page import run_page

VALUED = ("--steps", "--sample", "--domain", "--json", "--html", "--fail-on", "--budget", "--case")
OWN = (*VALUED, "--twice", "--no-exams", "--keep-capture", "--all", "--quiet", "--brief")


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
    parser.add_argument(
        "--budget", metavar="TIME", help="time for exams after the run (as long as it took, 10 to 60 s)"
    )
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
        seconds_of(options.budget) if options.budget else 0.0,
        options.keep_capture,
        not options.no_instruments,
    )
    if options.case:
        cases.open_case(options.case)
    with Told() as told:
        ran = run.watch(words, module, launcher, how, told)
        verdict = _report(options, ran, told)
        worse = {"fault": ("fault",), "suspect": ("fault", "suspect"), None: ()}[options.fail_on]
        if verdict in worse:
            return 1
        if ended_by := told.late or ran.ended.signal:
            sys.stdout.flush()
            end_like(ended_by)
        return ran.ended.status


def _report(options: Namespace, ran: run.Watched, told: Told) -> str:
    """The verdict. The script has ended: whatever goes wrong here is said and changes no status."""
    verdict = ""
    if ran.held is None:
        return verdict
    try:
        done = run.judge(ran.held, ran, told)
        verdict = done.seen.verdict.word
        if not options.quiet:
            print()
        made = None
        if not options.quiet and not done.kept:
            made = laid_out("\n".join(no_training(done, options.rest)))
        elif not options.quiet:
            made = run_page(done.seen, run.facts(done), page(), options.all)
        if done.kept:
            into_case(options.case, (held.clue for held in done.seen.counted), made, done.run.id)
        answer(options, made, lambda: run.to_json(done), lambda: run.page(done))
    except (ClewError, OSError) as error:
        run.warn(f"the script has ended, and its run is not reported in full: {error}")
    except Exception:  # noqa: BLE001  # a mistake of clew's own; the status of the script still counts
        run.warn(f"the script has ended, and its run is not reported in full:\n{traceback.format_exc()}")
    return verdict


def no_training(done: run.Done, words: list[str]) -> tuple[str, str]:
    """What ended, and why nothing was kept."""
    crash, ended = done.crash, done.ended
    if crash is not None:
        what = f"{crash.kind}: {crash.says}".splitlines()[0] + (f" ({crash.place})" if crash.place else "")
    elif ended.signal:
        what = f"ended by {signal_name(ended.signal)}"
    else:
        what = f"ended with status {ended.status}"
    own = [word for word in words[1:] if word in OWN]
    if own and words[:1] != ["--"] and ended.status:
        hint = f"Options of clew come before the script: clew run {own[0]} … {words[0]}."
    else:
        hint = "clew saw no backward and no optimiser step of PyTorch, so nothing was kept."
    return f"NO TRAINING  {done.seen.case.script}: {what}", hint


def _say(text: str) -> None:
    print(f"clew: {text}", file=sys.stderr, flush=True)
