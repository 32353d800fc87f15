"""The short form of every command, and JSON as the last line of standard output."""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.cli import build
from clew.report import brief
from clew.report.text import Page
from conftest import Clew

SOFTMAX_TWICE = """
import torch
from torch import nn
torch.manual_seed(0)
X = torch.randn(64, 8)
y = (X[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(dim=1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    loss = nn.functional.cross_entropy(model(X), y)
    opt.zero_grad(); loss.backward(); opt.step()
print("trained")
"""


def leaves(parser: ArgumentParser) -> list[ArgumentParser]:
    verbs = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    below = [leaf for action in verbs for choice in action.choices.values() for leaf in leaves(choice)]
    return below or [parser]


def test_every_command_has_a_short_form() -> None:
    found = leaves(build())
    assert len(found) > 25
    missing = [leaf.prog for leaf in found if "--brief" not in leaf._option_string_actions]
    assert missing == []


@pytest.fixture
def ready(clew: Clew) -> Clew:
    clew("case", "new", "val accuracy stuck at 10 %, 10 classes")
    clew("case", "clue", "metric_at_chance", "at_chance")
    Path("train.log").write_text("".join(f"step {n} loss {2.3 - n / 100:.3f}\n" for n in range(60)))
    rows = "".join(f"{lr},{seed},{lr * seed}\n" for lr in (0.1, 0.2) for seed in range(5))
    Path("runs.csv").write_text(f"lr,seed,acc\n{rows}")
    return clew


COMMANDS = [
    ("case", "show"),
    ("case", "next"),
    ("why", "loss.double_softmax"),
    ("why", "loss stuck"),
    ("log", "train.log"),
    ("evidence", "check"),
    ("sweep", "judge", "runs.csv", "--metric", "acc"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_json_is_the_last_line_and_brief_is_short(ready: Clew, words: tuple[str, ...]) -> None:
    before = sorted(Path().rglob("*"))
    whole = ready(*words, "--json", "-")
    assert whole.status in (0, 1), whole.err
    *report, last = whole.out.rstrip("\n").split("\n")
    full = json.loads(last)
    assert full["schema"] == "clew/1"
    assert report
    assert sorted(Path().rglob("*")) == before, "a file named - is no standard output"
    short = ready(*words, "--brief", "--json", "-")
    *report, last = short.out.rstrip("\n").split("\n")
    assert len(report) <= brief.LINES
    assert len(last.encode()) <= brief.BYTES
    small = json.loads(last)
    assert set(small) <= set(full)
    assert small["command"] == full["command"]
    assert short.status == whole.status


def test_a_run_in_brief_is_the_whole_answer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOFTMAX_TWICE)
    words = ["run", "--no-exams", "--brief", "--json", "-", "train.py"]
    done = subprocess.run([sys.executable, "-m", "clew", *words], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.rstrip("\n").split("\n")
    table = json.loads(lines[-1])
    assert len(lines[-1].encode()) <= brief.BYTES
    assert set(table) <= {"schema", "command", "verdict", "causes", "result", "next", "run"}
    assert table["verdict"] == "fault"
    lead = table["causes"][0]
    assert set(lead) == {"id", "credence", "kind", "where", "says", "seen", "fix", "check"}
    assert lead["fix"] not in lead["says"]
    assert any("softmax" in text for text in lead["seen"])
    assert (lead["id"], lead["kind"]) == ("loss.double_softmax", "finding")
    assert lead["where"][0]["line"] == 10
    assert not any(row["id"].startswith("none.") for row in table["causes"])
    assert lines[0] == "trained"
    report = "\n".join(lines[1:-1]).strip().split("\n")
    assert len(report) <= brief.LINES
    assert "FAULT  train.py: 12 steps" in report[0]
    assert "train.py:10" in report[1]
    assert any(row.startswith("  fix: Return the raw scores") for row in report)
    assert table["run"]["id"] in report[-1]
    words = ["show", "last", "--brief", "--json", "-"]
    again = subprocess.run([sys.executable, "-m", "clew", *words], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(again.stdout.rstrip("\n").split("\n")[-1]) == {**table, "command": "show"}


def test_a_crash_comes_first_and_a_script_without_training_says_so(tmp_path: Path) -> None:
    lines = SOFTMAX_TWICE.replace("print(", "raise RuntimeError('the disk is full')\nprint(")
    (tmp_path / "crash.py").write_text(lines)
    (tmp_path / "usage.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--what'])\n")
    said = []
    for script in ("crash.py", "usage.py"):
        words = ["run", "--no-exams", "--brief", script]
        done = subprocess.run([sys.executable, "-m", "clew", *words], cwd=tmp_path, capture_output=True, text=True)
        said.append(done.stdout.strip().split("\n"))
    assert said[0][0] == "crash.py:12: RuntimeError: the disk is full"
    assert said[0][1].startswith("FAULT  crash.py")
    assert said[1][0].startswith("NO TRAINING  usage.py")
    assert all(len(report) <= brief.LINES for report in said)


texts = st.text(max_size=600)
values = st.recursive(
    st.none() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(texts, inner, max_size=12),
    max_leaves=40,
)


@given(st.dictionaries(st.text(max_size=12), values, max_size=12) | st.lists(values, max_size=30))
def test_no_result_is_too_large_for_it(full: Any) -> None:
    from clew.records import exact

    assert len(exact.dumps(brief.table(full)).encode()) <= brief.BYTES


def test_clew_alone_says_what_to_type_first(clew: Clew) -> None:
    said = clew()
    assert said.status == 0
    assert len(said.out.splitlines()) == 5
    assert said.out.startswith("clew run train.py")


def test_what_a_person_makes_is_proposed_without_seconds() -> None:
    step = {"test": "loss_surface", "cost_s": 245.0, "by": "person", "says": "Draw it."}
    full = {"command": "log", "verdict": "undecided", "causes": [], "run": {}, "next": [step]}
    assert "next: loss_surface (by hand). Draw it." in "\n".join(brief.page(full, Page()).lines)
    made = {**full, "next": [{**step, "by": "exam"}]}
    assert "next: loss_surface. Draw it." in "\n".join(brief.page(made, Page()).lines), "no run is at hand"
    made["command"] = "exam"
    assert "next: loss_surface (4 min). Draw it." in "\n".join(brief.page(made, Page()).lines)


def test_a_closed_case_and_an_exam_by_name_give_their_own_answer() -> None:
    closed = {"cause": "loss.double_softmax", "evidence": "loss_input_kind is logits"}
    full = {
        "command": "case show",
        "verdict": "undecided",
        "causes": [],
        "run": {"id": "c"},
        "case": {"closed": closed},
    }
    lines = brief.page(full, Page()).lines
    assert lines == ["Case closed: loss.double_softmax. loss_input_kind is logits"]
    made = Page()
    made.lines = [f"answer {n}" for n in range(9)]
    exam = {**full, "command": "exam", "exams": {"only": ["overfit_one_batch"]}}
    assert brief.page(exam, made).lines == [f"answer {n}" for n in range(9)]


def test_what_contradicts_health_is_said_in_short_too() -> None:
    place = {"file": "train.py", "line": 9}
    unusual = [{"reading": "source_data_leak_split", "value": None, "where": [place], "says": "it reads train"}]
    full = {"command": "run", "verdict": "undecided", "causes": [], "run": {"id": "r"}, "unusual": unusual}
    lines = brief.page(full, Page()).lines
    assert lines[0].startswith("NOTHING FOUND  r")
    log = {**full, "command": "log", "run": {"id": "train.log", "steps": 30, "seconds": 0.0}}
    assert brief.page(log, Page()).lines[0].startswith("NOTHING FOUND  train.log.")
    assert lines[1] == "seen: train.py:9: it reads train"


def test_a_result_goes_through_links_and_into_pipes(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "out.json").write_text("")
    (tmp_path / "link.json").symlink_to(tmp_path / "there" / "out.json")
    os.mkfifo(tmp_path / "pipe")
    assert clew("why", "loss.double_softmax", "--json", "link.json").status == 0
    assert (tmp_path / "link.json").is_symlink()
    expected = (tmp_path / "there" / "out.json").read_text()
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "pipe").read_text)
        assert clew("why", "loss.double_softmax", "--json", "pipe").status == 0
        assert read.result(timeout=60) == expected != ""
    assert (tmp_path / "pipe").is_fifo()
