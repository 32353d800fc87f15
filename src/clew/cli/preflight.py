"""`clew preflight`: imagine that the run has failed, and name the reason before it does."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from clew.app import before, cases, preflight
from clew.app.known import known_domain
from clew.cli import complete
from clew.cli.output import answer, ask, page, show
from clew.errors import ClewError, nearest
from clew.knowledge import load
from clew.report.text import BOLD, Page, percent, seconds

QUESTION = "How surprised would you be if this run failed?"
MOST_FINDINGS = 5
SHORT = {"very": preflight.SURPRISES[0], "somewhat": preflight.SURPRISES[1], "not": preflight.SURPRISES[2]}


def arguments(parser: ArgumentParser, _: str = "") -> None:
    parser.add_argument("script", nargs="?", default="", metavar="SCRIPT", help="the script that is about to run")
    _complete(
        parser.add_argument("--domain", default="", metavar="DOMAIN", help="the domain of the script"),
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
    held = cases.open_case(options.case) if options.case else None
    listed = {worry.cause for flight in (held.preflights if held else ()) for worry in flight.worries}
    script = options.script or (held.script if held else "")
    domain = known_domain(options.domain or (held.domain if held else "general"))
    looked = before.read(script) if script else None
    proposed = preflight.dangers(domain, listed=listed)
    if options.surprise or options.worry:
        worries = [_worry(text, proposed) for text in options.worry]
        surprise = SHORT[options.surprise or "not"]
    else:
        made = page()
        if looked is not None:
            read_page(looked, made)
        _propose(domain, proposed, made)
        if not sys.stdin.isatty():
            made.line()
            made.say(QUESTION)
            made.say(f"clew preflight {script}{' ' * bool(script)}--surprise very|somewhat|not --worry CAUSE", 2)
            answer(options, made)
            return wrong(looked)
        show(made)
        surprise, worries = _interview(domain, proposed, listed)
    case = preflight.record(options.case, script, domain, surprise, worries)
    made = page()
    checks = [worry for flight in case.preflights for worry in flight.worries]
    made.say(f"Recorded in case {case.id}.{' Make these checks before the run starts:' if checks else ''}")
    for worry in checks:
        made.say(f"{worry.cause or worry.says}: {worry.check}", 2, "- ")
    if surprise != preflight.SURPRISES[0]:
        named = {worry.cause for worry in checks}
        _again(case.id, preflight.dangers(domain, 1, named), made)
    elif script:
        made.say(f"Then: clew run --case {case.id} {script}")
    answer(options, made)
    return wrong(looked)


def _again(case: str, left: list[preflight.Danger], made: Page) -> None:
    made.line()
    made.say("With these checks made, how surprised would you be if it failed? Imagine again that it has.")
    for danger in left:
        made.say(f"{danger.cause.id}: {danger.cause.gloss}.", 2, "likeliest reason that is not listed: ")
    made.say(f"clew preflight --case {case} --surprise very|somewhat|not --worry CAUSE", 2)


def read_page(looked: before.Script, made: Page) -> None:
    """What reading the script showed, problems with their line."""
    made.say(looked.files[0], 0, "", BOLD)
    more = len(looked.files) - 1
    if more:
        made.say(f"{more} file{'s' * (more != 1)} of the project imported: {', '.join(looked.files[1:4])}", 2)
    arguments = ", ".join(f"{item.name} {item.says}".strip() for item in looked.arguments)
    made.say(arguments or "none", 2, "arguments: ")
    missing = ", ".join(f"{item.name} is not installed ({item.path}:{item.line})" for item in looked.missing)
    made.say(missing or "all found", 2, "imports: ")
    made.say(f"{len(looked.findings) or 'no'} finding{'s' * (len(looked.findings) != 1)}", 2, "lint: ")
    for finding in looked.findings[:MOST_FINDINGS]:
        made.say(f"{finding.path}:{finding.line} {finding.rule} {finding.message}", 4, "- ")
    for error in looked.early:
        made.say(error, 2, "! ")
    there = ", ".join(f"{item.name} ({item.says})" if item.says else item.name for item in looked.there)
    made.say(there or ("none that the source names is there" if looked.gone else "the source names none"), 2, "data: ")
    for item in looked.gone:
        made.say(f"{item.name} is not there ({item.path}:{item.line})", 4, "- ")
    made.line()


def wrong(looked: before.Script | None) -> int:
    """1 where the script would stop or lint is certain of a fault."""
    if looked is None:
        return 0
    return int(
        bool(looked.missing or looked.early) or any(finding.confidence == "certain" for finding in looked.findings)
    )


def _propose(domain: str, proposed: list[preflight.Danger], made: Page) -> None:
    made.say(f"Imagine that the run has failed. In the domain {domain!r} these are the most likely reasons:")
    for index, danger in enumerate(proposed, start=1):
        by_hand = danger.check.by == "person"
        cost = "by hand" if by_hand else seconds(danger.check.seconds + (60 if danger.check.person else 0))
        made.say(f"{danger.cause.id} (prior {percent(danger.prior)}): {danger.cause.gloss}.", 2, f"{index}  ")
        made.say(f"{danger.check.id}, {cost}: {danger.cause.refute}", 5, "check with ")


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


def _interview(domain: str, proposed: list[preflight.Danger], listed: set[str]) -> tuple[str, list[dict[str, str]]]:
    """Imagine a failure; not surprised? Add a check, and ask again, until a failure would be very surprising or the
    person has nothing to add."""
    worries: list[dict[str, str]] = []
    while True:
        reply = ask(f"\n{QUESTION if not worries else 'And now, with that check made?'} very, somewhat, not: ").lower()
        if reply not in SHORT:
            print("Please answer very, somewhat or not.")
            continue
        if reply == "very":
            return SHORT[reply], worries
        if worries:
            left = preflight.dangers(domain, 1, {*listed, *(worry["cause"] for worry in worries)})
            print(
                *(f"Likeliest of what is not listed: {item.cause.id}, {item.cause.gloss}." for item in left), sep="\n"
            )
        text = ask("It has failed. What went wrong? A number, a cause, or 'your words: the check' (Enter when done): ")
        if not text:
            return SHORT[reply], worries
        try:
            worries.append(_worry(text, proposed))
        except ClewError as error:
            print(error)
            continue
        print(f"Check: {worries[-1]['check']}")
