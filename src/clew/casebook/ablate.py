"""What each instrument and each test contributes: the same runs, weighed without it."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from multiprocessing import Pool
from typing import NamedTuple

from clew.case.weigh import Weighed
from clew.casebook.fit import usable
from clew.casebook.judge import Record, Trial, trial_of
from clew.casebook.reweigh import INSTRUMENTS, Again, Picture, reweigh
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
    alarm or the cause named first hangs on it; `alone`: in how many that is so when its instrument is all that looked;
    `named`: in how many the true cause is one that the test names."""

    name: str
    clear: int
    detected: int
    first: int
    alarms: int
    decided: int
    named: int = 0
    alone: int = 0


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


def ablate(
    records: Iterable[Record], table: Table, jobs: int = 1, tell: Callable[[int, int], None] | None = None
) -> list[Part]:
    """Instruments first, then tests, the most telling ones first."""
    held = usable(records)
    pairs = [(record, table(record.held.item.program)) for record in held]
    totals: dict[str, Part] = {}
    with Pool(jobs) if jobs > 1 else nullcontext() as pool:
        found = pool.imap_unordered(one, pairs) if pool is not None else map(one, pairs)
        for number, parts in enumerate(found, 1):
            for part in parts:
                before = totals.get(part.name)
                totals[part.name] = part if before is None else together(before, part)
            if tell is not None:
                tell(number, len(held))
    rank = {name: place for place, name in enumerate(INSTRUMENTS)}
    return sorted(
        totals.values(),
        key=lambda part: (rank.get(part.name, len(rank)), -part.first, -part.detected, -part.decided, part.name),
    )


def together(one: Part, other: Part) -> Part:
    return Part(one.name, *(a + b for a, b in zip(one[1:], other[1:], strict=True)))


def one(pair: tuple[Record, Knowledge]) -> list[Part]:
    """Weigh one run without each thing that said something in it."""
    record, knowledge = pair
    assert record.picture is not None
    item = record.held.item
    again = reweigh(record.picture, knowledge)
    whole = said(again, item.right)
    faulty = item.cause != HEALTHY
    parts = []
    named = {*item.right}
    by = {held.test: clue.source for held, clue in zip(again.weighing.clues, again.clues, strict=True) if odd(held)}
    for name in dict.fromkeys([*(clue.source for clue in again.clues), *(clue.test for clue in again.clues)]):
        less = said(reweigh(record.picture, knowledge, {name}), item.right)
        parts.append(
            Part(
                name,
                clear=1,
                detected=faulty * (whole.alarmed - less.alarmed),
                first=faulty * (whole.right - less.right),
                alarms=(not faulty) * (less.alarmed - whole.alarmed),
                decided=int((whole.alarmed, whole.top) != (less.alarmed, less.top)),
                named=int(name in knowledge.tests and not named.isdisjoint(knowledge.tests[name].discriminates())),
                alone=int(name in by and decides_alone(record.picture, knowledge, name, by[name])),
            )
        )
    return parts


def odd(held: Weighed) -> bool:
    return held.kind == "seen" and held.weight > 0.0


def decides_alone(picture: Picture, knowledge: Knowledge, test: str, instrument: str) -> bool:
    """Whether a test decides for somebody who has nothing but its instrument: a source that was not run yet, a log."""
    rest = {name for name in INSTRUMENTS if name != instrument}
    whole, less = (reweigh(picture, knowledge, without) for without in (rest, {*rest, test}))
    return (whole.verdict, whole.named[0][0]) != (less.verdict, less.named[0][0])


def idle(parts: Iterable[Part]) -> tuple[list[str], list[str]]:
    """Tests on which nothing ever hung, not even when no other instrument looked: those that met causes that they name,
    and those that never did."""
    found = [part for part in parts if part.name not in INSTRUMENTS and not part.decided and not part.alone]
    met = [part.name for part in found if part.named]
    return met, [part.name for part in found if not part.named]


def rows(parts: list[Part]) -> list[list[str]]:
    head = ["without", "said something", "detected", "first", "false alarms", "decided", "decided alone"]
    body = []
    for part in parts:
        changes = [f"{-part.detected:+d}", f"{-part.first:+d}", f"{part.alarms:+d}"]
        body.append([part.name, str(part.clear), *changes, str(part.decided), str(part.alone)])
    return [head, *body]
