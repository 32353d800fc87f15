"""`clew case`: the hypothesis ledger, by hand."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from clew.app import cases, known
from clew.cli import complete
from clew.cli.output import answer, ask, json_argument, page, show
from clew.cli.runs import run_argument
from clew.errors import ClewError
from clew.records.clue import UNCLEAR, Value
from clew.records.place import Place
from clew.report import terminal
from clew.report.html import case_html
from clew.report.text import percent
from clew.report.view import to_json


def arguments(parser: ArgumentParser, only: str = "") -> None:
    """The verbs; no more than the one that was asked for, unless help or the shell want to know of all of them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", required=True)
    for name in [only] if only in VERBS else VERBS:
        gist, fill = VERBS[name]
        fill(verbs.add_parser(name, help=gist, description=gist[0].upper() + gist[1:] + "."))


def _new(parser: ArgumentParser) -> None:
    parser.add_argument("symptom", nargs="+", metavar="SYMPTOM", help="what you see, in your words")
    words = "vision, llm, tabular, timeseries, rl, pinn, … (general)"
    _complete(parser.add_argument("--domain", default="general", metavar="DOMAIN", help=words), complete.domains)
    words = "the training script: clues made on other code are kept apart"
    parser.add_argument("--script", default="", metavar="FILE", help=words)
    parser.set_defaults(act=act_new)


def _clue(parser: ArgumentParser) -> None:
    _complete(
        parser.add_argument("test", nargs="?", default="", metavar="TEST", help="which observation"), complete.tests
    )
    outcome = parser.add_argument("outcome", nargs="?", default="", metavar="OUTCOME", help="the outcome")
    _complete(outcome, complete.outcomes)
    words = "a number you measured; decides the outcome if none is given"
    parser.add_argument("--measured", action="append", default=[], metavar="NAME=NUMBER", help=words)
    parser.add_argument("--at", action="append", default=[], metavar="FILE:LINE", help="where you saw it")
    parser.add_argument("--says", default="", metavar="TEXT", help="your own words for it")
    parser.add_argument("--reproduce", default="", metavar="COMMAND", help="how to see it again")
    parser.add_argument("--why", default="", metavar="TEXT", help="with the outcome unclear: why")
    _case(parser, act_clue)


def _add(parser: ArgumentParser) -> None:
    run_argument(parser)
    _case(parser, act_add)


def _note(parser: ArgumentParser) -> None:
    parser.add_argument("text", nargs="+", metavar="TEXT")
    group = parser.add_mutually_exclusive_group()
    for part, words in (
        ("working on", "the output you work on now"),
        ("thinking", "thoughts (the default)"),
        ("running", "a run under way (with --question)"),
        ("result", "what a run showed"),
    ):
        flag = f"--{part.replace(' ', '-')}"
        group.add_argument(flag, dest="part", action="store_const", const=part, help=words)
    parser.add_argument("--question", default="", metavar="TEXT", help="the question that the run answers")
    parser.add_argument("--kind", default="", metavar="TEXT", help="the kind of run that a result belongs to")
    _case(parser, act_note)


def _hypothesis(parser: ArgumentParser) -> None:
    parser.add_argument("says", nargs="+", metavar="TEXT", help="what you think is wrong")
    words = "how likely you think it is, between 0 and 1"
    parser.add_argument("--prior", type=float, required=True, metavar="P", help=words)
    words = "what a test would show if you are right"
    parser.add_argument("--expects", action="append", default=[], metavar="TEST=OUTCOME", help=words)
    words = "the observation that would prove it wrong"
    parser.add_argument("--check", required=True, metavar="TEXT", help=words)
    _case(parser, act_hypothesis)


def _next(parser: ArgumentParser) -> None:
    parser.add_argument("-n", type=int, default=5, metavar="N", help="how many (5)")
    json_argument(parser)
    _all_code(parser)
    _case(parser, act_next)


def _show(parser: ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")
    json_argument(parser)
    _all_code(parser)
    _case(parser, act_show)


def _log(parser: ArgumentParser) -> None:
    _case(parser, act_log)


def _retract(parser: ArgumentParser) -> None:
    parser.add_argument("entry", metavar="NUMBER", help="the number shown as #N")
    parser.add_argument("--reason", required=True, metavar="TEXT")
    _case(parser, act_retract)


def _close(parser: ArgumentParser) -> None:
    _complete(parser.add_argument("--cause", required=True, metavar="CAUSE", help="what it was"), complete.causes)
    parser.add_argument("--evidence", default="", metavar="TEXT", help="the observation that no longer reproduces")
    parser.add_argument(
        "--clue", default="", metavar="NUMBER", help="the clue that showed the fault and no longer reproduces"
    )
    parser.add_argument("--unverified", default="", metavar="TEXT", help="why the fix is unverified")
    words = "a run after the fix: the decisive clue is measured again in it, and must be gone"
    parser.add_argument("--run", default="", metavar="NEW", help=words)
    parser.add_argument("--yes", action="store_true", help="close it although the case's own clues speak against it")
    _case(parser, act_close)


def _reopen(parser: ArgumentParser) -> None:
    parser.add_argument("--reason", required=True, metavar="TEXT")
    _case(parser, act_reopen)


def _list(parser: ArgumentParser) -> None:
    parser.set_defaults(act=act_list)


def _use(parser: ArgumentParser) -> None:
    _complete(parser.add_argument("name", metavar="CASE"), complete.cases)
    parser.set_defaults(act=act_use)


VERBS = {
    "new": ("open a case for something that looks wrong", _new),
    "clue": ("enter what you saw; without arguments, choose from a list", _clue),
    "add": ("add the clues of an archived run", _add),
    "next": ("the most informative observations per second", _next),
    "show": ("what was seen, what it may be, what to do", _show),
    "hypothesis": ("add an explanation of your own", _hypothesis),
    "note": ("add to the work log", _note),
    "log": ("the four-part work log", _log),
    "retract": ("retract an entry; it stays in the log with the reason", _retract),
    "close": ("record the cause and the observation that no longer reproduces", _close),
    "reopen": ("open a closed case again", _reopen),
    "list": ("list the cases", _list),
    "use": ("make a case the current one", _use),
}


def _all_code(parser: ArgumentParser) -> None:
    parser.add_argument("--all-code", action="store_true", help="also count clues made on other code")


def _case(parser: ArgumentParser, act: Any) -> None:
    _complete(
        parser.add_argument("--case", default="", metavar="CASE", help="which case (the current one)"), complete.cases
    )
    parser.set_defaults(act=act)


def _complete(argument: Any, completer: Any) -> None:
    argument.completer = completer


def entry_number(text: str) -> int:
    try:
        return int(text.lstrip("#"))
    except ValueError:
        raise ClewError(f"an entry is named by its number, as in #3, not {text!r}.") from None


def act_new(options: Namespace) -> int:
    case = cases.new(" ".join(options.symptom), options.domain, options.script)
    made = page()
    made.say(f"Opened case {case.id}.")
    for held in case.clues:
        made.say(f"#{held.number} {held.clue.test}: {held.clue.outcome} was entered from your words.")
    entered = {held.clue.test for held in case.clues}
    found = [item for item in known.suggest(case.symptom) if item.test not in entered]
    if found:
        made.line()
        made.say("Your words may describe one of these; enter those that you observed:")
        for item in found:
            made.say(f"clew case clue {item.test} {item.outcome}", 2, "- ")
            made.say(item.means, 4)
    made.line()
    made.say("`clew case next` shows what to look at first.")
    show(made)
    return 0


def act_clue(options: Namespace) -> int:
    test, outcome = options.test, options.outcome
    measured = dict(_pair(text, "--measured", _value) for text in options.measured)
    why = options.why
    if not test or not (outcome or measured):
        test, outcome = _pick(options.case, test)
        if not outcome:
            return 0
        if outcome == UNCLEAR and not why:
            why = ask("why is it unclear? ")
    held = cases.Options(
        tuple(sorted(measured.items())),
        tuple(Place.parse(text) for text in options.at),
        options.says,
        options.reproduce,
        why,
    )
    before = cases.weighed(options.case)
    number, case = cases.add_clue(options.case, test, outcome, held)
    after = cases.weighed(case.folder)
    made = page()
    entry = next(item.clue for item in case.clues if item.number == number)
    made.say(f"#{number} {entry.test}: {entry.outcome}.")
    _movement(before, after, made)
    show(made)
    return 0


def act_add(options: Namespace) -> int:
    before = cases.weighed(options.case)
    count, case = cases.add_run(options.case, options.run)
    made = page()
    made.say(f"{count} clue{'s' * (count != 1)} added to case {case.id}.")
    _movement(before, cases.weighed(case.folder), made)
    show(made)
    return 0


def _movement(before: Any, after: Any, made: Any) -> None:
    """What the clue changed, so that a person can see it working."""
    for finding in after.weighing.findings:
        if before.weighing.credence(finding.cause) != finding.credence:
            gloss = after.cause(finding).gloss
            made.say(f"Found {finding.cause} ({percent(finding.credence)}): {gloss}.", 2)
    moved = [(share.cause, before.weighing.credence(share.cause), share.credence) for share in after.weighing.shares]
    moved = [row for row in moved if percent(row[1]) != percent(row[2])]
    moved.sort(key=lambda row: -abs(row[2] - row[1]))
    for cause, was, now in moved[:4]:
        made.say(f"{cause}: {percent(was)} → {percent(now)}", 2)
    if not moved and not after.weighing.findings:
        made.say("No credence moved.", 2)


def _pair(text: str, flag: str, convert: Any) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip() or not value.strip():
        raise ClewError(f"{flag} takes NAME=VALUE, not {text!r}.")
    return name.strip(), convert(value.strip())


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _pick(name: str, test: str) -> tuple[str, str]:
    """Let a person choose the test, likely ones first, and then its outcome."""
    seen = cases.weighed(name, most=9)
    knowledge = seen.knowledge
    if test:
        known.known_test(knowledge, test)
    if not sys.stdin.isatty():
        if test:
            names = ", ".join(item.name for item in knowledge.tests[test].outcomes)
            raise ClewError(f"say what {test} showed: {names} or unclear.")
        raise ClewError("name a test and its outcome; `clew case next` shows which are worth making.")
    if not test:
        choices = [knowledge.tests[choice.test] for choice in seen.choices]
        test = _ask("Which observation?", [(item.id, item.asks) for item in choices], list(knowledge.tests))
        if not test:
            return "", ""
    held = known.known_test(knowledge, test)
    rows = [(item.name, item.means) for item in held.outcomes]
    rows.append((UNCLEAR, "you looked and cannot tell"))
    return test, _ask(held.asks, rows, [name for name, _ in rows])


def _ask(question: str, rows: list[tuple[str, str]], allowed: list[str]) -> str:
    made = page()
    made.say(question)
    for index, (name, means) in enumerate(rows, start=1):
        made.say(f"{name}: {means}", 2, f"{index:>2}  ")
    show(made)
    answer = ask("number, name, or Enter to stop: ")
    if answer.isdigit() and 1 <= int(answer) <= len(rows):
        return rows[int(answer) - 1][0]
    if answer and answer not in allowed:
        raise ClewError(f"{answer!r} is not one of them; nothing was entered.")
    return answer


def act_note(options: Namespace) -> int:
    number = cases.add_note(
        options.case, options.part or "thinking", " ".join(options.text), options.question or options.kind
    )
    print(f"#{number} noted.")
    return 0


def act_hypothesis(options: Namespace) -> int:
    expects = dict(_pair(text, "--expects", str) for text in options.expects)
    number, case = cases.add_hypothesis(options.case, " ".join(options.says), options.prior, expects, options.check)
    held = next(item for item in case.own if item.number == number)
    print(f"#{number} was added as {held.id}.")
    return 0


def act_next(options: Namespace) -> int:
    if not 1 <= options.n <= 100:
        raise ClewError(f"-n takes a number from 1 to 100, not {options.n}.")
    seen = cases.weighed(options.case, options.all_code, options.n)
    made = page()
    terminal.advice(seen, made)
    terminal.next_tests(seen, made, options.n)
    answer(options, made, lambda: {**to_json(seen), "command": "case next"})
    return 0


def act_show(options: Namespace) -> int:
    seen = cases.weighed(options.case, options.all_code)
    answer(options, terminal.case_page(seen, page()), lambda: to_json(seen), lambda: case_html(seen))
    return 1 if seen.verdict.word in ("fault", "suspect") and seen.case.closing is None else 0


def act_log(options: Namespace) -> int:
    case = cases.read(options.case)
    rows = [(line.running, f"{line.at}  ", f"{line.command}: {line.told} ({line.id})") for line in cases.runs_of(case)]
    answer(options, terminal.log_page(case, page(), rows))
    return 0


def act_retract(options: Namespace) -> int:
    number = entry_number(options.entry)
    cases.retract(options.case, number, options.reason)
    print(f"#{number} is retracted; it stays in the log.")
    return 0


def _sure(doubt: str) -> bool:
    return sys.stdin.isatty() and ask(f"{doubt[0].upper()}{doubt[1:]}. Close it all the same? yes or no: ") == "yes"


def act_close(options: Namespace) -> int:
    clue = entry_number(options.clue) if options.clue else None
    given = (options.evidence, clue, options.unverified, options.run)
    case = cases.close(options.case, options.cause, *given, sure=lambda doubt: options.yes or _sure(doubt))
    gone = case.closing.evidence if case.closing else ""
    made = page()
    told = f"No longer seen: {gone.rstrip('.')}." if gone else "Nothing shows yet that it is gone."
    made.say(f"Closed {case.id}: {options.cause}. {told}")
    show(made)
    return 0


def act_reopen(options: Namespace) -> int:
    case = cases.reopen(options.case, options.reason)
    print(f"Reopened {case.id}.")
    return 0


def act_list(options: Namespace) -> int:
    names, now = cases.names()
    made = page()
    if not names:
        made.say('There is no case here yet; open one with: clew case new "what you see"')
    for name in names:
        try:
            case = cases.read(name)
        except ClewError as error:
            made.say(str(error), 2, "! ")
            continue
        state = f"closed: {case.closing.cause}" if case.closing else f"{len(case.clues)} clues"
        made.say(f"{name}  {case.symptom} ({state})", 0, "* " if name == now else "  ")
    answer(options, made)
    return 0


def act_use(options: Namespace) -> int:
    print(f"The current case is {cases.use(options.name)}.")
    return 0
