"""What `clew run` prints at the end: the verdict, the fault with its line, and what was and was not looked at."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from clew import reading
from clew.case.clues import SENTENCES
from clew.case.verdict import unusual
from clew.evidence.words import word
from clew.knowledge.model import Test
from clew.records.case import HeldClue
from clew.records.clue import Clue
from clew.records.masked import masked_text
from clew.records.place import Place
from clew.report.terminal import VERDICT_COLOURS, means, next_tests, sentence
from clew.report.text import BOLD, DIM, RED, Page, number, percent, seconds
from clew.report.view import CaseView, found, guesses, telling

SHOWN = 3
MOST_TRAININGS = 6
FAILED = "its instrument failed"
USABLE = ("batch", "epoch", "step", "steps", "rows", "rows_affected", "examples")


class DataFile(NamedTuple):
    """A data file that the script opened. `rows` says how much is in it, where that is known."""

    path: str
    written: bool
    size: int
    by: str
    rows: str
    where: str

    def __str__(self) -> str:
        details = ", ".join(text for text in (self.by, self.rows) if text)
        return f"{self.path} ({details})" if details else self.path


class RunFacts(NamedTuple):
    """What happened, apart from what it means."""

    script: str
    steps: int
    seconds: float
    status: int
    processes: int
    folder: str
    troubles: tuple[str, ...] = ()
    files: tuple[DataFile, ...] = ()
    notes: tuple[str, ...] = ()  # what exams could not replay
    exams: str = ""
    crash: str = ""  # the exception that ended it
    crashed_at: Place | None = None
    crash_told: str = ""  # phase, process, memory
    trainings: tuple[int, ...] = ()  # the steps of each
    page: bool = True  # whether report.html could be written

    @property
    def made(self) -> str:
        """How much was trained, by how many."""
        if len(self.trainings) > 1:
            shown = [str(steps) for steps in self.trainings[:MOST_TRAININGS]]
            shown += [f"{len(self.trainings) - MOST_TRAININGS} more"] if len(self.trainings) > MOST_TRAININGS else []
            return f"{len(self.trainings)} trainings of {', '.join(shown[:-1])} and {shown[-1]} steps"
        return f"{self.steps} step{'s' * (self.steps != 1)}"

    @property
    def never_trained(self) -> bool:
        """An error ended it in its first step: what was looked for had no chance to show."""
        return bool(self.crash) and not self.steps

    def read(self, most: int = SHOWN) -> str:
        """The data files that were read, a few by name."""
        held = [str(item) for item in self.files if not item.written]
        more = f" and {len(held) - most} more" if len(held) > most else ""
        return ", ".join(held[:most]) + more


def run_page(seen: CaseView, facts: RunFacts, page: Page, everything: bool = False) -> Page:
    ranks = f", {facts.processes} processes" if facts.processes > max(1, len(facts.trainings)) else ""
    ended = f", exit {facts.status}" if facts.status else ""
    page.line(page.paint("─" * min(page.columns, 80), DIM))
    if facts.crash:
        place = f"{place_words(facts.crashed_at)}: " if facts.crashed_at else ""
        page.say(f"{place}{facts.crash}", 0, "", BOLD, RED)
        if facts.crashed_at:
            _quote(facts.crashed_at, page)
        page.say(facts.crash_told, 2, "", DIM)
        page.line()
    verdict = seen.verdict
    word_shown = page.paint(verdict.shown, VERDICT_COLOURS[verdict.word], BOLD)
    page.line(f"{word_shown}  {facts.script}: {facts.made} in {seconds(facts.seconds)}{ranks}{ended}")
    looked = body(seen, facts, page, everything)
    page.line()
    if not everything and not facts.never_trained:
        name = os.path.basename(facts.folder)
        counts = f"{len(looked.absent)} checks passed, {len(looked.unclear)} did not apply: clew show {name} --all"
        page.say(counts, 0, "", DIM)
        if facts.exams:
            page.say(facts.exams, 0, "", DIM)
    if facts.page:
        page.say(f"HTML report: {facts.folder}/report.html (clew open)", 0, "", DIM)
    return page


def body(seen: CaseView, facts: RunFacts, page: Page, everything: bool) -> "Looked":
    """From the verdict's sentence to what could not be looked at: the same for every command that looked at a run."""
    verdict, looked = seen.verdict, _looked(seen)
    if verdict.word == "undecided" or (not seen.weighing.findings and (verdict.word != "healthy" or looked.seen)):
        page.say(verdict.says)
    findings(seen, facts, page)
    if seen.weighing.findings:
        _in_passing(looked, page, everything)
    else:
        told = {seen.counted[index].clue.test for item in found(seen) for index in item.clues}
        _signs(looked._replace(seen=[item for item in looked.seen if item[0].clue.test not in told]), page)
        if verdict.word != "healthy" and looked.seen and not facts.never_trained:
            possible(seen, page)
            next_tests(seen, page, most=2, timed=True)
    if everything:
        _checked(looked, facts, page)
    _troubles(seen, facts, page, everything)
    return looked


def checks(clues: Iterable[Clue], tests: dict[str, Test], facts: RunFacts, page: Page) -> Page:
    """Everything that a run of the archive was looked at for: what was seen, what passed, what could not run."""
    looked = Looked([], [], [], tests)
    for clue in clues:
        outcome = tests[clue.test].outcome(clue.outcome) if clue.test in tests else None
        if outcome is None:
            looked.unclear.append((clue.test, clue.why))
        elif outcome.kind == "absent":
            looked.absent.append(clue.test)
        else:
            looked.seen.append((HeldClue(0, clue, "", ""), clue.outcome))
    _signs(looked, page)
    _checked(looked, facts, page)
    return page


class Looked(NamedTuple):
    """Everything that was looked at and made no finding, by how it came out."""

    seen: list[tuple[HeldClue, str]]
    absent: list[str]
    unclear: list[tuple[str, str]]
    tests: dict[str, Test]


def _looked(seen: CaseView) -> Looked:
    looked = Looked([], [], [], seen.knowledge.tests)
    for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True):
        if weighed.kind == "unclear":
            looked.unclear.append((held.clue.test, held.clue.why))
        elif weighed.kind == "absent":
            looked.absent.append(held.clue.test)
    for index in unusual(seen.knowledge, seen.weighing):
        looked.seen.append((seen.counted[index], seen.weighing.clues[index].outcome))
    return looked


def place_words(place: Place) -> str:
    """Without the names that Python gives to what has none."""
    return str(place._replace(symbol=None) if place.symbol and "<" in place.symbol else place)


def findings(seen: CaseView, facts: RunFacts, page: Page) -> None:
    for finding in found(seen):
        cause = seen.cause(finding)
        page.line()
        place = f"{place_words(finding.where[0]._replace(role=None))}: " if finding.where else ""
        page.say(f"{place}{cause.gloss}", 0, "", BOLD)
        if finding.where:
            _quote(finding.where[0], page)
        for index in finding.clues:
            clue = seen.counted[index].clue
            at = clue.where[0] if clue.source == "lint" and clue.where else finding.where[0] if finding.where else None
            other = at is not None and (at.file, at.line) != (finding.where[0].file, finding.where[0].line)
            page.say(f"{place_words(at)}: {clue.says}" if other and at else sentence(clue.says), 2)
            figures = _figures(clue, seen.knowledge.tests[clue.test])
            if figures:
                page.say(", ".join(figures), 2, "measured: ", DIM)
        for place_too in _others(finding.where)[:2]:
            page.say(place_words(place_too), 2, "see also ", DIM)
        if finding.cause.startswith("data.") and facts.read():
            page.say(f"{facts.read()}.", 2, "read: ", DIM)
        page.say(cause.mend, 2, "fix: ")
        page.say(cause.refute, 2, "this is wrong if: ", DIM)
        page.say(f"{finding.cause}, {percent(finding.credence)}, {word(round(finding.credence, 2))}.", 2, "", DIM)


def _figures(clue: Clue, test: Test) -> list[str]:
    """Figures that the sentence leaves out and a reader can use: the one that decides the outcome, and
    those that say where or how much."""
    told = set(clue.says.translate(dict.fromkeys(map(ord, "(),.:;"), " ")).split())
    of = test.scale.of if test.scale else ""
    held = [(name, value) for name, value in clue.measured if name == of or (type(value) is int and name in USABLE)]
    return [f"{name.replace('_', ' ')} {number(value)}" for name, value in held if str(value) not in told]


def _others(places: tuple[Place, ...]) -> list[Place]:
    """The places after the first, without those that two witnesses gave for the same line."""
    known = {(place.file, place.line): place for place in reversed(places) if place.line is not None}
    return [place for place in places[1:] if place.line is None or known[place.file, place.line] is place]


def _quote(place: Place, page: Page) -> None:
    """The source line itself, underlined."""
    if place.file is None or place.line is None:
        return
    try:
        lines = reading.text(place.file).splitlines()
    except OSError:
        return
    if 1 <= place.line <= len(lines):
        label = f"{place.line} | "
        room = page.columns - 4 - len(label)
        text = masked_text(lines[place.line - 1].strip())
        text = text if len(text) <= room else text[: room - 2] + " …"
        page.line(f"  {page.paint(label, DIM)}{text}")
        page.line(f"  {' ' * len(label)}{page.paint('~' * len(text), RED)}")


def possible(seen: CaseView, page: Page) -> None:
    """The causes worth a line, with what speaks for and against them and what would refute them."""
    stands = [item.cause for item in found(seen)]
    held = [item for item in guesses(seen) if item.cause not in stands]
    if held:
        page.head("Other causes" if stands else "Possible causes")
    for item in held:
        cause = seen.knowledge.causes[item.cause]
        page.say(f"{cause.gloss} ({item.cause}).", 2, f"{percent(item.credence):>5}  ")
        tests = seen.knowledge.tests
        clues = [(pull, seen.weighing.clues[pull.clue]) for pull in telling(seen, item.cause)[:4]]
        signs = [(f"{means(tests[held.test], held.outcome)} ({held.test})", pull.bits) for pull, held in clues]
        for label, wanted in (("for it: ", 1), ("against it: ", -1)):
            named = "; ".join(text for text, bits in signs if bits * wanted > 0)
            if named:
                page.say(named, 9, label, DIM)
        page.say(cause.refute, 9, "this is wrong if: ", DIM)


def _signs(looked: Looked, page: Page) -> None:
    """What was seen, in words, with the figure that decides."""
    if looked.seen:
        page.head("Seen")
    for held, outcome in looked.seen:
        clue, test = held.clue, looked.tests[held.clue.test]
        place = f"{place_words(clue.where[0])}: " if clue.where else ""
        text = clue.says or f"{clue.test}: {outcome}"
        of = test.scale.of if test.scale is not None else ""
        bare = (clue.test, outcome) not in SENTENCES
        figure = next((value for name, value in clue.measured if name == of and bare), None)
        measured = f", {of.replace('_', ' ')} {number(figure)}" if figure is not None else ""
        page.say(f"{place}{text.rstrip('.')} ({clue.test}{measured}).", 2, "- ")


def _in_passing(looked: Looked, page: Page, everything: bool) -> None:
    """Beside a finding the rest is mostly its consequence, and one line is enough; but not for a line of the source."""
    own = [item for item in looked.seen if everything or stands(item[0].clue)]
    _signs(looked._replace(seen=own), page)
    rest = [item for item in looked.seen if item not in own]
    if rest:
        page.line()
        tests = looked.tests
        names = "; ".join(f"{means(tests[held.clue.test], outcome)} ({held.clue.test})" for held, outcome in rest)
        page.say(f"Also seen, possibly consequences: {names}.", 0, "", DIM)


def stands(clue: Clue) -> bool:
    """Whether lint holds a line of the source for a fault, and not only for worth a look."""
    return clue.source == "lint" and clue.outcome in ("certain", "likely")


def _checked(looked: Looked, facts: RunFacts, page: Page) -> None:
    """Checks that passed, checks that could not run, and which data files were read."""
    if looked.absent:
        page.head(f"Passed ({len(looked.absent)})")
        page.say(", ".join(looked.absent), 2, "", DIM)
    if looked.unclear:
        page.head(f"Did not apply, or lacked data or time ({len(looked.unclear)})")
        by_reason: dict[str, list[str]] = {}
        for test, why in looked.unclear:
            by_reason.setdefault(why, []).append(test)
        for why, tests in by_reason.items():
            page.say(f"{', '.join(tests)}: {why}", 2, "- ", DIM)
    if facts.read():
        page.line()
        page.say(f"{facts.read(10)}.", 0, "Read: ", DIM)


def _troubles(seen: CaseView, facts: RunFacts, page: Page, everything: bool) -> None:
    broken = [held.clue for held in seen.counted if held.clue.why.startswith(FAILED)]
    for clue in broken if not everything else ():
        page.say(f"{clue.test}: {clue.why}", 2, "! ")
    for trouble in (*facts.troubles, *facts.notes):
        page.say(trouble, 2, "! ")
