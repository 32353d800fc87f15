"""Likelihoods from counts: how guesses move, what is counted once, and what a program must not learn from itself."""

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.casebook import fit
from clew.casebook.fit import Sight, best, counted, sights, tables
from clew.casebook.judge import Record, Trial
from clew.casebook.tables import HEALTHY, Fault, healthy
from clew.knowledge.base import FOLDER
from clew.knowledge.measured import LEAST, MOST, NAME, Counts, Measured, applied, mixed, moved, read, written
from clew.knowledge.schema import Faults, compile_folder

GUESSED = compile_folder(FOLDER, guessed=True)
TEST = GUESSED.tests["event_order"]
CAUSE = "train.missing_zero_grad"
OTHER = "data.class_imbalance"


@st.composite
def guess_and_counts(draw: st.DrawFn) -> tuple[tuple[float, ...], list[float]]:
    raw = draw(st.lists(st.floats(0.05, 1.0), min_size=2, max_size=6))
    seen = draw(st.lists(st.floats(0.0, 500.0), min_size=len(raw), max_size=len(raw)))
    return tuple(value / sum(raw) for value in raw), seen


@given(guess_and_counts(), st.floats(0.1, 100.0))
def test_a_mixture_is_a_distribution_between_guess_and_counts(
    pair: tuple[tuple[float, ...], list[float]], strength: float
) -> None:
    guess, seen = pair
    held = mixed(guess, seen, strength)
    assert math.isclose(sum(held), 1.0)
    assert all(LEAST - 1e-9 <= chance <= MOST + 1e-9 for chance in held)
    assert mixed(guess, [0.0] * len(guess), strength) == pytest.approx(
        [min(max(chance, LEAST), MOST) for chance in guess]
    )


def test_a_guess_counts_as_so_many_programs() -> None:
    assert mixed((0.5, 0.5), [3.0, 1.0], 4.0) == pytest.approx((5 / 8, 3 / 8))
    assert mixed((0.9, 0.1), [0.0, 1000.0], 1.0) == pytest.approx((LEAST, 1 - LEAST))


def test_rows_are_split_by_cause_and_say_where_they_come_from() -> None:
    row = next(row for row in TEST.rows if CAUSE in row.causes)
    counts = Counts({"usual": 9.0}, {"usual": 30.0}, {CAUSE: {"no_zero_grad": 3.0}}, {})
    after = moved(TEST, counts, 4.0)
    mine = next(item for item in after.rows if CAUSE in item.causes)
    assert (mine.causes, mine.pedigree, mine.why) == ((CAUSE,), "measured (n=3)", row.why)
    place = [outcome.name for outcome in TEST.outcomes].index("no_zero_grad")
    assert mine.p[place] == pytest.approx((3 + 4 * row.p[place]) / 7)
    assert {cause for item in TEST.rows for cause in item.causes} <= {c for item in after.rows for c in item.causes}
    assert after.measured == (9, 30)


def test_how_sure_a_sighting_is_moves_too() -> None:
    item = next(item for item in TEST.decisive if item.cause == CAUSE)
    after = moved(TEST, Counts({}, {}, {}, {f"{item.outcome} {CAUSE}": (6.0, 3.0)}), 4.0)
    sure = next(held.sure for held in after.decisive if held.cause == CAUSE and held.outcome == item.outcome)
    assert sure == pytest.approx((3 + 4 * item.sure) / 10)


def sight(program: str, cause: str, outcome: str) -> Sight:
    return Sight(program, cause, (cause,), {"event_order": outcome})


def test_a_program_with_a_cause_counts_once() -> None:
    seen = [sight("a", CAUSE, "no_zero_grad"), sight("a", CAUSE, "usual"), sight("b", CAUSE, "no_zero_grad")]
    seen += [sight("a", HEALTHY, "usual")] * 3 + [sight("c", OTHER, "usual"), sight("d", OTHER, "no_zero_grad")]
    counts = counted(seen, GUESSED)["event_order"]
    assert counts.causes[CAUSE] == {"no_zero_grad": 1.5, "usual": 0.5}
    assert counts.healthy == {"usual": 1.0}
    assert counts.otherwise == {"usual": 1.0, "no_zero_grad": 1.0}
    assert set(counts.causes) == {CAUSE}
    assert counts.decisive[f"no_zero_grad {CAUSE}"] == (2.5, 1.5)


def test_causes_without_anything_seen_go_with_the_rest() -> None:
    counts = counted([sight("c", OTHER, "usual")], GUESSED)["event_order"]
    assert counts.causes == {}
    assert counts.otherwise == {"usual": 1.0}


def test_a_change_that_has_two_names_is_not_counted_against_either() -> None:
    double = Sight("a", OTHER, (OTHER, CAUSE), {"event_order": "no_zero_grad"})
    counts = counted([double], GUESSED)["event_order"]
    assert not counts.otherwise
    assert not counts.causes


def test_what_is_odd_is_never_measured_to_be_rarer_than_guessed() -> None:
    place = [outcome.name for outcome in TEST.outcomes].index("no_zero_grad")
    calm = moved(TEST, Counts({"usual": 500.0}, {"usual": 500.0}, {}, {}), 1.0)
    assert (calm.healthy[place], calm.otherwise[place]) == (TEST.healthy[place], TEST.otherwise[place])
    odd = moved(TEST, Counts({"no_zero_grad": 5.0, "usual": 5.0}, {}, {}, {}), 1.0)
    assert odd.healthy[place] == pytest.approx((5 + TEST.healthy[place]) / 11)


@given(st.data())
def test_making_room_for_the_odd_keeps_a_distribution(data: st.DataObject) -> None:
    test = GUESSED.tests[data.draw(st.sampled_from(sorted(GUESSED.tests)))]
    names = [outcome.name for outcome in test.outcomes]
    tally = data.draw(st.dictionaries(st.sampled_from(names), st.floats(0.1, 500.0)))
    after = moved(test, Counts(tally, tally, {}, {}), data.draw(st.sampled_from([2.0, 16.0])))
    for row, guess in ((after.healthy, test.healthy), (after.otherwise, test.otherwise)):
        assert math.isclose(sum(row), 1.0, abs_tol=1e-9)
        assert all(
            now >= before - 1e-9
            for now, before, outcome in zip(row, guess, test.outcomes, strict=True)
            if outcome.kind == "seen"
        )


def test_the_best_number_is_chosen_without_the_program_that_it_is_for() -> None:
    assert best({1.0: {"a": 1.0, "b": 1.0, "c": 5.0}, 2.0: {"a": 2.0, "b": 2.0, "c": 0.0}}) == 1.0
    assert best({1.0: {"a": 1.0, "b": 1.0, "c": 5.0}, 2.0: {"a": 2.0, "b": 2.0, "c": 0.0}}, without="c") == 2.0


def record(program: str, cause: str, outcome: str) -> Record:
    item = healthy(program) if cause == HEALTHY else Fault(f"{program}.x", program, cause)
    clue: dict[str, Any] = {"test": "event_order", "outcome": outcome, "measured": {}}
    picture = {"clues": [clue], "steps": 9, "exit": 0, "seconds": 1.0}
    return Record(Trial(item, 0, "", "worse", None, None), picture)


def some_records(first: str) -> list[Record]:
    rest = [record(name, CAUSE, "no_zero_grad") for name in ("b", "c", "d")]
    return [record("a", CAUSE, first), *rest, *(record(name, HEALTHY, "usual") for name in "abcd")]


def test_a_program_learns_nothing_from_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "STRENGTHS", (4.0,))
    one, whole, choice = tables(some_records("no_zero_grad"), GUESSED)
    other, changed, _ = tables(some_records("usual"), GUESSED)
    assert one["a"] == other["a"]
    assert one["b"] != other["b"]
    assert whole != changed
    assert (whole.programs, whole.runs) == (4, 8)
    assert whole.strength == choice.strength == 4.0


def test_unclear_clues_and_failed_runs_are_not_counted() -> None:
    held = [record("a", CAUSE, "unclear"), record("b", CAUSE, "usual")]
    assert held[1].picture is not None
    held[1].picture["error"] = "Traceback"
    assert [item.outcomes for item in sights(held, GUESSED)] == [{}]
    assert fit.usable([held[1], Record(held[0].held)]) == []


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    _, table, _ = tables(some_records("usual"), GUESSED)
    (tmp_path / NAME).write_text(written(table))
    faults = Faults()
    assert read(faults, str(tmp_path), GUESSED) == table
    assert faults.found == []
    assert read(faults, str(tmp_path / "nothing"), GUESSED) is None


def test_the_table_enters_the_knowledge_base(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(FOLDER, folder)
    counts = Counts({"usual": 9.0}, {}, {CAUSE: {"no_zero_grad": 3.0}}, {})
    table = Measured(4.0, 0.7, 3, 12, {"event_order": counts})
    (folder / NAME).write_text(written(table))
    assert compile_folder(str(folder)) == applied(GUESSED, table)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[no_such_test]\nhealthy = { a = 1 }", "no_such_test: (entry): is not a known test"),
        (f"[event_order]\n'{CAUSE}' = {{ nothing_like_it = 1 }}", f"{CAUSE}: should hold a count above 0"),
        ("[event_order]\nhealthy = { usual = -1 }", "healthy: should hold a count above 0"),
        ("[event_order]\n'no.cause' = { usual = 1 }", "no.cause: is not a known cause"),
        ("[event_order.decisive]\n'x y' = [1, 2]", "should be a decisive outcome with two counts"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, says: str) -> None:
    head = "[fit]\nstrength = 4\ntemper = 1\nprograms = 3\nruns = 9\n"
    (tmp_path / NAME).write_text(f"{head}{text}\n")
    faults = Faults()
    read(faults, str(tmp_path), GUESSED)
    assert any(says in fault for fault in faults.found)
