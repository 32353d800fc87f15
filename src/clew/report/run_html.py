"""A run as one self-contained page: no scripts, nothing fetched, every text escaped by the template engine.

The order is that of a colleague's report: the verdict, the fault with its line, what else it may be, what to look at
next, the curves, and last what was looked at and what could not be.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from clew.case.verdict import unusual
from clew.knowledge.model import Scale, Test
from clew.records.case import HeldClue
from clew.records.clue import UNCLEAR, Clue
from clew.records.masked import masked_text
from clew.records.place import Place
from clew.records.trace import Series
from clew.report.html import environment
from clew.report.panels import panels
from clew.report.plots import HEIGHT, WIDTH
from clew.report.run_page import RunFacts
from clew.report.terminal import sentence
from clew.report.text import number, seconds
from clew.report.view import CaseView, found, guesses, telling

AROUND = 2
MOST_QUOTES = 2
MOST_CHOICES = 3
LONGEST_LINE = 300
MOST_LINES = 8
"""Of a statement that runs over many lines, this many are quoted."""
UNPRINTABLE = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
"""What HTML forbids, what cannot be written as UTF-8, and what turns the direction of text that follows."""

Sources = Callable[[str], list[str] | None]


class Witness(NamedTuple):
    """A clue that speaks for an explanation, with positive bits, or against it."""

    number: int
    test: str
    outcome: str
    bits: float


class Quoted(NamedTuple):
    number: int
    indent: str
    text: str
    hit: bool


def run_html(seen: CaseView, facts: RunFacts, series: dict[tuple[str, str], Series], source: Sources) -> str:
    """The page. `source` gives the lines of a file as it was when the run began, None when it is not at hand."""
    import re

    drawn, not_drawn = panels(seen, series)
    made = environment()
    made.globals.update(width=WIDTH, height=HEIGHT)
    shown = guesses(seen)
    rest = 1.0 - sum(item.credence for item in shown) - seen.weighing.unknown
    text = made.get_template("run.html.j2").render(
        facts=facts,
        ended=_ended(facts, seen),
        verdict=seen.verdict,
        findings=_findings(seen, facts, source),
        hypotheses=_hypotheses(seen),
        unknown=seen.weighing.unknown,
        rest=max(0.0, rest),
        rest_count=len(seen.weighing.shares) - len(shown),
        advice=seen.advice,
        choices=[(choice, seen.knowledge.tests[choice.test]) for choice in seen.choices[:MOST_CHOICES]],
        plots=drawn,
        not_drawn=not_drawn,
        looks=_looks(seen),
        warnings=(*facts.troubles, *facts.notes, *seen.case.remarks),
        run_facts=_run_facts(facts, seen, series),
    )
    return re.sub(UNPRINTABLE, "\N{REPLACEMENT CHARACTER}", text)


def _ended(facts: RunFacts, seen: CaseView) -> str:
    parts = [f"{facts.crashed_at}: {facts.crash} ({facts.crash_told})"] if facts.crash else []
    parts += [f"{facts.made} in {seconds(facts.seconds)}"]
    if facts.processes > max(1, len(facts.trainings)):
        parts.append(f"{facts.processes} processes")
    parts.append(f"ended with status {facts.status}" if facts.status else "ended normally")
    parts.append(f"{len(seen.counted)} checks")
    return " · ".join(parts)


def _findings(seen: CaseView, facts: RunFacts, source: Sources) -> list[dict[str, Any]]:
    rows = []
    placed: set[int] = set()
    for finding in found(seen):
        cause = seen.cause(finding)
        held = [seen.counted[index] for index in finding.clues]
        tests = [seen.knowledge.tests[item.clue.test] for item in held]
        lines = [place for place in finding.where if place.file is not None and place.line is not None]
        rows.append(
            {
                "id": finding.cause,
                "read": facts.read() if finding.cause.startswith("data.") else "",
                "credence": finding.credence,
                "place": _short(finding.where[0]) if finding.where else "",
                "gloss": cause.gloss,
                "quotes": [
                    {"place": _short(place), "symbol": place.symbol, "lines": quoted(place, source)}
                    for place in lines[:MOST_QUOTES]
                ],
                "also": [str(place) for place in finding.where if place not in lines[:MOST_QUOTES]],
                "clues": [
                    {
                        "number": item.number,
                        "anchor": item.number not in placed,
                        "test": item.clue.test,
                        "outcome": seen.weighing.clues[index].outcome,
                        "says": said(item.clue.says or test.asks),
                        "figures": _figures(item.clue, test),
                    }
                    for index, item, test in zip(finding.clues, held, tests, strict=True)
                ],
                "mend": cause.mend,
                "refute": cause.refute,
                "cannot_tell": _limits_of(held, tests),
            }
        )
        placed.update(item.number for item in held)
    return rows


def _limits_of(held: list[HeldClue], tests: list[Test]) -> list[str]:
    """What the tests behind a finding cannot tell; where the run itself showed it, reading the source adds no doubt."""
    ran = any(item.clue.source != "lint" for item in held)
    pairs = zip(held, tests, strict=True)
    return list(dict.fromkeys(test.cannot_tell for item, test in pairs if not ran or item.clue.source != "lint"))


def said(text: str) -> str:
    """A sentence, but `cross_entropy` at its head keeps its spelling."""
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    made = sentence(text)
    return text[:1] + made[1:] if not first.rstrip(",:").isalpha() else made


def _short(place: Place) -> str:
    return f"{place.file}:{place.line}" if place.file is not None and place.line is not None else str(place)


def quoted(place: Place, source: Sources) -> list[Quoted]:
    """The lines at a place with those around it; empty when the source is not at hand or is shorter than that."""
    if place.file is None or place.line is None:
        return []
    lines = source(place.file)
    if lines is None or not 1 <= place.line <= len(lines):
        return []
    last = min(max(place.end_line or place.line, place.line), place.line + MOST_LINES - 1)
    first_shown = max(1, place.line - AROUND)
    shown = [masked_text(line.rstrip().expandtabs(4)) for line in lines[first_shown - 1 : last + AROUND]]
    while shown and not shown[-1].strip() and first_shown + len(shown) - 1 > last:
        shown.pop()
    margin = min((len(line) - len(line.lstrip()) for line in shown if line.strip()), default=0)
    rows = []
    for offset, line in enumerate(shown):
        text = line[margin:]
        bare = text.lstrip()
        if len(bare) > LONGEST_LINE:
            bare = bare[:LONGEST_LINE] + " …"
        where = first_shown + offset
        rows.append(Quoted(where, " " * (len(text) - len(text.lstrip())), bare, place.line <= where <= last))
    return rows


def _figures(clue: Clue, test: Test) -> list[dict[str, str]]:
    """What was measured, and for the number that decides the outcome where the limits lie."""
    return [
        {
            "name": name.replace("_", " "),
            "value": number(value),
            "scale": _limits(test.scale) if test.scale is not None and test.scale.of == name else "",
        }
        for name, value in clue.measured
    ]


def _limits(scale: Scale) -> str:
    below = [f"{outcome} below {limit:g}" for limit, outcome in scale.steps]
    return ", ".join([*below, f"{scale.above} from there on"])


def _hypotheses(seen: CaseView) -> list[dict[str, Any]]:
    own = {item.id: item for item in seen.case.own}
    rows = []
    for item in guesses(seen):
        cause = seen.knowledge.causes.get(item.cause)
        pulls = [
            Witness(
                seen.counted[pull.clue].number,
                seen.counted[pull.clue].clue.test,
                seen.weighing.clues[pull.clue].outcome,
                pull.bits,
            )
            for pull in telling(seen, item.cause)
        ]
        rows.append(
            {
                "id": item.cause,
                "part": {"subtle": "the subtle one", "null": "the null", "own": "yours"}.get(item.part, ""),
                "credence": item.credence,
                "says": cause.gloss if cause else own[item.cause].says,
                "check": cause.refute if cause else own[item.cause].check,
                "supports": [pull for pull in pulls if pull.bits > 0][:4],
                "contradicts": [pull for pull in pulls if pull.bits < 0][:4],
            }
        )
    return rows


def _looks(seen: CaseView) -> dict[str, list[dict[str, Any]]]:
    """Every observation that made no finding, by how it came out."""
    groups: dict[str, list[dict[str, Any]]] = {"seen": [], "absent": [], UNCLEAR: []}
    rest = [index for index, weighed in enumerate(seen.weighing.clues) if weighed.kind != "seen"]
    for index in (*unusual(seen.knowledge, seen.weighing), *rest):
        held, weighed = seen.counted[index], seen.weighing.clues[index]
        clue, test = held.clue, seen.knowledge.tests.get(held.clue.test)
        outcome = test.outcome(weighed.outcome) if test else None
        says = clue.why if weighed.kind == UNCLEAR else clue.says or (outcome.means if outcome else "")
        groups[weighed.kind].append(
            {
                "number": held.number,
                "test": clue.test,
                "kind": weighed.kind,
                "outcome": weighed.outcome,
                "says": said(says) if says else "",
                "figures": [f"{name.replace('_', ' ')} {number(value)}" for name, value in clue.measured],
                "where": [str(place) for place in clue.where[:2]],
            }
        )
    return groups


def _run_facts(facts: RunFacts, seen: CaseView, series: dict[tuple[str, str], Series]) -> list[tuple[str, str]]:
    readings = sum(len(item.steps) for item in series.values())
    return [
        ("script", facts.script),
        ("run", seen.case.id),
        ("kept in", facts.folder),
        ("started", f"{seen.case.opened_at[:16].replace('T', ' ')} UTC"),
        ("optimiser steps", f"{facts.steps:,}"),
        ("took", seconds(facts.seconds)),
        ("processes", str(facts.processes)),
        ("exit status", str(facts.status)),
        ("kind of subject", seen.case.domain),
        ("recorded", f"{readings:,} numbers in {len(series):,} series"),
        *(("data read", text) for text in [facts.read(20)] if text),
        *(("exams", text) for text in [facts.exams] if text),
    ]
