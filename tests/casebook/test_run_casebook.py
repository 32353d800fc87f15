"""Judging what clew says about a fault, and what many judgements show; no program is trained here."""

import json
from pathlib import Path
from typing import Any

import pytest

from clew.casebook import work
from clew.casebook.figures import alike, brier, calibration_error, figures, missed, to_json
from clew.casebook.judge import Trial, effect_of, judged, localised, same_file
from clew.casebook.pages import confusions, markdown, text
from clew.casebook.tables import Fault, Program, healthy, programs
from conftest import Clew

UP = Program("p", ("python", "train.py", "{seed}"), "acc", 0.9, None, "general", 5)
DOWN = UP._replace(at_least=None, at_most=0.5)
FAULT = Fault("p.x", "p", "loss.wrong_sign", ("loss.terms_cancel",), "train.py", "a", "b")
HELD = Trial(FAULT, 0, "", "worse", 0.1, 0.95)


def cause(name: str, credence: float, *where: tuple[str, int]) -> dict[str, Any]:
    places = [{"file": file, "line": line} for file, line in where]
    return {"id": name, "credence": credence, "kind": "hypothesis", "where": places, "says": ""}


def answer(*causes: dict[str, Any], verdict: str = "fault") -> dict[str, Any]:
    return {"verdict": verdict, "causes": list(causes), "seconds": 3.0, "steps": 7}


@pytest.mark.parametrize(
    ("program", "figure", "effect"),
    [
        (UP, 0.95, "none"),
        (UP, 0.89, "worse"),
        (UP, 0.92, "worse"),
        (UP, 0.99, "better"),
        (UP, None, "worse"),
        (UP, float("nan"), "worse"),
        (DOWN, 0.51, "worse"),
    ],
)
def test_effect_is_more_than_the_figure_varies(program: Program, figure: float | None, effect: str) -> None:
    assert effect_of(program, [0.95, 0.94], figure) == effect


def test_rank_counts_equal_causes() -> None:
    seen = judged(HELD, answer(cause("hp.lr_too_high", 0.6), cause("loss.terms_cancel", 0.3)), [])
    assert (seen.rank, seen.top, seen.credence, seen.right) == (2, "hp.lr_too_high", 0.6, False)
    assert missed(seen) == "only rank 2"


@pytest.mark.parametrize(("line", "right"), [(10, True), (12, True), (13, False)])
def test_place_within_two_lines(line: int, right: bool) -> None:
    seen = judged(HELD, answer(cause("loss.wrong_sign", 0.9, ("train.py", line))), [("train.py", 10)])
    assert seen.localised is right
    assert missed(seen) == ("" if right else "right cause, wrong place")


def test_place_of_data_is_its_file() -> None:
    item = FAULT._replace(spoil="shift", file="train.csv")
    assert localised(item, {**cause("x", 1.0), "where": [{"file": "data/train.csv"}]}, []) is True
    assert localised(item, cause("x", 1.0, ("train.py", 3)), []) is False
    assert localised(healthy("p"), None, []) is None


def test_same_file() -> None:
    assert same_file("pkg/a.py", "pkg/a.py")
    assert same_file("/x/pkg/a.py", "pkg/a.py")
    assert not same_file("other_a.py", "a.py")


def test_kinds_of_miss() -> None:
    assert missed(judged(HELD, answer(verdict="healthy"), [])) == "not detected"
    assert missed(judged(HELD, answer(cause("a.b", 0.9)), [])) == "another cause"
    sound = HELD._replace(item=healthy("p"))
    assert missed(judged(sound, answer(cause("none.healthy", 0.9), verdict="healthy"), [])) == ""
    assert missed(judged(sound, answer(cause("a.b", 0.9), verdict="suspect"), [])) == "false alarm"
    assert missed(HELD._replace(error="Traceback")) == "clew gave no answer"
    assert missed(HELD._replace(left_out="equivalent")) == ""


def some() -> list[Trial]:
    right = judged(HELD, answer(cause("loss.wrong_sign", 0.8, ("train.py", 10))), [("train.py", 10)])
    wrong = judged(HELD, answer(cause("hp.lr_too_high", 0.6), verdict="healthy"), [])
    sound = judged(HELD._replace(item=healthy("p")), answer(cause("none.healthy", 1.0), verdict="healthy"), [])
    return [right, wrong, sound, HELD._replace(left_out="equivalent")]


def test_figures_count_only_what_counts() -> None:
    seen = figures(some())
    assert (seen.mutants, seen.detected, seen.first, seen.third, seen.localised) == (2, 1, 1, 1, 1)
    assert (seen.sound, seen.alarms) == (1, 0)


def test_scores_by_hand() -> None:
    named = some()[:3]
    assert brier(named) == pytest.approx((0.2**2 + 0.6**2 + 0) / 3)
    assert calibration_error(named) == pytest.approx((0.2 + 0.6 + 0) / 3)
    assert brier([]) == calibration_error([]) == 0
    # One healthy run weighs as much as two faulty ones.
    assert alike(named) == [0.75, 0.75, 1.5]
    assert figures(named).brier == pytest.approx((0.75 * 0.2**2 + 0.75 * 0.6**2) / 3)
    assert figures(named).calibration_error == pytest.approx((0.75 * 0.2 + 0.75 * 0.6) / 3)
    assert figures(named).calibration_as_mixed == pytest.approx(0.8 / 3)
    assert alike(named[:2]) == [1.0, 1.0]


def test_pages_name_misses_and_confusions() -> None:
    shown = text(some())
    assert "1 missed:" in shown
    assert "not detected" in shown
    assert "1 left out:" in shown
    assert ["loss.wrong_sign", "1 of 2", "hp.lr_too_high (1)"] in confusions(some())
    assert "| p.x | loss.wrong_sign | script |" in markdown(some(), "abc")
    assert json.dumps(to_json(some()))


def test_known_results_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed run leaves nothing behind; a finished one is never repeated, whatever has changed in clew."""
    import subprocess

    statuses = [-15, 0]
    calls: list[list[str]] = []

    def fake(command: list[str], _folder: str, _env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        calls.append(command)
        return subprocess.CompletedProcess(command, statuses[len(calls) - 1], "final val_r2=0.9700\n", "")

    monkeypatch.setattr(work, "_run", fake)
    options = work.Options(str(tmp_path))
    item, program = healthy("sinc_lbfgs"), programs()["sinc_lbfgs"]
    assert work.bare(item, program, 0, options)["status"] == -15
    assert work.bare(item, program, 0, options)["figure"] == 0.97
    assert work.bare(item, program, 0, options)["figure"] == 0.97
    assert len(calls) == 2
    assert not (tmp_path / "work").exists() or not list((tmp_path / "work").iterdir())


def test_command_lists_and_refuses(clew: Clew) -> None:
    said = clew("casebook", "list", "--only", "sinc_lbfgs")
    assert said.status == 0
    assert all(line.startswith("sinc_lbfgs.") for line in said.out.splitlines())
    assert clew("casebook", "list", "--only", "nothing").status == 2
    refused = clew("casebook", "run", "--jobs", "0")
    assert refused.status == 2
    assert refused.err == "clew: --jobs takes a number from 1 on, not 0.\n"


@pytest.mark.parametrize("verb", ["figures", "fit", "ablate", "limits"])
def test_asking_for_figures_of_nothing_leaves_nothing_behind(clew: Clew, tmp_path: Path, verb: str) -> None:
    done = clew("casebook", verb, "--out", str(tmp_path / "none"))
    assert done.status == 2
    assert "nothing is kept" in done.err
    assert not (tmp_path / "none").exists()
