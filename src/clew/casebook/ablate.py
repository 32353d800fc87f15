"""What each instrument and each test contributes: the same runs, weighed without it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from clew.casebook.fit import usable
from clew.casebook.judge import Record, Trial, trial_of
from clew.casebook.reweigh import INSTRUMENTS, Again, reweigh
from clew.casebook.tables import HEALTHY
from clew.knowledge.model import Knowledge

WAYS = {
    "watching": {"lint", "exam"},
    "watching, lint": {"exam"},
    "watching, exams": {"lint"},
    "all of them": set[str](),
}
"""Ways of looking at a run, by what is left out. Curves are read with every one of them."""

Table = Callable[[str], Knowledge]


class Part(NamedTuple):
    """What one instrument or test is worth: the faults detected and the faults named first thanks to it, and how many
    more false alarms there would be without it. `clear`: in how many runs it said something; `decided`: in how many the
    alarm or the cause named first hangs on it."""

    name: str
    clear: int
    detected: int
    first: int
    alarms: int
    decided: int


class Said(NamedTuple):
    alarmed: bool
    top: str
    right: bool


def ways(records: Iterable[Record], table: Table) -> dict[str, list[Trial]]:
    """Every way of looking, judged in full."""
    held = list(records)
    return {
        name: [trial_of(item, table(item.held.item.program), without) for item in held]
        for name, without in WAYS.items()
    }


def said(again: Again, right: tuple[str, ...]) -> Said:
    named = again.named
    top = named[0][0] if named else ""
    return Said(again.verdict in ("fault", "suspect"), top, top in right)


def ablate(records: Iterable[Record], table: Table, tell: Callable[[int, int], None] | None = None) -> list[Part]:
    """Instruments first, then tests, the most telling ones first."""
    totals: dict[str, Part] = {}
    held = usable(records)
    for number, record in enumerate(held, 1):
        one(record, table(record.held.item.program), totals)
        if tell is not None:
            tell(number, len(held))
    rank = {name: place for place, name in enumerate(INSTRUMENTS)}
    return sorted(
        totals.values(),
        key=lambda part: (rank.get(part.name, len(rank)), -part.first, -part.detected, -part.decided, part.name),
    )


def one(record: Record, knowledge: Knowledge, totals: dict[str, Part]) -> None:
    """Weigh one run without each thing that said something in it."""
    assert record.picture is not None
    item = record.held.item
    again = reweigh(record.picture, knowledge)
    whole = said(again, item.right)
    sources = dict.fromkeys(clue.source for clue in again.clues)
    for name in (*sources, *dict.fromkeys(clue.test for clue in again.clues)):
        less = said(reweigh(record.picture, knowledge, {name}), item.right)
        part = totals.get(name) or Part(name, 0, 0, 0, 0, 0)
        faulty = item.cause != HEALTHY
        totals[name] = part._replace(
            clear=part.clear + 1,
            detected=part.detected + faulty * (whole.alarmed - less.alarmed),
            first=part.first + faulty * (whole.right - less.right),
            alarms=part.alarms + (not faulty) * (less.alarmed - whole.alarmed),
            decided=part.decided + ((whole.alarmed, whole.top) != (less.alarmed, less.top)),
        )


def droppable(parts: Iterable[Part], least: int = 10) -> list[Part]:
    """Tests on which nothing ever hung, though they had the occasion."""
    return [part for part in parts if part.name not in INSTRUMENTS and part.clear >= least and not part.decided]


def rows(parts: list[Part]) -> list[list[str]]:
    head = ["without", "said something", "detected", "first", "false alarms", "decided"]
    body = []
    for part in parts:
        changes = [f"{-part.detected:+d}", f"{-part.first:+d}", f"{part.alarms:+d}"]
        body.append([part.name, str(part.clear), *changes, str(part.decided)])
    return [head, *body]
