"""What `clew run` prints at the end: the verdict, the fault with its line, and what was and was not looked at."""

import os
from typing import NamedTuple

from clew.evidence.words import word
from clew.records.place import Place
from clew.report.terminal import VERDICT_COLOURS, next_tests, sentence
from clew.report.text import BOLD, DIM, RED, Page, number, percent, seconds
from clew.report.view import LEAST_PULL, CaseView

SHOWN = 3
FAILED = "its instrument failed"


class RunFacts(NamedTuple):
    """What happened, apart from what it means."""

    script: str
    steps: int
    seconds: float
    status: int
    processes: int
    folder: str
    troubles: tuple[str, ...] = ()


def run_page(seen: CaseView, facts: RunFacts, page: Page, everything: bool = False) -> Page:
    ranks = f", {facts.processes} processes" if facts.processes > 1 else ""
    ended = f", exit {facts.status}" if facts.status else ""
    page.line(page.paint("─" * min(page.columns, 80), DIM))
    verdict = seen.verdict
    word_shown = page.paint(verdict.word.upper(), VERDICT_COLOURS[verdict.word], BOLD)
    page.line(f"{word_shown}  {facts.script}: {facts.steps} steps in {seconds(facts.seconds)}{ranks}{ended}")
    if not seen.weighing.findings:
        page.say(verdict.says)
    _findings(seen, page)
    if seen.weighing.findings:
        pass
    elif verdict.word in ("suspect", "fault"):
        _hypotheses(seen, page)
        next_tests(seen, page, most=2)
    _checked(seen, page, everything)
    broken = [held.clue for held in seen.counted if held.clue.why.startswith(FAILED)]
    for clue in broken if not everything else ():
        page.say(f"{clue.test}: {clue.why}", 2, "! ")
    for trouble in facts.troubles:
        page.say(trouble, 2, "! ")
    page.line()
    page.say(f"Kept in {facts.folder}.", 0, "", DIM)
    return page


def _findings(seen: CaseView, page: Page) -> None:
    for finding in seen.weighing.findings:
        cause = seen.knowledge.causes[finding.cause]
        page.line()
        place = f"{finding.where[0]}: " if finding.where else ""
        sure = f"{percent(finding.credence)}, {word(round(finding.credence, 2))}"
        page.say(f"{place}{finding.cause} ({sure})", 0, "", BOLD)
        if finding.where:
            _quote(finding.where[0], page)
        for index in finding.clues:
            clue = seen.counted[index].clue
            page.say(sentence(clue.says), 2)
            figures = ", ".join(f"{name} {number(value)}" for name, value in clue.measured)
            if figures:
                page.say(f"Measured: {figures}.", 2, "", DIM)
        for place_too in finding.where[1:3]:
            page.say(str(place_too), 2, "see also ", DIM)
        page.say(cause.mend, 2, "mend: ")
        page.say(cause.refute, 2, "wrong if: ", DIM)


def _quote(place: Place, page: Page) -> None:
    """The source line itself, underlined."""
    if place.file is None or place.line is None or not os.path.isfile(place.file):
        return
    try:
        with open(place.file, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    if 1 <= place.line <= len(lines):
        text = lines[place.line - 1].strip()[: page.columns - 10]
        label = f"{place.line} | "
        page.line(f"  {page.paint(label, DIM)}{text}")
        page.line(f"  {' ' * len(label)}{page.paint('~' * len(text), RED)}")


def _hypotheses(seen: CaseView, page: Page) -> None:
    page.head("What it may be")
    for item in seen.explanations[:SHOWN]:
        cause = seen.knowledge.causes[item.cause]
        page.say(f"{item.cause}: {cause.gloss}.", 2, f"{percent(item.credence):>5}  ")
        pulls = [pull for pull in seen.weighing.pulls(item.cause) if abs(pull.bits) > LEAST_PULL][:4]
        held = [(pull, seen.counted[pull.clue].clue) for pull in pulls]
        signs = [(f"{clue.test} {clue.outcome}", pull.bits) for pull, clue in held]
        for label, wanted in (("for it: ", 1), ("against it: ", -1)):
            named = ", ".join(text for text, bits in signs if bits * wanted > 0)
            if named:
                page.say(named, 9, label, DIM)
        page.say(cause.refute, 9, "wrong if: ", DIM)


def _checked(seen: CaseView, page: Page, everything: bool) -> None:
    """Everything that was looked at, by how it came out."""
    groups: dict[str, list[str]] = {"seen": [], "absent": [], "unclear": []}
    found = {index for finding in seen.weighing.findings for index in finding.clues}
    for index, (held, weighed) in enumerate(zip(seen.counted, seen.weighing.clues, strict=True)):
        if index in found:
            continue
        if weighed.kind == "seen":
            figures = ", ".join(number(value) for _, value in held.clue.measured[:2])
            places = f" at {held.clue.where[0]}" if held.clue.where else ""
            groups["seen"].append(f"{held.clue.test}: {weighed.outcome}{f' ({figures})' if figures else ''}{places}")
        elif weighed.kind == "absent":
            groups["absent"].append(held.clue.test)
        else:
            groups["unclear"].append(f"{held.clue.test} ({held.clue.why})")
    if groups["seen"]:
        page.head("Also seen")
        for text in groups["seen"]:
            page.say(text, 2, "- ")
    if everything and groups["absent"]:
        page.head(f"In order ({len(groups['absent'])})")
        page.say(", ".join(groups["absent"]), 2, "", DIM)
    if everything and groups["unclear"]:
        page.head(f"Not observed ({len(groups['unclear'])})")
        for text in groups["unclear"]:
            page.say(text, 2, "- ", DIM)
    if not everything:
        page.line()
        counts = f"{len(groups['absent'])} checks in order, {len(groups['unclear'])} could not be made"
        page.say(f"{counts}; --all lists them with the reasons.", 0, "", DIM)
