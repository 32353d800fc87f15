"""Limits of tests, cut elsewhere on the figures of kept runs."""

from typing import Any

from clew.casebook.judge import Record, Trial
from clew.casebook.limits import Value, cuts, limits, rows, score, speaks_for
from clew.casebook.tables import Fault, healthy
from clew.knowledge.base import load

KNOWN = load()
TEST = KNOWN.tests["overfit_one_batch"]
CAUSE = next(cause for row in TEST.rows for cause in row.causes if speaks_for(TEST, (cause,), KNOWN))


def record(program: str, value: float, faulty: bool) -> Record:
    item = Fault(f"{program}.x", program, CAUSE) if faulty else healthy(program)
    figure = TEST.scale.of if TEST.scale else ""
    clue: dict[str, Any] = {"test": TEST.id, "outcome": "fits", "measured": {figure: value}}
    return Record(Trial(item, 0, "", "worse", None, None), {"clues": [clue], "steps": 9, "exit": 0, "seconds": 1.0})


def test_a_limit_that_parts_programs_scores_and_one_that_does_not_does_not() -> None:
    held = [Value(f"p{number}", float(number), number >= 5, 1.0) for number in range(10)]
    assert score(held, 4.5) > 5.0
    assert score(held, 100.0) <= 0.0
    assert 4.5 in cuts(held, 1.0, 8.0)
    assert not cuts(held, 20.0, 30.0)


def test_a_better_limit_is_proposed_only_where_healthy_runs_stay_quiet() -> None:
    first = min(limit for limit, _ in TEST.scale.steps) if TEST.scale else 0.0
    sound = [record(f"p{number}", first * 0.01, False) for number in range(8)]
    faulty = [record(f"p{number}", first * 0.5, True) for number in range(8)]
    found = [limit for limit in limits([*sound, *faulty], KNOWN) if limit.now == first]
    assert found
    assert first * 0.01 < found[0].better < first * 0.5
    assert found[0].better_bits > found[0].bits
    assert rows(found)[1][0] == TEST.id
    mixed = [record(f"p{number}", first * 0.5, number % 2 == 0) for number in range(8)]
    assert not limits(mixed, KNOWN)
