"""What changed between two runs is said, and what did not is not."""

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.archive import code, compare, runs
from clew.archive.compare import Change
from clew.archive.model import Run
from clew.records import exact

Make = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_HOME", str(tmp_path / ".clew"))

    def made(*words: str, source: str = "lr = 1\n", loss: float = 0.5, verdict: str = "healthy") -> Run:
        run = runs.begin(["python", "train.py", *words], ".", "train.py")
        Path("train.py").write_text(source)
        code.snapshot(run, ["train.py"])
        Path(run.path("trace-1.jsonl")).write_text(exact.dumps(["loss", "", 3, loss]) + "\n")
        runs.finish(run, 0, seconds=1.0, steps=4, verdict=verdict)
        return run

    return made


def test_nothing_changed(make: Make) -> None:
    found = compare.diff(make("--lr", "1", loss=math.nan), make("--lr", "1", loss=math.nan))
    assert found.same_input
    assert found.same_outcome
    assert (found.code_same, found.metrics_same) == (1, 1)
    assert not found.remarks


def test_what_changed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    one = make("--lr", "0.1", "--fast")
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    found = compare.diff(one, make("--lr", "0.2", source="lr = 2\n", loss=0.25, verdict="fault"))
    assert found.command == (Change("--fast", "given", None), Change("--lr", "0.1", "0.2"))
    assert Change("PYTHONHASHSEED", "0", "1") in found.environment
    assert found.outcome == (Change("verdict", "healthy", "fault"),)
    assert [(item.path, item.kind) for item in found.code] == [("train.py", "changed")]
    assert found.code[0].diff.splitlines()[-2:] == ["-lr = 1", "+lr = 2"]
    assert [(item.name, item.before, item.after) for item in found.metrics] == [("loss", 0.5, 0.25)]
    assert not found.same_input


def test_files_that_came_and_went(make: Make) -> None:
    one, two = make(), make()
    Path("extra.py").write_text("x")
    code.snapshot(two, ["extra.py"])
    assert [(item.path, item.kind) for item in compare.diff(one, two).code] == [("extra.py", "added")]
    assert [(item.path, item.kind) for item in compare.diff(two, one).code] == [("extra.py", "removed")]


def test_a_script_under_another_name_is_compared_line_by_line(make: Make) -> None:
    one = make()
    two = runs.begin(["python", "fixed/train2.py"], ".", "fixed/train2.py")
    Path("fixed").mkdir()
    Path("fixed/train2.py").write_text("lr = 2\n")
    code.snapshot(two, ["fixed/train2.py"])
    (change,) = compare.diff(one, two).code
    assert (change.path, change.kind) == ("train.py → fixed/train2.py", "changed")
    assert "-lr = 1\n+lr = 2" in change.diff


def test_what_cannot_be_compared_is_said(make: Make) -> None:
    one, two = make(), make(source="other\n")
    item = code.read(one)[0]
    os.unlink(code.object_path(".clew/objects", item.digest))
    assert "missing from the archive" in compare.diff(one, two).code[0].note
    Path(one.path("code.json")).write_text("{")
    found = compare.diff(one, two)
    assert not found.code
    assert "code was not compared" in found.remarks[0]
    os.unlink(one.path("code.json"))
    assert "has no snapshot" in compare.diff(one, two).remarks[0]


def test_a_file_that_is_not_text(make: Make) -> None:
    one = make()
    Path("blob.py").write_bytes(b"\xff")
    code.snapshot(one, ["blob.py"])
    two = make()
    Path("blob.py").write_bytes(b"\xfe")
    code.snapshot(two, ["blob.py"])
    assert compare.diff(one, two).code[0].note == "it is not text"


@pytest.mark.parametrize(
    ("words", "held"),
    [
        (["python", "t.py", "--lr", "0.1"], {"words": "python t.py", "--lr": "0.1"}),
        (["t.py", "--lr=0.1", "--flag"], {"words": "t.py", "--lr": "0.1", "--flag": "given"}),
        (["t.py", "--shift", "-0.5"], {"words": "t.py", "--shift": "-0.5"}),
        (["t.py", "model.lr=3", "seed=1"], {"words": "t.py", "model.lr": "3", "seed": "1"}),
        (["--add", "1", "--add", "2"], {"--add": "1 2"}),
        ([], {}),
    ],
)
def test_options_by_name(words: list[str], held: dict[str, str]) -> None:
    assert compare.options(tuple(words)) == held


@given(one=st.lists(st.text(max_size=6), max_size=6), two=st.lists(st.text(max_size=6), max_size=6))
def test_no_change_of_the_command_goes_unsaid(one: list[str], two: list[str]) -> None:
    """Two spellings of one option may look alike by name; then the whole lines are shown."""
    from types import SimpleNamespace
    from typing import cast

    from clew.archive.model import Record

    records = [cast(Record, SimpleNamespace(command=tuple(words))) for words in (one, two)]
    assert bool(compare._command(*records)) == (one != two)
