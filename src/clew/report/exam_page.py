"""What `clew exam` prints: the plan with its cost, each exam as it ends, and at the end what follows from them."""

from typing import Any, NamedTuple

from clew.records.clue import UNCLEAR, Clue
from clew.report.html import environment
from clew.report.run_page import RunFacts, body, findings
from clew.report.terminal import VERDICT_COLOURS, sentence
from clew.report.text import BOLD, DIM, Page, number, seconds
from clew.report.view import CaseView, guesses

MOST_NAMES = 6


class PlanLine(NamedTuple):
    """One exam of a plan."""

    name: str
    seconds: float
    asks: str
    why: str = ""


class PlanFacts(NamedTuple):
    name: str
    budget: float
    step: float
    first: tuple[PlanLine, ...]
    then: tuple[PlanLine, ...]
    skipped: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()


class ExamFacts(NamedTuple):
    """What was made, apart from what it means. `kept` is a folder with files for a person to look at."""

    name: str
    made: int
    seconds: float
    ended: str
    skipped: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    kept: str = ""
    only: tuple[str, ...] = ()  # the exams that were asked for by name


def catalogue(lines: list[PlanLine], page: Page) -> Page:
    """All exams there are."""
    page.say(f"{len(lines)} exams, with the time each takes on a small network.", 0, "", DIM)
    _rows(lines, page)
    return page


def plan_page(plan: PlanFacts, page: Page) -> Page:
    page.say(plan.name, 0, "", BOLD)
    for note in plan.notes:
        page.say(sentence(note), 2, "! ")
    if plan.step == plan.step:
        step = f"{1000 * plan.step:.3g} ms" if plan.step < 1 else f"{plan.step:.2g} s"
        page.say(f"One training step takes {step}; the budget is {seconds(plan.budget)}.", 0, "", DIM)
    else:
        page.say(f"The time of a step could not be measured; the budget is {seconds(plan.budget)}.", 0, "", DIM)
    if plan.first:
        total = sum(line.seconds for line in plan.first)
        page.head(f"Planned, at most {_time(total)}")
        _rows(plan.first, page)
    if plan.then:
        total = sum(line.seconds for line in plan.then)
        page.head(f"Then the most informative per second, out of {_time(total)} in all")
        page.say(", ".join(f"{line.name} {_time(line.seconds)}" for line in plan.then), 2)
    skipped_lines(plan.skipped, page)
    return page


def _rows(lines: "tuple[PlanLine, ...] | list[PlanLine]", page: Page) -> None:
    width = max((len(line.name) for line in lines), default=0)
    for line in lines:
        page.say(line.asks, 2, f"{line.name.ljust(width)}  {_time(line.seconds):>6}  ")


def _time(value: float) -> str:
    if value < 0.05:
        return "<0.1 s"
    return f"{value:.1f} s" if value < 9.95 else seconds(value)


def skipped_lines(skipped: tuple[tuple[str, str], ...], page: Page) -> None:
    """What was left out, by its reason."""
    by_reason: dict[str, list[str]] = {}
    for name, why in skipped:
        by_reason.setdefault(why, []).append(name)
    if by_reason:
        page.head(f"Not run ({len(skipped)})")
    for why, names in by_reason.items():
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        page.say(f"{', '.join(names[:MOST_NAMES])}{more}: {why}.", 2, "- ", DIM)


def ended_line(name: str, clue: Clue, took: float, page: Page) -> Page:
    """One line for an exam that has ended."""
    said = f"unclear ({clue.why})" if clue.outcome == UNCLEAR else clue.outcome
    page.say(said, 2, f"{name:<26}{_time(took):>6}  ")
    return page


def exam_page(seen: CaseView, facts: ExamFacts, page: Page) -> Page:
    page.line(page.paint("─" * min(page.columns, 80), DIM))
    verdict = seen.verdict
    count = f"{facts.made} exam{'s' * (facts.made != 1)} in {_time(facts.seconds)}"
    page.line(f"{page.paint(verdict.shown, VERDICT_COLOURS[verdict.word], BOLD)}  {facts.name}: {count}")
    about = RunFacts(facts.name, 0, facts.seconds, 0, 1, "", facts.notes)
    if facts.only:
        _asked(seen, facts.only, page)
        findings(seen, about, page)
    else:
        body(seen, about, page, everything=True)
    skipped_lines(facts.skipped, page)
    page.line()
    page.say(sentence(facts.ended), 0, "", DIM)
    if facts.kept:
        page.say(f"Saved for inspection: {facts.kept}.", 0, "", DIM)
    return page


def _asked(seen: CaseView, only: tuple[str, ...], page: Page) -> None:
    """What the exams that were asked for showed, and nothing else."""
    for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True):
        clue = held.clue
        if clue.test in only:
            figures = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in clue.measured)
            page.say(f"{weighed.outcome}. {sentence(clue.says or clue.why)}", 2, f"{clue.test}: ")
            if figures:
                page.say(sentence(figures), 4, "", DIM)
            for place in clue.where[:2]:
                page.say(str(place), 4, "at ", DIM)


def exam_html(seen: CaseView, facts: ExamFacts) -> str:
    """A part of a page, for a notebook: no style sheet of its own that could colour the rest of it."""
    rows: list[dict[str, Any]] = []
    order = {"seen": 0, "absent": 1, UNCLEAR: 2}
    for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True):
        clue = held.clue
        figures = ", ".join(f"{name.replace('_', ' ')} {number(value)}" for name, value in clue.measured)
        says = clue.why if weighed.kind == UNCLEAR else clue.says
        rows.append({"kind": weighed.kind, "test": clue.test, "outcome": weighed.outcome, "says": says, "of": figures})
    rows.sort(key=lambda row: order[row["kind"]])
    return (
        environment()
        .get_template("exam.html.j2")
        .render(
            facts=facts,
            verdict=seen.verdict,
            findings=[(finding, seen.cause(finding)) for finding in seen.weighing.findings],
            guesses=[(item, seen.knowledge.causes[item.cause]) for item in guesses(seen)]
            if seen.verdict.word != "healthy"
            else [],
            rows=rows,
        )
    )
