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
from clew.lint.registry import load as load_rules
from clew.lint.show import in_a_line, ranked
from clew.report.brief import LINES
from clew.report.text import BOLD, RED, Page, percent, seconds

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
    looked = before.read(script) if script else None
    suggested = held.domain if held else preflight.domain_of(looked) if looked else "general"
    domain = known_domain(options.domain or suggested)
    proposed = preflight.dangers(domain, listed=listed, script=looked)
    if options.surprise or options.worry:
        worries = [_worry(text, proposed) for text in options.worry]
        surprise = SHORT[options.surprise or "not"]
    else:
        made = page()
        if options.brief:
            answer(options, brief_page(looked, proposed, made))
            return wrong(looked)
        if looked is not None:
            read_page(looked, made)
        _propose(domain, proposed, made, fitting=looked is not None)
        if not sys.stdin.isatty():
            made.line()
            made.say(QUESTION)
            _answers(script, proposed, made)
            answer(options, made)
            return wrong(looked)
        show(made)
        surprise, worries = _interview(domain, proposed, listed, looked)
    case = preflight.record(options.case, script, domain, surprise, worries)
    made = page()
    checks = [worry for flight in case.preflights for worry in flight.worries]
    made.say(f"Recorded in case {case.id}.{' Make these checks before the run starts:' if checks else ''}")
    for worry in checks:
        made.say(f"{worry.cause or worry.says}: {worry.check}", 2, "- ")
    if surprise != preflight.SURPRISES[0]:
        named = {worry.cause for worry in checks}
        _again(case.id, preflight.dangers(domain, 1, named, looked), made)
    elif script:
        made.say(f"Then: clew run --case {case.id} {script}")
    answer(options, made)
    return wrong(looked)


def _again(case: str, left: list[preflight.Danger], made: Page) -> None:
    made.line()
    made.say("With these checks made, how surprised would you be if it failed? Imagine again that it has.")
    for danger in left:
        made.say(f"{danger.cause.id}: {danger.cause.gloss}.", 2, "likeliest reason that is not listed: ")
    _answers(f"--case {case}", left, made)


def _answers(words: str, proposed: list[preflight.Danger], made: Page) -> None:
    """One command for each answer, to be pasted as it stands."""
    command = " ".join(("clew preflight", words)).strip()
    worry = proposed[0].cause.id if proposed else "'WHAT GOES WRONG: CHECK'"
    made.line(f"  {command} --surprise not --worry {worry}")
    made.line(f"  {command} --surprise very")


def read_page(looked: before.Script, made: Page) -> None:
    """What reading the script showed: what stops the run first, then certain faults, then the rest."""
    made.say(looked.files[0], 0, "", BOLD)
    for problem in stops(looked):
        made.say(problem, 2, "stops the run: ", RED)
    for finding in ranked(looked.findings)[:MOST_FINDINGS]:
        made.say(f"{finding.path}:{finding.line} {finding.rule} {finding.message}", 2, f"{finding.confidence}: ")
    more = len(looked.files) - 1
    if more:
        made.say(f"{more} file{'s' * (more != 1)} of the project imported: {', '.join(looked.files[1:4])}", 2)
    arguments = ", ".join(f"{item.name} {item.says}".strip() for item in looked.arguments)
    made.say(arguments or "none", 2, "arguments: ")
    made.say(f"{len(looked.missing)} not installed" if looked.missing else "all installed", 2, "imports: ")
    made.say(f"{len(looked.findings) or 'no'} finding{'s' * (len(looked.findings) != 1)}", 2, "lint: ")
    there = ", ".join(f"{item.name} ({item.says})" if item.says else item.name for item in looked.there)
    made.say(there or ("all missing" if looked.gone else "none named in the source"), 2, "data files: ")
    for item in looked.gone:
        made.say(f"{item.name} is not there ({item.path}:{item.line})", 4, "- ")
    made.line()


def stops(looked: before.Script) -> list[str]:
    missing = [f"{item.path}:{item.line}: {item.name} is not installed" for item in looked.missing]
    return [*missing, *looked.early]


def brief_page(looked: before.Script | None, proposed: list[preflight.Danger], made: Page) -> Page:
    """A line each: what stops the run, the findings with their fixes, and then the risks as far as there is room."""
    rows: list[str] = []
    if looked is not None:
        rules = load_rules()
        rows += [f"stops the run: {problem}" for problem in stops(looked)]
        rows += [in_a_line(finding, rules.get(finding.rule)) for finding in ranked(looked.findings)]
        rows += [f"{item.path}:{item.line}: {item.name} is not there" for item in looked.gone]
        rows = rows or [f"{looked.files[0]}: nothing found that stops the run"]
    room = max(2, LINES - len(rows))
    risks = [f"risk: {one.cause.id}, {one.cause.gloss}; check: {one.check.id}" for one in proposed][:room]
    made.lines = [*rows[: LINES - len(risks)], *risks]
    return made


def wrong(looked: before.Script | None) -> int:
    """1 where the script would stop or lint is certain of a fault."""
    if looked is None:
        return 0
    return int(
        bool(looked.missing or looked.early) or any(finding.confidence == "certain" for finding in looked.findings)
    )


def _propose(domain: str, proposed: list[preflight.Danger], made: Page, fitting: bool) -> None:
    of = "" if domain == "general" else f" in the domain {domain!r}"
    fit = ", of those that fit this script" if fitting else ""
    made.say(f"Imagine that the run has failed. The most likely reasons{of}{fit}:")
    for index, danger in enumerate(proposed, start=1):
        by_hand = danger.check.by == "person"
        cost = "by hand" if by_hand else seconds(danger.check.seconds + (60 if danger.check.person else 0))
        made.say(f"{danger.cause.id} ({percent(danger.prior)}): {danger.cause.gloss}.", 2, f"{index}  ")
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


def _interview(
    domain: str, proposed: list[preflight.Danger], listed: set[str], looked: before.Script | None
) -> tuple[str, list[dict[str, str]]]:
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
            left = preflight.dangers(domain, 1, {*listed, *(worry["cause"] for worry in worries)}, looked)
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
