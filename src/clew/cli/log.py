"""`clew log`: symptoms in a log that somebody else made."""

from argparse import ArgumentParser, Namespace
from typing import Any

from clew.app import cases, logs
from clew.cli import complete
from clew.cli.output import answer, case_argument, into_case, json_argument, page
from clew.errors import ClewError
from clew.report.html import case_html
from clew.report.log_page import log_page


def arguments(parser: ArgumentParser, _: str = "") -> None:
    words = "printed lines, JSONL, CSV, trainer_state.json, TensorBoard event files, or a folder of these"
    parser.add_argument("files", nargs="+", metavar="FILE", help=words)
    domain: Any = parser.add_argument(
        "--domain", default="general", metavar="DOMAIN", help="vision, llm, tabular, rl, pinn, … (general)"
    )
    domain.completer = complete.domains
    words = "how many classes the model tells apart: gives guessing its loss and its accuracy"
    parser.add_argument("--classes", type=int, default=0, metavar="N", help=words)
    json_argument(parser)
    case_argument(parser)
    parser.add_argument("--html", metavar="FILE", help="write the report as one page")
    parser.set_defaults(act=act)


def act(options: Namespace) -> int:
    if options.classes < 0 or options.classes == 1:
        raise ClewError(f"--classes takes a number of classes, two or more, not {options.classes}.")
    if options.case:
        cases.open_case(options.case)
    done = logs.read(options.files, options.domain, options.classes)
    made = log_page(done.seen, logs.facts(done), page())
    into_case(options.case, (held.clue for held in done.seen.counted), made)
    answer(options, made, lambda: logs.to_json(done), lambda: case_html(done.seen))
    return 1 if done.seen.verdict.word in ("fault", "suspect") else 0
