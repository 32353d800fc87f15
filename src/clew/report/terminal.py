"""A case as text for a terminal: what was seen and what is inferred, visibly apart."""

from collections.abc import Sequence

from clew.case.choose import Choice
from clew.evidence.words import word
from clew.knowledge.model import Reference, Test
from clew.records.case import PARTS, Case, HeldClue
from clew.report.text import BLUE, BOLD, DIM, GREEN, RED, YELLOW, Page, number, percent, seconds
from clew.report.view import CaseView, guesses, telling

VERDICT_COLOURS = {"fault": RED, "suspect": YELLOW, "healthy": GREEN, "undecided": BLUE}
MOST_PASSED = 8
SOUND = {"none.healthy": "nothing is wrong", "none.overfitting": "it overfits", "none.slow": "it is only slow"}
PART_WORDS = {"subtle": " (the subtle one)", "null": " (the null)", "own": " (yours)"}


def case_page(seen: CaseView, page: Page) -> Page:
    _heading(seen, page)
    _observations(seen, page)
    _findings(seen, page)
    _hypotheses(seen, page)
    if seen.case.closing is None:
        advice(seen, page)
        if not seen.weighing.findings:
            next_tests(seen, page, most=3)
    _foreseen(seen, page)
    for remark in seen.case.remarks:
        page.say(remark, 0, "Note: ", DIM)
    return page


def _heading(seen: CaseView, page: Page) -> None:
    case = seen.case
    page.say(case.symptom, 0, "", BOLD)
    counted = f"{len(seen.counted)} clue{'s' * (len(seen.counted) != 1)}"
    page.say(
        f"case {case.id} · {case.domain} · opened {case.opened_at[:16].replace('T', ' ')} UTC · {counted}", 0, "", DIM
    )
    page.line()
    verdict = seen.verdict
    page.say(verdict.says, 0, "")
    page.lines[-1] = f"{page.paint(verdict.shown, VERDICT_COLOURS[verdict.word], BOLD)}  {page.lines[-1]}"
    if case.closing is not None:
        closing = case.closing
        page.say(f"Closed: {closing.cause}.")
        if closing.evidence:
            page.say(f"No longer seen: {closing.evidence}")
        if closing.unverified:
            page.say(f"Not verified as gone: {closing.unverified}", 0, "", YELLOW)


def _observations(seen: CaseView, page: Page) -> None:
    page.head("Seen")
    if not (seen.counted or seen.retracted or seen.other_code):
        page.say("No observation has been entered yet.", 2)
    passed: list[str] = []
    for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True):
        if weighed.kind == "absent" and held.clue.source != "person":
            passed.append(held.clue.test)
        else:
            _observation(page, held, weighed.outcome)
    if passed:
        few = f"{', '.join(passed[:MOST_PASSED])}{' …' if len(passed) > MOST_PASSED else ''}"
        page.say(f"{len(passed)} checks by clew passed: {few}", 2, "", DIM)
    for held in seen.other_code:
        _observation(page, held, held.clue.outcome, "made on other code, not counted (--all-code counts it)")
    for held in seen.retracted:
        _observation(page, held, held.clue.outcome, f"retracted: {held.retracted}")


def _observation(page: Page, held: HeldClue, outcome: str, left_out: str = "") -> None:
    clue = held.clue
    says = clue.why if clue.outcome == "unclear" else clue.says or outcome.replace("_", " ")
    parts = [f"{sentence(says).rstrip('.')} ({clue.test}{' unclear' if clue.outcome == 'unclear' else ''})."]
    if clue.measured:
        parts.append("Measured " + ", ".join(f"{name} {number(value)}" for name, value in clue.measured) + ".")
    if clue.where:
        parts.append("At " + "; ".join(dict.fromkeys(map(str, clue.where))) + ".")
    if left_out:
        parts.append(f"[{left_out}]")
    page.say(" ".join(parts), 2, f"#{held.number} ".ljust(5), *((DIM,) if left_out else ()))


def sentence(text: str) -> str:
    """The text as a sentence of its own."""
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?", "!")) else text + "."


def _findings(seen: CaseView, page: Page) -> None:
    if not seen.weighing.findings:
        return
    page.head("Found: the mechanism itself was seen")
    for finding in seen.weighing.findings:
        cause = seen.cause(finding)
        numbers = ", ".join(f"#{seen.counted[index].number}" for index in finding.clues)
        places = "; ".join(dict.fromkeys(map(str, finding.where)))
        page.say(
            f"{finding.cause}{f' at {places}' if places else ''}: {cause.gloss}.",
            2,
            f"{percent(finding.credence):>5}  ",
        )
        page.say(f"{word(round(finding.credence, 2))}; seen in {numbers}", 9, "", DIM)


def _hypotheses(seen: CaseView, page: Page) -> None:
    found, held = bool(seen.weighing.findings), guesses(seen)
    if not held:
        return
    page.head("If that is not it (inferred)" if found else "Possible causes (inferred)")
    own = {item.id: item for item in seen.case.own}
    shown = 0.0
    for item in held:
        cause = seen.knowledge.causes.get(item.cause)
        says = cause.gloss if cause else own[item.cause].says
        part = PART_WORDS.get(item.part, "")
        said = f"{item.cause}, {word(round(item.credence, 2))}{part}: {says.rstrip('.')}."
        page.say(said, 2, f"{percent(item.credence):>5}  ")
        shown += item.credence
        if not found:
            page.say(_evidence(seen, item.cause), 9, "", DIM)
            page.say(cause.refute if cause else own[item.cause].check, 9, "this is wrong if: ", DIM)
    rest = max(0.0, 1.0 - shown - seen.weighing.unknown)
    count = len(seen.weighing.shares) - len(held)
    page.say("unknown: a cause that clew does not know.", 2, f"{percent(seen.weighing.unknown):>5}  ")
    page.say(f"the other {count} explanations together.", 2, f"{percent(rest):>5}  ", DIM)


def _evidence(seen: CaseView, cause: str) -> str:
    """The clues that moved an explanation, with the bits they gave it or took from it."""
    pulls = telling(seen, cause)[:4]
    if not pulls:
        return "no observation for or against it yet"
    held = [(pull, seen.counted[pull.clue]) for pull in pulls]
    return "bits: " + ", ".join(f"{pull.bits:+.1f} #{item.number} {item.clue.test}" for pull, item in held)


def advice(seen: CaseView, page: Page) -> Page:
    """The one thing to do now."""
    held = seen.advice
    titles = {
        "observe": "Next observation",
        "refute": f"Try to prove {held.cause} wrong",
        "mend": f"Check {held.cause}, then fix it" if held.test else f"Fix {held.cause}",
        "compare": "Compare with code that works",
    }
    page.head(titles[held.kind])
    if seen.heard and held.kind == "observe":
        words = "; ".join(means(seen.knowledge.tests[clue.test], clue.outcome) for clue in seen.heard)
        page.say(f"taking your words to mean: {words}", 2, "", DIM)
    page.say(held.says, 2)
    for reference in held.references:
        page.say(_reference(reference), 2, "- ")
    if held.test:
        test = seen.knowledge.tests[held.test]
        names = "|".join(item.name for item in test.outcomes)
        page.say(f"clew case clue {held.test} {names}", 2, "enter it with: ", DIM)
    return page


def _reference(reference: Reference) -> str:
    return f"{reference.name} ({reference.url}): {reference.why}"


def next_tests(seen: CaseView, page: Page, most: int = 5, timed: bool = False) -> Page:
    """The observations most worth their cost, with what each leading explanation predicts. Seconds are told where there
    is a run to make them on."""
    page.head("Next observations, best value first")
    for own in seen.own:
        page.say(f"{own.id} (yours): {own.check}", 2, "- ")
        page.say(f"clew case note --result 'what it showed' --kind {own.id}", 4, "enter it with: ", DIM)
    if not seen.choices and not seen.own:
        page.say("No remaining test would tell more.", 2)
    for choice in seen.choices[:most]:
        test = seen.knowledge.tests[choice.test]
        page.say(f"{choice.test}: {test.asks}", 2, "- ")
        page.say(_prediction(choice, test, timed or seen.at_hand is not None), 4, "", DIM)
        if command := _made_by(test, seen):
            page.say(command, 4, "run: ", DIM)
    return page


def _made_by(test: Test, seen: CaseView) -> str:
    """The command that makes an observation with the run at hand; nothing where that needs a person."""
    if seen.at_hand is None:
        return ""
    if test.id in seen.at_hand.answers:
        return f"clew case add {seen.at_hand.run} --case {seen.case.id}"
    if test.by != "exam":
        return ""
    if seen.at_hand.captured:
        return f"clew exam {seen.at_hand.run} --only {test.id} --case {seen.case.id}"
    return f"clew run --keep-capture --case {seen.case.id} {seen.case.script or 'SCRIPT'}"


def _prediction(choice: Choice, test: Test, timed: bool) -> str:
    grouped: dict[str, list[str]] = {}
    for cause, outcome, _ in choice.predictions:
        grouped.setdefault(outcome, []).append(SOUND.get(cause, cause))
    sides = " ".join(f"If {' or '.join(causes)}: {means(test, outcome)}." for outcome, causes in grouped.items())
    cost = ", made by hand" if test.by == "person" else f", takes {seconds(choice.cost)}" if timed else ""
    return f"{sides} Worth {choice.gain:.2f} bits{cost}."


def means(test: Test, outcome: str) -> str:
    """An outcome in words."""
    known = test.outcome(outcome)
    return known.means.rstrip(".") if known else outcome


def _foreseen(seen: CaseView, page: Page) -> None:
    if seen.foreseen:
        page.head("Foreseen?")
        for line in seen.foreseen:
            page.say(line, 2, "- ")


def log_page(case: Case, page: Page, runs: Sequence[tuple[bool, str, str]] = ()) -> Page:
    """The four-part work log. `runs` are those of the archive: whether each is running, its time, and what it is."""
    page.say(case.symptom, 0, "", BOLD)
    page.say(f"case {case.id}", 0, "", DIM)
    titles = {
        "working on": "1. Working on",
        "thinking": "2. Thinking",
        "running": "3. Running, and the question each run answers",
        "result": "4. Results",
    }
    for part in PARTS:
        page.head(titles[part])
        notes = [note for note in case.notes if note.part == part]
        if part == "result":
            notes.sort(key=lambda note: note.about)
        kept = [row for row in runs if row[0] == (part == "running")] if part in ("running", "result") else []
        if not notes and not kept:
            ended = part == "running" and runs
            says = f"none now; the runs under 4 were to answer: does it still show: {case.symptom}"
            page.say(says if ended else "nothing yet", 2, "", DIM)
        for _, at, says in kept:
            page.say(says, 2, at)
            if part == "running":
                page.say(f"does it still show: {case.symptom}", 2 + len(at), "question: ")
        kind = ""
        for note in notes:
            if part == "result" and note.about != kind:
                kind = note.about
                page.say(kind or "unsorted", 2, "", BOLD)
            head = f"#{note.number} {note.at[5:16].replace('T', ' ')}  "
            page.say(note.text, 2, head)
            if note.about and part == "running":
                page.say(note.about, 2 + len(head), "question: ")
    return page
