"""Weighing kept runs again: the same answer as clew gave, without running; reasons, first steps, worth of a part."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.casebook import ablate, fit, pages
from clew.casebook.figures import curve, figures, matrix, to_json
from clew.casebook.first import FirstSteps
from clew.casebook.judge import Record, Trial, shown, trial_of
from clew.casebook.reasons import first_step, lacking, reason
from clew.casebook.reweigh import reweigh
from clew.casebook.tables import Fault, Program, healthy
from clew.casebook.work import Options, picture
from clew.knowledge.base import load
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.records.place import Place
from clew.report.view import to_json as case_json
from clew.report.view import view

KNOWN = load()
TESTS = sorted(name for name, test in KNOWN.tests.items() if test.by in ("observe", "log", "exam"))
FAULT = Fault("p.x", "p", "loss.double_softmax", (), "train.py", "a", "b")


def clue(test: str, outcome: str, line: int = 0, **measured: float) -> Clue:
    held = KNOWN.tests[test]
    where = (Place(file="train.py", line=line),) if line else ()
    return Clue(test, outcome, tuple(sorted(measured.items())), where, reads=(held.reads,), source=held.by)


def answer(clues: list[Clue], steps: int = 100, status: int = 0) -> dict[str, Any]:
    """What `clew run --json` says of these clues."""
    held = tuple(HeldClue(index + 1, item, "", "") for index, item in enumerate(clues))
    case = Case("", "", "", "general", "routine", "", "", "", (), held, (), (), (), None)
    table = case_json(view(KNOWN, case, by_hand=False))
    table["run"] |= {"steps": steps, "exit": status}
    return table


def kept(clues: list[Clue], **how: int) -> dict[str, Any]:
    """The picture of such a run, as it comes back from the disk."""
    done = subprocess.CompletedProcess(["x"], 0, "", "")
    return json.loads(json.dumps(picture(answer(clues, **how), done, 2.0, FirstSteps(""))))  # type: ignore[no-any-return]


@st.composite
def some_clues(draw: st.DrawFn) -> list[Clue]:
    names = draw(st.lists(st.sampled_from(TESTS), min_size=1, max_size=12, unique=True))
    outcomes = [draw(st.sampled_from([outcome.name for outcome in KNOWN.tests[name].outcomes])) for name in names]
    return [clue(name, outcome, draw(st.integers(0, 3))) for name, outcome in zip(names, outcomes, strict=True)]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_clues())
def test_weighed_again_it_says_the_same(clues: list[Clue]) -> None:
    said = answer(clues)
    again = reweigh(kept(clues), KNOWN)
    assert again.verdict == said["verdict"]
    for mine, theirs in zip(again.causes(), said["causes"], strict=True):
        assert (mine["id"], mine["kind"], mine["where"]) == (theirs["id"], theirs["kind"], theirs["where"])
        assert mine["credence"] == pytest.approx(theirs["credence"])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(some_clues(), st.floats(0.2, 1.0))
def test_tempering_changes_credences_and_not_their_order(clues: list[Clue], temper: float) -> None:
    held = kept(clues)
    plain = reweigh(held, KNOWN._replace(priors=KNOWN.priors._replace(temper=1.0)))
    other = reweigh(held, KNOWN._replace(priors=KNOWN.priors._replace(temper=temper)))
    weighing = plain.weighing
    close = weighing.shares[0].cause == "none.healthy" and weighing.sound <= 0.5  # the shares shown decide then
    assert close or (plain.verdict in ("fault", "suspect")) == (other.verdict in ("fault", "suspect"))
    assert [name for name, _, _ in other.named][:5] == [name for name, _, _ in plain.named][:5]
    assert other.weighing.shares[0].credence <= plain.weighing.shares[0].credence + 1e-9


def test_measured_numbers_are_read_on_the_scale_of_today_and_nan_survives() -> None:
    item = clue("overfit_one_batch", "fits", final_over_initial=float("nan"))
    again = reweigh(kept([item]), KNOWN)
    assert again.weighing.clues[0].outcome == KNOWN.tests["overfit_one_batch"].scale.nan  # type: ignore[union-attr]


def test_without_instruments_and_tests() -> None:
    held = kept([clue("event_order", "usual"), clue("overfit_one_batch", "stalls")])
    assert [item.test for item in reweigh(held, KNOWN, {"exam"}).clues] == ["event_order"]
    assert [item.test for item in reweigh(held, KNOWN, {"event_order"}).clues] == ["overfit_one_batch"]


def test_pictures_of_an_older_form_can_be_weighed() -> None:
    held = kept([clue("event_order", "usual"), clue("loss_input_kind", "probabilities_into_logit_loss", 7)])
    for table in held["clues"]:
        del table["source"], table["reads"], table["step"]
    assert reweigh(held, KNOWN, {"observe"}).clues == ()
    assert reweigh(held, KNOWN).steps == (100, 100)


@pytest.mark.parametrize(("steps", "status"), [(0, 0), (50, 1)])
def test_a_run_that_failed_is_not_called_healthy(steps: int, status: int) -> None:
    fine = [
        clue(name, next(outcome.name for outcome in KNOWN.tests[name].outcomes if outcome.kind == "absent"))
        for name in ("event_order", "loss_input_kind", "mode_in_training", "parameters_changed", "learning_curve")
    ]
    assert reweigh(kept(fine), KNOWN).verdict == "healthy"
    assert reweigh(kept(fine, steps=steps, status=status), KNOWN).verdict == "undecided"


def test_the_step_of_an_outcome_is_that_of_its_last_change() -> None:
    first = FirstSteps("")
    first.take({"a": "absent", "b": "seen"}, 10)
    first.take({"a": "seen", "b": "seen"}, 40)
    first.take({"a": "seen", "b": "seen"}, 90)
    assert first.of("a", "seen", 100) == 40
    assert first.of("b", "seen", 100) == 10
    assert first.of("b", "other", 100) == first.of("curve", "x", 100) == 100


def test_first_step_counts_clues_for_the_true_cause_only() -> None:
    held = kept([clue("loss_input_kind", "probabilities_into_logit_loss", 7), clue("event_order", "no_zero_grad")])
    held["clues"][0]["step"], held["clues"][1]["step"] = 30, 10
    again = reweigh(held, KNOWN)
    assert first_step(again, ("loss.double_softmax",)) == 30
    assert first_step(again, ("train.missing_zero_grad",)) == 10
    assert first_step(again, ("env.nondeterminism",)) is None


def test_the_reason_of_a_miss_names_what_pulled_and_what_lacked() -> None:
    again = reweigh(kept([clue("event_order", "no_zero_grad", 3)]), KNOWN)
    said = reason(again, ("loss.double_softmax",))
    assert "event_order=no_zero_grad is taken for the mechanism of train.missing_zero_grad" in said
    assert lacking(again, "loss.double_softmax").endswith("is not made")
    held = again.picture | {"exams_skipped": [["gradient_check", "no time"]]}
    held["clues"] = [
        *held["clues"],
        {"test": "loss_input_kind", "outcome": "unclear", "measured": {}, "why": "no loss"},
    ]
    assert "unclear (no loss)" in reason(reweigh(held, KNOWN), ("loss.double_softmax",))


def records() -> list[Record]:
    right = kept([clue("loss_input_kind", "probabilities_into_logit_loss", 7), clue("event_order", "usual")])
    sound = kept([clue("loss_input_kind", "fits"), clue("event_order", "usual"), clue("mode_in_training", "train")])
    faulty = Trial(FAULT, 0, "", "worse", 0.1, 0.9)
    return [
        Record(faulty, right, (("train.py", 7),)),
        Record(faulty._replace(item=healthy("q")), sound),
        Record(faulty._replace(left_out="equivalent")),
    ]


def test_a_trial_is_judged_under_a_table_and_without_a_part() -> None:
    whole = trial_of(records()[0], KNOWN)
    assert (whole.right, whole.localised, whole.verdict, whole.first_step) == (True, True, "fault", 100)
    less = trial_of(records()[0], KNOWN, {"loss_input_kind"})
    assert not less.right
    assert less.reason


@pytest.mark.parametrize("jobs", [1, 2])
def test_parts_are_worth_what_is_lost_without_them(jobs: int) -> None:
    parts = {part.name: part for part in ablate.ablate(records(), lambda _: KNOWN, jobs)}
    assert (parts["loss_input_kind"].clear, parts["loss_input_kind"].first) == (2, 1)
    assert parts["loss_input_kind"].detected == 1
    assert parts["event_order"].decided == 0
    assert parts["loss_input_kind"].named == 1
    assert ablate.idle(parts.values()) == ([], ["event_order", "mode_in_training"])
    assert ablate.rows(list(parts.values()))[1][0] == "observe"


def test_ways_and_pages() -> None:
    held = records()
    ways = ablate.ways(held, lambda _: KNOWN)
    trials = fit.judge_all(held, lambda _: KNOWN)
    assert figures(ways["watching"]).first == figures(trials).first == 1
    page = pages.markdown(trials, "abc", ways)
    for part in ("## Ways of looking", "| all of them |", "## Calibration", "## Families", "## Confusions"):
        assert part in page
    assert sum(held.runs for held in curve(trials)) == 3
    assert matrix(trials)[1][0] == "loss"
    assert json.dumps(to_json(trials, ways))
    assert "all of them" in pages.text(trials, ways)


def test_other_seeds_are_tried_before_a_fault_is_called_equivalent(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {("p.healthy", 0): 0.95, ("p.healthy", 1): 0.94, ("p.healthy", 2): 0.95, ("p.x", 0): 0.95, ("p.x", 1): 0.5}
    ran = []

    def bare(item: Fault, _program: Program, seed: int, _options: Options) -> dict[str, Any]:
        ran.append((item.id, seed))
        figure = values.get((item.id, seed), 0.95)
        return {"status": 0, "figure": figure, "seconds": 1.0, "tail": ""}

    monkeypatch.setattr("clew.casebook.judge.bare", bare)
    program = Program("p", ("python", "train.py"), "acc", 0.9, None, "general", 5)
    found = shown(FAULT, program, 0, Options(""))
    assert (found.seed, found.tried, found.effect, found.left_out) == (1, 2, "worse", "")
    assert ("p.x", 2) not in ran
    values["p.x", 1] = 0.95
    found = shown(FAULT, program, 0, Options(""))
    assert found.left_out == "equivalent: the figure is that of the sound program, with 3 seeds"
    assert shown(FAULT._replace(hurts=False, unseen="x"), program, 0, Options("")).seed == 0
