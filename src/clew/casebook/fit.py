"""From kept runs to measured likelihoods.

A program with a cause is the unit: three spellings of one fault in one program, or three seeds of a healthy one, are
hardly independent and count as one together. A cause that a test names is counted by itself, any other among the rest.
How much an expert's guess weighs, and to which power credences are raised, is chosen by how well each program is judged
with what was measured on the others.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from clew.case.weigh import read_outcome
from clew.casebook.judge import Record, Trial, trial_of
from clew.casebook.reweigh import clue_of, reweigh
from clew.casebook.tables import HEALTHY
from clew.knowledge.measured import Counts, Measured, Tally, applied
from clew.knowledge.model import Knowledge, Test
from clew.records.clue import UNCLEAR

STRENGTHS = (2.0, 4.0, 8.0, 16.0, 32.0)
TEMPERS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4)
Scores = dict[str, float]
LEAST_PROGRAMS = 3
"""With fewer there is nothing to learn a strength from."""


class Sight(NamedTuple):
    """What the tests showed in one run, and what was true of it."""

    program: str
    cause: str
    right: tuple[str, ...]
    outcomes: dict[str, str]


class Choice(NamedTuple):
    """The two numbers that are chosen, with the scores they were chosen by: the negative Brier score of the cause named
    first, as means over the programs."""

    strength: float
    temper: float
    strengths: dict[float, float]
    tempers: dict[float, float]


def usable(records: Iterable[Record]) -> list[Record]:
    return [held for held in records if held.picture is not None and not held.picture.get("error")]


def sights(records: Iterable[Record], knowledge: Knowledge) -> list[Sight]:
    found = []
    for held in usable(records):
        outcomes = {}
        for table in held.picture["clues"] if held.picture else []:
            if table["outcome"] != UNCLEAR and table["test"] in knowledge.tests:
                outcome, _ = read_outcome(knowledge, clue_of(table, knowledge))
                outcomes[table["test"]] = outcome
        item = held.held.item
        found.append(Sight(item.program, item.cause, item.right, {k: v for k, v in outcomes.items() if v != UNCLEAR}))
    return found


def counted(seen: Iterable[Sight], knowledge: Knowledge) -> dict[str, Counts]:
    """The counts of every test that showed anything."""
    units: dict[tuple[str, str], list[Sight]] = {}
    for sight in seen:
        units.setdefault((sight.program, sight.cause), []).append(sight)
    found: dict[str, Counts] = {}
    for group in units.values():
        for key in dict.fromkeys(name for sight in group for name in sight.outcomes):
            count(found.setdefault(key, Counts({}, {}, {}, {})), knowledge.tests[key], group)
    return {key: rounded(counts) for key, counts in found.items()}


def count(counts: Counts, test: Test, group: list[Sight]) -> None:
    """Enter one program with one cause: one count, shared out among the outcomes that its runs had."""
    runs = [sight for sight in group if test.id in sight.outcomes]
    tally: Tally = {}
    for sight in runs:
        tally[sight.outcomes[test.id]] = tally.get(sight.outcomes[test.id], 0.0) + 1.0 / len(runs)
    named = {cause for row in test.rows for cause in row.causes}
    cause = group[0].cause
    if cause == HEALTHY:
        add(counts.healthy, tally)
    elif cause in named:
        add(counts.causes.setdefault(cause, {}), tally)
    elif named.isdisjoint(name for sight in runs for name in sight.right):
        add(counts.otherwise, tally)
    for item in test.decisive:
        for sight in runs:
            others = {f"{name}={outcome}" for name, outcome in sight.outcomes.items()}
            if sight.outcomes[test.id] == item.outcome and item.stands(others):
                key = f"{item.outcome} {item.cause}"
                times, right = counts.decisive.get(key, (0.0, 0.0))
                part = 1.0 / len(runs)
                counts.decisive[key] = (times + part, right + part * (item.cause in sight.right))


def add(to: Tally, tally: Tally) -> None:
    for name, part in tally.items():
        to[name] = to.get(name, 0.0) + part


def rounded(counts: Counts) -> Counts:
    """To the two places that are written, so that a table that was written and read is the table."""

    def short(tally: Tally) -> Tally:
        return {name: round(value, 2) for name, value in tally.items() if round(value, 2) > 0}

    causes = {cause: short(tally) for cause, tally in counts.causes.items()}
    decisive = {key: (round(times, 2), round(right, 2)) for key, (times, right) in counts.decisive.items()}
    return Counts(short(counts.healthy), short(counts.otherwise), causes, decisive)


def tables(records: list[Record], guesses: Knowledge) -> tuple[dict[str, Knowledge], Measured, Choice]:
    """For each program the knowledge base measured without it; the whole table; and how its two numbers were chosen.

    The score of a program has no part in the choice of the numbers that it is judged with.
    """
    held = usable(records)
    seen = sights(held, guesses)
    programs = list(dict.fromkeys(sight.program for sight in seen))
    without = {program: counted(others(seen, program), guesses) for program in programs}

    def measured(strength: float, program: str) -> Knowledge:
        return applied(guesses, Measured(strength, 1.0, len(programs) - 1, len(seen), without[program]))

    by_strength = {
        strength: tempered(held, {program: measured(strength, program) for program in programs}, 1.0)
        for strength in STRENGTHS
    }
    plain = {program: measured(best(by_strength, program), program) for program in programs}
    by_temper = {temper: tempered(held, plain, temper) for temper in TEMPERS}
    judged = {
        program: table._replace(priors=table.priors._replace(temper=best(by_temper, program)))
        for program, table in plain.items()
    }
    choice = Choice(best(by_strength), best(by_temper), means(by_strength), means(by_temper))
    whole = Measured(choice.strength, choice.temper, len(programs), len(seen), counted(seen, guesses))
    return judged, whole, choice


def others(seen: list[Sight], program: str) -> list[Sight]:
    return [sight for sight in seen if sight.program != program]


def best(by: dict[float, Scores], without: str = "") -> float:
    """The number with the highest score over the programs, one left out; the middle one where there are too few."""
    if min((len(held) for held in by.values()), default=0) < LEAST_PROGRAMS:
        return 1.0
    return max(by, key=lambda number: sum(score for program, score in by[number].items() if program != without))


def means(by: dict[float, Scores]) -> dict[float, float]:
    return {number: sum(held.values()) / len(held) if held else 0.0 for number, held in by.items()}


def tempered(records: list[Record], tables: dict[str, Knowledge], temper: float) -> Scores:
    """By program: how near the credence of the cause named first comes to whether it is the true one (the Brier score,
    negative). Healthy runs count as much as faulty ones together: there is no way to tell how often each is met."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for held in records:
        item = held.held.item
        knowledge = tables[item.program]
        knowledge = knowledge._replace(priors=knowledge.priors._replace(temper=temper))
        assert held.picture is not None
        name, credence, _ = reweigh(held.picture, knowledge).named[0]
        pair = found.setdefault(item.program, ([], []))
        pair[item.cause == HEALTHY].append(-((credence - (name in item.right)) ** 2))
    return {
        program: sum(sum(side) / len(side) for side in pair if side) / sum(1 for side in pair if side)
        for program, pair in found.items()
    }


def judge_all(records: Iterable[Record], table: Callable[[str], Knowledge]) -> list[Trial]:
    """Every record under the table of its program."""
    return [trial_of(held, table(held.held.item.program)) for held in records]
