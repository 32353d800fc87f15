"""Are the limits of the tests well chosen? The figures of kept runs, cut elsewhere.

A limit is good when the side on which a figure falls tells programs with a cause that the test speaks for from all
others. It is scored in bits: how well each program is told from the rest, with frequencies of the other programs. This
proposes and changes nothing: a limit is moved by whoever knows why it stands where it does.
"""

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from clew.case.weigh import on_scale
from clew.casebook.fit import usable
from clew.casebook.judge import Record
from clew.casebook.reasons import chances
from clew.casebook.tables import HEALTHY
from clew.knowledge.model import Knowledge, Scale, Test
from clew.records import exact

MOST_CUTS = 40
LEAST_PROGRAMS = 3
"""With fewer programs on either side nothing is proposed."""
WORTH = 3.0
"""Bits that another limit must gain over all programs to be worth a look."""


class Value(NamedTuple):
    """A figure of one run; `weight` shares one count between the runs of a program with a cause."""

    program: str
    value: float
    spoken: bool
    weight: float
    sound: bool = False


class Limit(NamedTuple):
    """A limit of a test and a better one. `of` and `others`: programs with a cause that the test speaks for, and
    without; bits are gains over not looking at all, summed over the programs."""

    test: str
    figure: str
    now: float
    bits: float
    better: float
    better_bits: float
    of: int
    others: int


def speaks_for(test: Test, right: tuple[str, ...], knowledge: Knowledge) -> bool:
    """Whether what the test looks for is at least twice as likely under one of the causes as in a healthy run."""
    seen = [index for index, outcome in enumerate(test.outcomes) if outcome.kind == "seen"]
    sound = sum(test.healthy[index] for index in seen)
    return any(sum(chances(test, cause, knowledge)[index] for index in seen) >= 2.0 * sound for cause in right)


def values(records: Iterable[Record], knowledge: Knowledge, test: Test) -> list[Value]:
    assert test.scale is not None
    units: dict[tuple[str, str], list[tuple[float, bool]]] = {}
    for record in usable(records):
        item = record.held.item
        for table in record.picture["clues"] if record.picture else []:
            if table["test"] == test.id:
                value = exact.restore(table["measured"]).get(test.scale.of)
                if isinstance(value, int | float) and math.isfinite(value):
                    spoken = speaks_for(test, item.right, knowledge)
                    units.setdefault((item.program, item.cause), []).append((float(value), spoken))
    return [
        Value(program, value, spoken, 1.0 / len(group), cause == HEALTHY)
        for (program, cause), group in units.items()
        for value, spoken in group
    ]


def score(held: list[Value], limit: float) -> float:
    """Bits by which the side of the limit tells programs apart, each judged with the frequencies of the others."""
    cells = {(program, side, spoken): 0.0 for program in programs(held) for side in (0, 1) for spoken in (0, 1)}
    for item in held:
        cells[item.program, int(item.value >= limit), int(item.spoken)] += item.weight
    total = {(side, spoken): math.fsum(cells[p, side, spoken] for p in programs(held)) for _, side, spoken in cells}
    bits = []
    for (program, side, spoken), weight in cells.items():
        if weight:
            rest = {(a, b): total[a, b] - cells[program, a, b] for a in (0, 1) for b in (0, 1)}
            looked = (rest[side, spoken] + 0.5) / (rest[side, 0] + rest[side, 1] + 1.0)
            class_ = rest[0, spoken] + rest[1, spoken]
            blind = (class_ + 0.5) / (sum(rest.values()) + 1.0)
            bits.append(weight * math.log2(looked / blind))
    return math.fsum(bits)


def programs(held: Iterable[Value]) -> list[str]:
    return list(dict.fromkeys(item.program for item in held))


def cuts(held: list[Value], low: float, high: float) -> list[float]:
    """Middles between neighbouring figures, at most so many, between the limits on either side."""
    seen = sorted({item.value for item in held})
    middles = [(a + b) / 2 for a, b in pairwise(seen) if low < (a + b) / 2 < high]
    stride = max(1, len(middles) // MOST_CUTS)
    return middles[::stride]


def moved(scale: Scale, now: float, to: float) -> Scale:
    return scale._replace(steps=tuple((to if limit == now else limit, outcome) for limit, outcome in scale.steps))


def alarms(test: Test, scale: Scale, held: list[Value]) -> int:
    """In how many healthy runs the test would see what it looks for."""
    seen = {outcome.name for outcome in test.outcomes if outcome.kind == "seen"}
    return sum(item.sound and on_scale(scale, item.value) in seen for item in held)


def limits(records: Iterable[Record], knowledge: Knowledge) -> list[Limit]:
    """Limits for which another value would tell more and alarm on no more healthy runs, the greatest gain first."""
    kept = usable(records)
    found = []
    for test in knowledge.tests.values():
        held = values(kept, knowledge, test) if test.scale else []
        of, others = (len(programs(item for item in held if item.spoken is side)) for side in (True, False))
        if test.scale is None or min(of, others) < LEAST_PROGRAMS:
            continue
        steps = [limit for limit, _ in test.scale.steps]
        for low, now, high in zip([-math.inf, *steps], steps, [*steps[1:], math.inf], strict=False):
            least = alarms(test, test.scale, held)
            able = [cut for cut in cuts(held, low, high) if alarms(test, moved(test.scale, now, cut), held) <= least]
            best = max(able, key=lambda cut: score(held, cut), default=now)
            found.append(Limit(test.id, test.scale.of, now, score(held, now), best, score(held, best), of, others))
    found = [limit for limit in found if limit.better_bits - limit.bits >= WORTH]
    return sorted(found, key=lambda limit: limit.bits - limit.better_bits)


def rows(found: list[Limit]) -> list[list[str]]:
    head = ["test", "figure", "limit", "bits", "better", "bits", "programs with", "without"]
    return [
        head,
        *(
            [
                limit.test,
                limit.figure,
                f"{limit.now:.4g}",
                f"{limit.bits:+.1f}",
                f"{limit.better:.4g}",
                f"{limit.better_bits:+.1f}",
                str(limit.of),
                str(limit.others),
            ]
            for limit in found
        ),
    ]
