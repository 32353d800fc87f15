"""`clew preflight`: imagine that the run has failed, and name the reason before it does."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from clew.app import preflight
from clew.app.known import known_domain
from clew.app.source_clues import early_errors
from clew.cli import complete
from clew.cli.output import ask, page, show
from clew.errors import ClewError, nearest
from clew.knowledge import load
from clew.report.text import percent, seconds

SHORT = {"very": preflight.SURPRISES[0], "somewhat": preflight.SURPRISES[1], "not": preflight.SURPRISES[2]}


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.add_argument("script", nargs="?", default="", metavar="SCRIPT", help="the script that is about to run")
    _complete(
        parser.add_argument("--domain", default="", metavar="DOMAIN", help="what kind of subject it is"),
        complete.domains,
    )
    parser.add_argument("--surprise", choices=tuple(SHORT), help="how surprised you would be if the run failed")
    parser.add_argument(
        "--worry",
        action="append",
        default=[],
        metavar="CAUSE | 'WORDS: CHECK'",
        help="what could go wrong, and the check that would show it",
    )
    _complete(
        parser.add_argument("--case", default="", metavar="CASE", help="record it in this case instead of a new one"),
        complete.cases,
    )
    parser.set_defaults(act=act)


def _complete(argument: Any, completer: Any) -> None:
    argument.completer = completer


def act(options: Namespace) -> int:
    domain = known_domain(options.domain or "general")
    for error in early_errors([options.script]) if options.script else ():
        print(error)
    proposed = preflight.dangers(domain)
    if options.surprise or options.worry:
        worries = [_worry(text, proposed) for text in options.worry]
        surprise = SHORT[options.surprise or "not"]
    else:
        _propose(domain, proposed)
        if not sys.stdin.isatty():
            print("\nAnswer with --surprise very|somewhat|not and --worry CAUSE (any number of times).")
            return 0
        surprise, worries = _interview(proposed)
    case = preflight.record(options.case, options.script, domain, surprise, worries)
    made = page()
    made.say(
        f"Recorded in case {case.id}. Make these checks before the run starts:"
        if worries
        else f"Recorded in case {case.id}."
    )
    for worry in worries:
        made.say(f"{worry['cause'] or worry['says']}: {worry['check']}", 2, "- ")
    show(made)
    return 0


def _propose(domain: str, proposed: list[preflight.Danger]) -> None:
    made = page()
    made.say(f"Suppose the run has failed. With a subject of kind {domain!r} these are reasons to expect:")
    for index, danger in enumerate(proposed, start=1):
        cost = seconds(danger.check.seconds + (60 if danger.check.person else 0))
        made.say(f"{danger.cause.id} (prior {percent(danger.prior)}): {danger.cause.gloss}.", 2, f"{index}  ")
        made.say(f"{danger.check.id}, {cost}: {danger.cause.refute}", 5, "check with ")
    show(made)


def _worry(text: str, proposed: list[preflight.Danger]) -> dict[str, str]:
    knowledge = load()
    if text.isdigit() and 1 <= int(text) <= len(proposed):
        text = proposed[int(text) - 1].cause.id
    head, _, check = text.partition(":")
    cause = knowledge.causes.get(head.strip())
    if cause is not None:
        return {"cause": cause.id, "says": cause.gloss, "check": check.strip() or cause.refute}
    if not check.strip():
        close = nearest(text, list(knowledge.causes)) if " " not in text else []
        hint = (
            f"; did you mean {' or '.join(close)}?"
            if close
            else ": write it as 'what goes wrong: the check that shows it'."
        )
        raise ClewError(f"{text!r} is no known cause{hint}")
    return {"cause": "", "says": head.strip(), "check": check.strip()}


def _interview(proposed: list[preflight.Danger]) -> tuple[str, list[dict[str, str]]]:
    """Ask until a failure would be very surprising, or the person has nothing to add."""
    worries: list[dict[str, str]] = []
    while True:
        answer = ask("\nHow surprised would you be if it failed? very, somewhat, not: ").lower()
        if answer not in SHORT:
            print("Please answer very, somewhat or not.")
            continue
        if answer == "very":
            return SHORT[answer], worries
        text = ask("What went wrong? A number above, a cause, or 'your words: the check' (Enter when done): ")
        if not text:
            return SHORT[answer], worries
        try:
            worries.append(_worry(text, proposed))
        except ClewError as error:
            print(error)
            continue
        print(f"Check: {worries[-1]['check']}")
