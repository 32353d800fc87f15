"""The knowledge files are checked at load, and a fault is named by file, entry and field."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from clew.case.choose import Choice
from clew.errors import ClewError
from clew.knowledge import load
from clew.knowledge.base import FOLDER, _digest, cache_path
from clew.knowledge.schema import compile_folder
from clew.knowledge.search import by_id
from clew.report.terminal import _prediction
from clew.report.text import Page
from clew.report.why import entry_page

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDER, tmp_path / "data"))


def fault(folder: Path) -> str:
    with pytest.raises(ClewError) as caught:
        compile_folder(str(folder))
    return str(caught.value)


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_everything_in_the_vocabulary_is_described() -> None:
    knowledge = load()
    vocabulary = tomllib.loads((Path(FOLDER) / "vocabulary.toml").read_text())
    assert set(knowledge.causes) == set(vocabulary["cause"])
    assert len(knowledge.tests) >= 60


def test_the_vocabulary_is_the_agreed_one() -> None:
    agreed = SHARED / "causes.toml"
    if agreed.exists():
        ours = tomllib.loads((Path(FOLDER) / "vocabulary.toml").read_text())
        theirs = tomllib.loads(agreed.read_text())
        assert set(theirs["cause"]) <= set(ours["cause"])
        assert ours["family"] == theirs["family"]
    assert len(load().causes) >= 98


def test_the_cache_gives_back_the_same_knowledge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("clew.knowledge.base._held", {})
    fresh = load()
    path = cache_path("knowledge", _digest(FOLDER))
    assert path.startswith(str(tmp_path))
    assert os.path.exists(path)
    monkeypatch.setattr("clew.knowledge.base._held", {})
    monkeypatch.setattr("clew.knowledge.schema.compile_folder", None)
    assert load() == fresh


@pytest.mark.parametrize("damage", [b"", b"{", b"x" * 31, b"\0" * 40, b"\xff" * 100_000])
def test_a_damaged_cache_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes) -> None:
    fresh = load()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = Path(cache_path("knowledge", _digest(FOLDER)))
    path.parent.mkdir(parents=True)
    path.write_bytes(damage)
    monkeypatch.setattr("clew.knowledge.base._held", {})
    assert load() == fresh
    assert path.read_bytes() != damage


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clew").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("clew.knowledge.base._held", {})
    assert load().causes


def test_a_missing_field(folder: Path) -> None:
    path = folder / "causes" / "loss.toml"
    text = path.read_text()
    start = text.index('["loss.double_softmax"]')
    head, tail = text[:start], text[start:]
    path.write_text(head + re.sub(r'\nmend = ".*"\n', "\n", tail, count=1))
    assert "causes/loss.toml: loss.double_softmax: mend: is missing" in fault(folder)


def test_an_unknown_cause_suggests_the_nearest(folder: Path) -> None:
    path = folder / "causes" / "loss.toml"
    path.write_text(path.read_text().replace('"loss.double_softmax"', '"loss.double_softmacks"'))
    said = fault(folder)
    assert "loss.double_softmacks: (entry): is not in vocabulary.toml; did you mean loss.double_softmax" in said
    assert "causes/loss.toml: loss.double_softmax: (entry): is missing" in said


def test_probabilities_must_sum_to_one(folder: Path) -> None:
    path = folder / "tests" / "numerics.toml"
    text = path.read_text()
    path.write_text(re.sub(r"\nhealthy = \[.*?\]", "\nhealthy = [0.5, 0.4]", text, count=1, flags=re.S))
    said = fault(folder)
    assert "tests/numerics.toml" in said
    assert "healthy" in said


def test_a_name_that_is_not_a_field(folder: Path) -> None:
    change(folder / "antipatterns.toml", "temptation =", "temptaton =")
    said = fault(folder)
    assert "temptation: is missing" in said
    assert "temptaton: is not a field of this kind of entry" in said


def test_a_reference_to_nothing(folder: Path) -> None:
    path = folder / "causes" / "num.toml"
    text = path.read_text()
    path.write_text(re.sub(r'refute_test = ".*?"', 'refute_test = "first_nonfinit"', text, count=1))
    assert "refute_test: 'first_nonfinit' is not a known test; did you mean first_nonfinite" in fault(folder)


def test_all_faults_are_reported_at_once(folder: Path) -> None:
    change(folder / "antipatterns.toml", "temptation =", "temptaton =")
    change(folder / "habits.toml", "habit =", "habbit =")
    said = fault(folder)
    assert "antipatterns.toml" in said
    assert "habits.toml" in said


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[a\n", "is not valid TOML"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"x = 1\n", "should be a table"),
        (b"\x00\x01\x02", "not valid TOML"),
    ],
)
def test_bad_files_get_one_sentence(folder: Path, content: bytes, says: str) -> None:
    (folder / "habits.toml").write_bytes(content)
    said = fault(folder)
    assert says in said
    assert "habits.toml" in said


def test_an_unreadable_file(folder: Path) -> None:
    (folder / "habits.toml").unlink()
    (folder / "habits.toml").mkdir()
    assert "habits.toml cannot be read" in fault(folder)


@pytest.mark.parametrize("by", ["observe", "exam", "log", "sweep", "probe"])
def test_a_test_that_claims_a_missing_instrument_is_a_fault(folder: Path, by: str) -> None:
    check = [sys.executable, "-m", "clew.knowledge", str(folder)]
    assert subprocess.run(check, capture_output=True).returncode == 0
    path = folder / "tests" / "loss.toml"
    head, tail = path.read_text().split("[loss_surface]", 1)
    path.write_text(head + "[loss_surface]" + tail.replace('by = "person"', f'by = "{by}"', 1))
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"loss_surface: by: no instrument of {by}" in done.stderr


def test_what_a_person_makes_is_offered_without_seconds() -> None:
    known = load()
    assert all(known.tests[name].person for name in ("loss_surface", "baseline_ladder", "probe_discounting"))
    loss_surface = by_id(known, "loss_surface")
    assert loss_surface
    told = "\n".join(entry_page(known, loss_surface, [], Page(200)).lines)
    assert "clew loss" not in told
    assert "made by hand" in told
    choice = Choice("loss_surface", 0.5, 245.0, (("loss.saturated", "dead_zone", 0.8),))
    assert _prediction(choice, known.tests["loss_surface"], timed=True).endswith("Worth 0.50 bits, made by hand.")
