"""A person debugging by hand, from symptom to close, and everything they may get wrong on the way."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import tinyhtml5

from clew.archive import runs
from clew.knowledge import load
from clew.records import exact
from conftest import Clew


@pytest.fixture
def opened(clew: Clew) -> Clew:
    said = clew("case", "new", "val accuracy stuck at 10 %, 10 classes", "--domain", "vision")
    assert said.status == 0
    assert "Opened case val-accuracy-stuck-at-10-10" in said.out
    return clew


def shown(clew: Clew, *words: str) -> dict[str, object]:
    said = clew("case", "show", "--json", "out.json", *words)
    assert said.status in (0, 1), said.err
    table = exact.loads(Path("out.json").read_text())
    assert isinstance(table, dict)
    return table


def test_a_case_from_symptom_to_close(opened: Clew) -> None:
    assert opened("case", "clue", "metric_at_chance", "at_chance").status == 0
    first = opened("case", "next")
    assert first.status == 0
    assert "Next observation" in first.out
    assert "clew case clue" in first.out
    assert opened("case", "clue", "loss_stuck_from_start", "stuck").status == 0
    said = opened("case", "clue", "loss_input_kind", "probabilities_into_logit_loss", "--at", "train.py:41")
    assert "Found loss.double_softmax" in said.out
    report = opened("case", "show")
    assert report.status == 1, "something was found"
    assert "FAULT" in report.out
    assert "loss.double_softmax at train.py:41" in report.out
    assert "Check loss.double_softmax, then fix it" in report.out
    refused = opened("case", "close", "--cause", "loss.double_softmax")
    assert refused.status == 2
    assert "the observation that no longer reproduces" in refused.err
    closed = opened(
        "case", "close", "--cause", "loss.double_softmax", "--evidence", "loss falls to 0.4", "--clue", "#3"
    )
    assert closed.status == 0
    final = opened("case", "show")
    assert final.status == 0
    assert "No longer seen: loss falls to 0.4" in final.out
    late = opened("case", "clue", "metric_at_chance", "above")
    assert late.status == 2
    assert "is closed" in late.err


def test_json_follows_the_contract(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    opened("case", "clue", "first_nonfinite", "in_log", "--at", "loss.py:7", "--measured", "value=nan")
    table = shown(opened)
    assert table["schema"] == "clew/1"
    assert table["command"] == "case show"
    assert table["verdict"] == "fault"
    causes = table["causes"]
    assert isinstance(causes, list)
    finding = causes[0]
    assert finding["id"] == "num.log_of_zero"
    assert finding["kind"] == "finding"
    assert finding["where"] == [{"file": "loss.py", "line": 7}]
    assert finding["clues"] == [1]
    assert finding["says"]
    assert finding["check"]
    known = set(load().causes)
    assert {cause["id"] for cause in causes} <= known
    assert causes[-1]["id"] == "none.healthy", "beside a fault it is the last"
    shares = [cause["credence"] for cause in causes if cause["kind"] == "hypothesis"]
    unknown = table["unknown"]
    assert isinstance(unknown, float)
    assert math.fsum([*shares, unknown]) == pytest.approx(1.0)
    assert shares[:-1] == sorted(shares[:-1], reverse=True)
    clues = table["clues"]
    assert isinstance(clues, list)
    assert set(clues[0]) >= {"test", "outcome", "measured", "where", "source", "says", "reproduce"}
    assert math.isnan(clues[1]["measured"]["value"])
    following = table["next"]
    assert isinstance(following, list)
    assert set(following[0]) >= {"test", "gain_bits", "cost_s", "predictions"}
    assert set(table["run"]) >= {"id", "script", "argv", "steps", "seconds", "exit"}  # type: ignore[call-overload]
    json.loads(Path("out.json").read_text())


def test_a_complaint_is_not_called_healthy_where_all_checks_pass(clew: Clew) -> None:
    clew("case", "new", "is this run in order?")
    for test in load().tests.values():
        if not test.domains and test.role != "symptom" and test.seconds <= 30:
            healthy = max(
                test.outcomes,
                key=lambda outcome: (outcome.kind == "absent", test.healthy[test.outcomes.index(outcome)]),
            )
            assert clew("case", "clue", test.id, healthy.name).status == 0
    table = shown(clew)
    assert table["verdict"] == "undecided"
    causes = table["causes"]
    assert isinstance(causes, list)
    assert causes[0]["id"] == "none.healthy"
    assert all(cause["credence"] <= 0.2 for cause in causes if not cause["id"].startswith("none."))


def test_retracting_returns_to_the_earlier_state(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    before = shown(opened)
    opened("case", "clue", "loss_diverges", "at_once")
    assert shown(opened)["causes"] != before["causes"]
    assert opened("case", "retract", "#3", "--reason", "read the wrong log").status == 0
    after = shown(opened)
    assert after["causes"] == before["causes"]
    assert after["unknown"] == before["unknown"]
    report = opened("case", "show").out
    assert "retracted: read the wrong log" in report
    assert opened("case", "retract", "3", "--reason", "again").status == 2
    assert opened("case", "retract", "1", "--reason", "the opening").status == 2
    assert opened("case", "retract", "99", "--reason", "what?").status == 2


def test_a_number_decides_the_outcome(opened: Clew) -> None:
    said = opened("case", "clue", "init_loss", "--measured", "loss_over_chance=20")
    assert "init_loss: far_above" in said.out
    said = opened("case", "clue", "init_loss", "--measured", "nonsense=1")
    assert said.status == 2
    assert "loss_over_chance" in said.err


@pytest.mark.parametrize(("words", "verdict"), [((), "suspect"), (("--expects", "loss_plateau=early_high"), "fault")])
def test_a_prior_alone_makes_no_fault(clew: Clew, words: tuple[str, ...], verdict: str) -> None:
    clew("case", "new", "the loss is odd")
    said = ("case", "hypothesis", "the labels are shifted", "--prior", "0.6", "--check", "plot ten pairs", *words)
    assert clew(*said).status == 0
    assert shown(clew)["verdict"] == "undecided"
    clew("case", "clue", "loss_plateau", "early_high")
    table = shown(clew)
    causes = table["causes"]
    assert isinstance(causes, list)
    assert causes[0]["id"] == "own.1", "it may lead, as an idea"
    assert causes[0]["credence"] > 0.5
    assert table["verdict"] == verdict


def test_a_hypothesis_of_ones_own(opened: Clew) -> None:
    said = opened(
        *("case", "hypothesis", "the augmentation crops the digit away", "--prior", "0.3"),
        *("--expects", "data_looks_right=wrong", "--check", "look at ten augmented images"),
    )
    assert said.status == 0
    assert "own.1" in said.out
    opened("case", "clue", "data_looks_right", "wrong")
    table = shown(opened)
    causes = table["causes"]
    assert isinstance(causes, list)
    own = next(cause for cause in causes if cause["id"] == "own.1")
    assert own["credence"] > 0.3
    assert own["check"] == "look at ten augmented images"
    assert "(yours)" in opened("case", "show").out


def test_the_work_log_has_four_parts(opened: Clew) -> None:
    opened("case", "note", "--working-on", "the classifier of the demo")
    opened("case", "note", "perhaps the head applies softmax")
    opened("case", "note", "--running", "lr 1e-4, 3 epochs", "--question", "is it the step size?")
    opened("case", "note", "--result", "no change at 1e-4", "--kind", "learning rates")
    missing = opened("case", "note", "--running", "another run")
    assert missing.status == 2
    assert "which question" in missing.err
    text = opened("case", "log").out
    parts = [text.index(part) for part in ("1. Working on", "2. Thinking", "3. Running", "4. Results")]
    assert parts == sorted(parts)
    assert "question: is it the step size?" in text
    assert "learning rates" in text


def test_clues_of_other_code_are_kept_apart(clew: Clew) -> None:
    Path("train.py").write_text("loss = f(x)\n")
    clew("case", "new", "does not learn", "--script", "train.py")
    clew("case", "clue", "metric_at_chance", "at_chance")
    Path("train.py").write_text("# only a comment\nloss = f( x )\n")
    assert len(shown(clew)["clues"]) == 1, "layout is not code"  # type: ignore[arg-type]
    Path("train.py").write_text("loss = g(x)\n")
    assert shown(clew)["clues"] == []
    assert "made on other code" in " ".join(clew("case", "show").out.split())
    assert len(shown(clew, "--all-code")["clues"]) == 1  # type: ignore[arg-type]


def test_the_page_is_self_contained_and_escapes(clew: Clew) -> None:
    clew("case", "new", '<script>alert("x")</script> & "loss" stuck', "--domain", "vision")
    clew("case", "clue", "metric_at_chance", "at_chance", "--says", "<img src=x onerror=alert(1)>", "--at", "<b>.py:3")
    clew("case", "clue", "loss_input_kind", "probabilities_into_logit_loss")
    clew("case", "note", "</main><script>1</script>")
    assert clew("case", "show", "--html", "page.html").status == 1
    text = Path("page.html").read_text()
    page = tinyhtml5.parse(text, namespace_html_elements=False)
    assert page.find(".//script") is None
    assert page.find(".//img") is None
    assert page.find(".//link") is None
    heading = page.find(".//h1")
    assert heading is not None
    assert heading.text == '<script>alert("x")</script> & "loss" stuck'
    assert "http" not in text.replace("http-equiv", ""), "nothing is fetched"
    words = "".join(page.itertext())
    assert "loss.double_softmax" in words
    assert "observations, nothing inferred" in words


def test_the_report_fits_80_columns_and_has_no_colour_when_piped(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    opened("case", "clue", "overfit_one_batch", "stalls", "--at", "train.py:12")
    for words in (["case", "show"], ["case", "next"], ["why", "overfit_one_batch"], ["why", "loss.double_softmax"]):
        out = opened(*words).out
        assert "\033" not in out
        long = [line for line in out.splitlines() if len(line) > 80 and " http" not in line and "<http" not in line]
        assert not long


def test_a_torn_log_is_reported_and_nothing_is_lost(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    path = Path(".clew/cases/val-accuracy-stuck-at-10-10/log.jsonl")
    path.write_bytes(path.read_bytes() + b'{"at":"2026')
    out = opened("case", "show").out
    assert "torn" in out
    assert "#2 metric_at_chance" in out.replace("  ", " ").replace("  ", " ")
    assert opened("case", "clue", "loss_stuck_from_start", "stuck").status == 0
    assert "were moved to torn-" in opened("case", "show").out


BAD = [
    (["case", "clue", "metric_at_chanc", "at_chance"], "did you mean metric_at_chance"),
    (["case", "clue", "metric_at_chance", "at_chanse"], "did you mean at_chance"),
    (["case", "clue", "metric_at_chance", "unclear"], "needs its reason"),
    (["case", "clue", "metric_at_chance"], "say what metric_at_chance showed"),
    (["case", "clue"], "name a test and its outcome"),
    (["case", "clue", "init_loss", "--measured", "loss_over_chance"], "takes NAME=VALUE"),
    (["case", "clue", "init_loss", "at_chance", "--measured", "loss_over_chance=20"], "not at_chance; give one of"),
    (["case", "close", "--cause", "loss.double_softmacks", "--evidence", "x"], "did you mean loss.double_softmax"),
    (["case", "show", "--case", "nothing-like-it"], "there is no case"),
    (["case", "hypothesis", "x", "--prior", "1.5", "--check", "y"], "between 0 and 1"),
    (["case", "hypothesis", "x", "--prior", "high", "--check", "y"], "invalid float value"),
    (["case", "hypothesis", "x", "--prior", "0.2", "--check", "y", "--expects", "init_loss=odd"], "no outcome 'odd'"),
    (["case", "retract", "first", "--reason", "x"], "named by its number"),
    (["case", "note", " "], "needs words"),
    (["case", "next", "-n", "0"], "from 1 to 100"),
    (["case", "show", "--json", "no/such/folder/x.json"], "cannot write"),
    (["case", "show", "--html", "."], "cannot write"),
    (["case", "reopen", "--reason", "x"], "is open"),
    (["case", "frobnicate"], "invalid choice"),
    (["case", "new", "x", "--domain", "visoin"], "did you mean vision"),
    (["case", "new", " "], "say what you see"),
    (["case", "new", "x", "--script", "missing.py"], "cannot read missing.py"),
]


@pytest.mark.parametrize(("words", "says"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_gets_one_sentence_and_changes_nothing(opened: Clew, words: list[str], says: str) -> None:
    def content() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}

    before = content()
    said = opened(*words)
    assert said.status == 2
    assert says in said.err
    assert len(said.err.strip().splitlines()) == 1
    assert said.out == ""
    assert content() == before


def test_without_a_case_the_way_to_one_is_named(clew: Clew) -> None:
    said = clew("case", "show")
    assert said.status == 2
    assert "clew case new" in said.err
    assert list(Path().iterdir()) == []


def test_cases_side_by_side(opened: Clew) -> None:
    opened("case", "new", "val accuracy stuck at 10 %, 10 classes")
    assert "val-accuracy-stuck-at-10-10-2" in opened("case", "list").out
    assert opened("case", "use", "val-accuracy-stuck-at-10-10").status == 0
    assert "* val-accuracy-stuck-at-10-10 " in opened("case", "list").out
    os.mkdir("below")
    os.chdir("below")
    assert opened("case", "show").status == 0, "a case is found from a folder below"


def test_an_agent_reads_what_a_person_sees(opened: Clew) -> None:
    """Control characters in what somebody typed never reach the terminal."""
    opened("case", "clue", "metric_at_chance", "at_chance", "--says", "red \033[31m text\a")
    out = opened("case", "show").out
    assert "\033" not in out
    assert "\a" not in out


def test_files_where_folders_should_be(opened: Clew) -> None:
    cases = Path(".clew/cases")
    (cases / "current").unlink()
    (cases / "current").mkdir()
    said = opened("case", "use", "val-accuracy-stuck-at-10-10")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "cannot write" in said.err
    cases.rename("elsewhere")
    cases.write_text("")
    said = opened("case", "new", "it does not learn")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "cannot create a case" in said.err


def test_closing_against_ones_own_clues_asks(opened: Clew) -> None:
    opened("case", "clue", "loss_input_kind", "probabilities_into_logit_loss")
    said = opened("case", "close", "--cause", "train.missing_zero_grad", "--evidence", "it works now")
    assert said.status == 2
    assert "show loss.double_softmax" in said.err
    assert "--yes" in said.err
    assert opened("case", "note", "still open").status == 0
    assert opened("case", "close", "--cause", "train.missing_zero_grad", "--evidence", "it works", "--yes").status == 0


def test_a_cause_that_the_clues_speak_against_asks_too(opened: Clew) -> None:
    opened("case", "clue", "overfit_one_batch", "fits")
    said = opened("case", "close", "--cause", "loss.disconnected", "--unverified", "a guess")
    assert said.status == 2
    assert "speak against loss.disconnected" in said.err
    assert opened("case", "close", "--cause", "unknown", "--unverified", "it went away").status == 0


def new_run(outcome: str) -> str:
    run = runs.begin(["python", "train.py"], script="train.py")
    clue = {"test": "loss_input_kind", "outcome": outcome, "source": "observe", "why": "no loss was seen"}
    table = {"schema": "clew/1", "causes": [], "clues": [clue], "run": {"files": []}}
    Path(run.path("report.json")).write_text(json.dumps(table))
    runs.finish(run, 0)
    return run.id


def test_closing_with_a_run_measures_the_decisive_clue_again(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    opened("case", "clue", "loss_input_kind", "probabilities_into_logit_loss")
    close = ("case", "close", "--cause", "loss.double_softmax", "--run")
    said = opened(*close, new_run("probabilities_into_logit_loss"))
    assert said.status == 2
    assert "still reproduces" in said.err
    assert "(clue #3)" in said.err
    said = opened(*close, new_run("unclear"))
    assert said.status == 2
    assert "does not say what loss_input_kind shows" in said.err
    fixed = next(o.name for o in load().tests["loss_input_kind"].outcomes if o.kind == "absent")
    said = opened(*close, new_run(fixed))
    assert said.status == 0, said.err
    shown = " ".join(opened("case", "show").out.split())
    assert f"loss_input_kind: probabilities_into_logit_loss → {fixed} in run" in shown


def test_a_clue_that_a_run_does_not_show_is_left_to_the_person(opened: Clew) -> None:
    opened("case", "clue", "data_looks_right", "wrong")
    run = new_run("unclear")
    said = opened("case", "close", "--cause", "data.labels_misaligned", "--clue", "2", "--run", run)
    assert said.status == 2
    assert "--evidence" in said.err
    assert opened("case", "close", "--cause", "data.labels_misaligned", "--run", "nothing").status == 2


def asked(clew: Clew, complaint: str, domain: str = "general") -> list[str]:
    clew("case", "new", complaint, "--domain", domain)
    table = exact.loads(clew("case", "next", "--json", "-").out.splitlines()[-1])
    return [row["test"] for row in table["next"]]


def test_the_number_in_a_complaint_is_an_observation(clew: Clew) -> None:
    opened = clew("case", "new", "val accuracy stuck at 9 %, 10 classes; train loss goes to 0.02", "--domain", "vision")
    assert "#2 training_fit: near_zero was entered from your words." in opened.out
    assert "case clue training_fit" not in opened.out
    clew("case", "clue", "metric_at_chance", "at_chance")
    clew("case", "clue", "metric_vs_loss", "loss_falls_metric_flat")
    table: Any = shown(clew)
    share = {row["id"]: row["credence"] for row in table["causes"]}
    assert max(share["data.labels_misaligned"], share["loss.broadcast"]) < 0.01
    assert table["causes"][0]["id"] == "data.train_val_mismatch"
    order = [row["test"] for row in table["next"]]
    assert set(order[:2]) == {"train_batch_in_validation", "train_eval_same_batch"}
    assert not {"overfit_one_batch", "init_loss", "loss_plateau"} & set(order)
    assert clew("case", "retract", "2", "--reason", "another run").status == 0


@pytest.mark.parametrize(
    ("complaint", "domain", "wanted", "unwanted"),
    [
        ("loss is nan after 200 steps", "general", "first_nonfinite", "loss_nonfinite"),
        ("loss is nan after 200 steps", "general", "nonfinite_onset", "loss_stuck_from_start"),
        ("loss 0.69 from the start and never moves", "general", "update_ratio", "loss_stuck_from_start"),
        ("val accuracy at chance, the training loss falls", "vision", "train_batch_in_validation", "metric_vs_loss"),
        ("boundary condition not satisfied", "pinn", "boundary_gradient_share", "boundary_error"),
        ("DQN return stays at 10, never learns", "rl", "value_target_range", "entropy_trend"),
    ],
)
def test_without_a_clue_the_questions_fit_the_complaint(
    clew: Clew, complaint: str, domain: str, wanted: str, unwanted: str
) -> None:
    order = asked(clew, complaint, domain)
    assert wanted in order
    assert unwanted not in order


def test_what_was_only_said_moves_no_credence_and_gives_way_to_what_was_seen(clew: Clew) -> None:
    clew("case", "new", "loss is nan after 200 steps")
    assert shown(clew)["clues"] == []
    assert "taking your words to mean: at least one training loss" in clew("case", "next").out
    clew("case", "clue", "loss_nonfinite", "absent")
    said = clew("case", "next").out
    assert "taking your words" not in said
    assert "nonfinite_onset" not in said


def test_a_prior_is_shown_as_it_was_given(clew: Clew) -> None:
    clew("case", "new", "the loss is odd")
    clew("case", "hypothesis", "the labels are shifted", "--prior", "0.4", "--check", "plot ten pairs")
    assert "40 %  own.1" in clew("case", "show").out
