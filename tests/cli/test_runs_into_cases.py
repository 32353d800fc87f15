"""Runs, exams and logs give their clues to a case, and the work log knows the runs."""

import json
from pathlib import Path

import pytest

from clew.archive import code, runs
from clew.archive.model import Run
from conftest import Clew

CLUES = [
    {"test": "update_ratio", "outcome": "zero", "source": "observe", "says": "no update"},
    {"test": "init_loss", "outcome": "at_chance", "source": "log"},
    {"test": "overfit_one_batch", "outcome": "unclear", "why": "no batch"},
]


def kept(script: str = "train.py") -> Run:
    Path(script).write_text("loss = 1\n")
    run = runs.begin(["python", script, "--lr", "3"], script=script)
    code.snapshot(run, [str(Path(script).absolute())])
    table = {"schema": "clew/1", "verdict": "suspect", "causes": [], "clues": CLUES, "run": {"files": []}}
    Path(run.path("report.json")).write_text(json.dumps(table))
    runs.finish(run, 0, steps=40, verdict="suspect")
    return run


@pytest.fixture
def opened(clew: Clew) -> Clew:
    Path("train.py").write_text("loss = 1\n")
    assert clew("case", "new", "it does not learn", "--script", "train.py").status == 0
    return clew


def test_a_kept_run_gives_its_clues_once(opened: Clew) -> None:
    run = kept()
    assert "update_ratio" in opened("case", "next", "-n", "40").out
    said = opened("case", "add", "train.py")
    assert said.status == 0, said.err
    assert "2 clues added" in said.out
    assert "0 clues added" in opened("case", "add", run.id).out
    shown = opened("case", "show").out
    assert "No update" in " ".join(shown.split())
    assert "1 checks by clew passed: init_loss" in shown
    Path("train.py").write_text("loss = 2\n")
    assert "made on other code" in " ".join(opened("case", "show").out.split())


def test_the_work_log_lists_the_runs_of_the_script(opened: Clew) -> None:
    run = kept()
    third = " ".join(opened("case", "log").out.split()).split("3. ")[1].split("4. Results")[0]
    assert "the runs under 4 were to answer: does it still show: it does not learn" in third
    going = runs.begin(["python", "train.py"], script="train.py")
    other = kept("other.py")
    text = " ".join(opened("case", "log").out.split())
    third, fourth = text[text.index("3. ") : text.index("4. ")], text[text.index("4. ") :]
    assert going.id in third
    assert "question: does it still show: it does not learn" in third
    assert f"train.py --lr 3: suspect, 40 steps ({run.id})" in fourth
    assert other.id not in text


def test_a_log_gives_its_clues(opened: Clew) -> None:
    Path("train.log").write_text("".join(f"step {n} loss {2.3 - n / 200:.3f}\n" for n in range(400)))
    said = opened("log", "train.log", "--case", "current")
    assert "clues added to case it-does-not-learn" in " ".join(said.out.split())
    assert "loss_stuck_from_start" not in opened("case", "next", "-n", "40").out
    said = opened("log", "train.log", "--case", "nothing")
    assert said.status == 2
    assert "there is no case" in said.err


def test_the_check_of_ones_own_hypothesis_comes_first(opened: Clew) -> None:
    opened("case", "clue", "metric_at_chance", "at_chance")
    opened("case", "hypothesis", "labels are noise", "--prior", "0.2", "--check", "print ten rows")
    out = opened("case", "next").out
    assert out.index("print ten rows") < out.index("own.1 (yours)") < out.index("Worth")
    opened("case", "show", "--json", "out.json")
    first = json.loads(Path("out.json").read_text())["next"][0]
    assert (first["test"], first["says"]) == ("own.1", "print ten rows")
    assert 0 < first["gain_bits"] < 1
    opened("case", "note", "--result", "they fit", "--kind", "own.1")
    assert "own.1 (yours)" not in opened("case", "next").out
