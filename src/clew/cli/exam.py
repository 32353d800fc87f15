"""`clew exam`: experiments on a training step, and what they show."""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from clew.app import cases, exam
from clew.app.times import seconds_of
from clew.cli import complete
from clew.cli.output import answer, case_argument, into_case, json_argument, page, show
from clew.evidence.words import ERASE
from clew.report.exam_page import catalogue, ended_line, exam_page, plan_page
from clew.report.html import case_html
from clew.report.text import Page, width

if TYPE_CHECKING:
    from clew.exams.plan import Progress

OFTEN = 0.1


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.usage = "clew exam [options] MODULE:SUBJECT | RUN"
    words = "a clew.Subject or a function that returns one; or an archived run with its captured step"
    parser.add_argument("target", nargs="?", default="", metavar="MODULE:SUBJECT | RUN", help=words)
    parser.add_argument("--budget", default="60s", metavar="TIME", help="the time budget, such as 60s or 2m (60s)")
    only: Any = parser.add_argument(
        "--only", nargs="+", action="extend", default=[], metavar="NAME", help="run only these exams"
    )
    only.completer = complete.exams
    parser.add_argument("--list", action="store_true", help="show the plan and its cost, or all exams, and stop there")
    parser.add_argument(
        "--thorough", action="store_true", help="continue after a cause stands out, as the budget allows"
    )
    domain: Any = parser.add_argument(
        "--domain", default="general", metavar="DOMAIN", help="vision, llm, tabular, rl, pinn, … (general)"
    )
    domain.completer = complete.domains
    parser.add_argument("--keep", default="", metavar="FOLDER", help="write notable examples to this folder")
    parser.add_argument("--quiet", action="store_true", help="print no plan and no progress")
    json_argument(parser)
    case_argument(parser)
    parser.add_argument("--html", metavar="FILE", help="write the report as one page")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    request = exam.Request(
        seconds_of(options.budget), tuple(options.only), options.domain, options.thorough, options.keep
    )
    if options.list and not options.target:
        answer(options, catalogue(exam.every_exam(), page()))
        return 0
    if options.case:
        cases.open_case(options.case)
    opened = exam.open_target(options.target)
    planned = exam.plan(opened, request)
    if options.list:
        answer(options, plan_page(exam.plan_facts(opened, request, planned), page()))
        return 0
    if not (options.quiet or options.brief):
        show(plan_page(exam.plan_facts(opened, request, planned), page()))
        print(flush=True)
    line = None if options.quiet else Line()
    done = exam.make(opened, request, planned, line)
    if line is not None:
        line.clear()
    made = exam_page(done.seen, exam.facts(done), page())
    into_case(options.case, done.examined.clues, made, opened.run)
    answer(options, made, lambda: exam.to_json(done), lambda: case_html(done.seen))
    if done.seen.verdict.word in ("fault", "suspect"):
        return 1
    return 130 if done.examined.interrupted else 0


class Line:
    """Progress on standard error: a line for each exam that has ended and, at a terminal, one that moves."""

    def __init__(self) -> None:
        self.moves = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.columns = width(sys.stderr)
        self.last = 0.0

    def __call__(self, now: "Progress") -> None:
        if now.clue is not None:
            self.clear()
            made = ended_line(now.planned.exam.name, now.clue, now.took, Page(self.columns))
            print(made, file=sys.stderr, flush=True)
        elif self.moves and time.monotonic() - self.last > OFTEN:
            self.last = time.monotonic()
            text = f"  {now.planned.exam.name} {100 * now.share:.0f} %, {now.spent:.0f} s in all"
            print(ERASE + text[: self.columns - 1], end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.moves:
            print(ERASE, end="", file=sys.stderr, flush=True)
