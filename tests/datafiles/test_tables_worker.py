"""The look into the files of a run: which files, in which process, and what the knowledge base makes of it."""

import ast
import importlib
import inspect
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clew.app.tables import ENDINGS, look_into
from clew.archive.model import Run
from clew.data import checks
from clew.data.beside import ENDINGS as beside_endings
from clew.data.beside import holds_lines
from clew.data.look import CHECKS, sobered, strongest
from clew.data.model import Found
from clew.data.read import READABLE
from clew.data.worker import read_files, sources
from clew.knowledge import load
from clew.observe import files
from clew.records import exact
from clew.records.clue import Saw, Unclear
from clew.report.run_page import DataFile
from spoiled_tables import a_class_nearly_gone, beside, kelvin_for_some_days

HEADINGS = ("Why it matters:", "Cannot tell:", "Silent when:", "Sources:")


def run_of(folder: Path, data: Path) -> tuple[Run, tuple[DataFile, ...]]:
    """A run that has read every file of a folder."""
    folder.mkdir()
    rows, files = [], []
    for path in sorted(data.iterdir()):
        held = path.stat()
        where = {"path": str(path), "written": False, "size": held.st_size, "modified": held.st_mtime}
        rows.append({**where, "by": "", "where": {}})
        files.append(DataFile(str(path), False, held.st_size, "", "", ""))
    (folder / "files-1.json").write_text(exact.dumps(rows))
    held_run: Any = SimpleNamespace(folder=str(folder))
    return held_run, tuple(files)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def test_a_run_is_told_what_its_files_show(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_class_nearly_gone(data)
    held, files = run_of(tmp_path / "run", data)
    found = {clue.test: clue for clue in look_into(held, files)}
    assert set(found) == set(CHECKS)
    lost = found["file_class_counts"]
    assert (lost.outcome, lost.source) == ("lost", "observe")
    assert str(lost.where[0]) == "data/train.csv, column y"
    assert "5 of" in lost.says


def test_no_process_is_begun_without_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    held: Any = SimpleNamespace(folder=str(tmp_path))
    assert look_into(held, (DataFile("model.pt", False, 9, "", "", ""), DataFile("log.csv", True, 9, "", "", ""))) == []
    assert not list(tmp_path.iterdir())
    assert look_into(held, (DataFile("a.csv", False, 9, "", "", ""),)) == []
    assert "ended early" in (tmp_path / "trouble-tables").read_text()


def test_files_that_changed_or_were_written_are_left_alone(tmp_path: Path, data: Path) -> None:
    kelvin_for_some_days(data)
    run_of(tmp_path / "run", data)
    assert [shown for _, shown in read_files(str(tmp_path / "run"))]
    os.utime(data / "grid.csv", (1, 1))
    assert read_files(str(tmp_path / "run")) == []


def test_settings_beside_the_source_are_read_with_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("y = frame[config['target']]\n")
    (tmp_path / "config.toml").write_text('target = "price"\n')
    (tmp_path / "sources-1").write_text(f"{tmp_path / 'train.py'}\n")
    assert any("price" in text for text in sources(str(tmp_path)))


def test_the_strongest_answer_is_told_with_all_its_places() -> None:
    from clew.records.place import Place

    weak = Found(Saw("missing").at(Place("a.csv")).saying("a."), 2)
    strong = [Found(Saw("infinite").at(Place(name)).saying(f"{name}."), 3) for name in ("b.csv", "c.csv")]
    answer = strongest([weak, *strong])
    assert isinstance(answer, Saw)
    assert (answer.outcome, answer.says) == ("infinite", "b.csv. c.csv.")
    assert [place.file for place in answer.where] == ["b.csv", "c.csv"]


def test_labels_that_nothing_tells_follow_from_another_unit() -> None:
    units = {"file_units": Saw("other_in_validation").saying("Pixels differ.")}
    assert isinstance(sobered("file_labels_fit", Saw("chance_in_part"), {**units}), Unclear)
    assert isinstance(sobered("file_labels_fit", Saw("slid"), {**units}), Saw)
    assert isinstance(sobered("file_labels_fit", Saw("noisy"), {}), Saw)


def test_the_process_reads_what_the_run_takes_for_tables() -> None:
    assert set(ENDINGS) == set(READABLE)
    assert beside_endings == files.LINES


def test_every_check_is_listed() -> None:
    names = {path.stem for path in Path(checks.__path__[0]).glob("file_*.py")}
    assert names == set(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_says_only_what_the_knowledge_base_knows(name: str) -> None:
    module = importlib.import_module(f"clew.data.checks.{name}")
    knowledge = load()
    test = knowledge.tests[name]
    assert test.by == "observe"
    doc = module.__doc__ or ""
    for heading in HEADINGS:
        assert heading in doc, heading
    claims = doc.partition("Sources:")[2].strip().rstrip(".").split(", ")
    assert set(claims) <= set(knowledge.claims)
    tree = ast.parse(inspect.getsource(module))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Saw"]
    said = {node.args[0].value for node in calls if isinstance(node.args[0], ast.Constant)}
    assert said <= {outcome.name for outcome in test.outcomes}


def test_files_of_lines_are_counted_where_none_of_them_is_a_table(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    beside(data, "train", 200, lost=(50,), words="src tgt")
    held, files = run_of(tmp_path / "run", data)
    (clue,) = (clue for clue in look_into(held, files) if clue.test == "file_lines_paired")
    assert (clue.outcome, str(clue.where[0])) == ("uneven", "data/train.tgt")


def test_weights_are_no_lines_of_a_language() -> None:
    assert not any(holds_lines(f"model{ending}") for ending in (".pt", ".py", ".npy", ".csv", ".json", ".bin"))
