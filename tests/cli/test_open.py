"""Finding a run again: `clew open`, `clew show SCRIPT`, links that a terminal opens, and rules by their code."""

import os
import stat
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

from clew.archive import runs
from clew.archive.model import Run
from clew.records.place import near
from conftest import Clew


@pytest.fixture
def two(clew: Clew, monkeypatch: pytest.MonkeyPatch) -> tuple[Clew, list[Run]]:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    held = []
    for script in ("train.py", "other.py"):
        Path(script).write_text("")
        run = runs.begin(["python", script], script=script)
        Path(run.path("report.html")).write_text(f"<p>{script}</p>")
        runs.finish(run, 0)
        held.append(run)
    return clew, held


def test_open_prints_a_link_and_calls_the_browser(two: tuple[Clew, list[Run]], monkeypatch: pytest.MonkeyPatch) -> None:
    clew, (first, last) = two
    said = clew("open")
    assert said.status == 0
    link = urlparse(said.out.strip())
    assert link.scheme == "file"
    assert Path(unquote(link.path)) == Path(last.folder, "report.html")
    browser = Path("browser")
    browser.write_text('#!/bin/sh\necho "$1" > opened\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("BROWSER", f"{browser.absolute()} %s")
    said = clew("open", "train.py")
    assert first.id in said.out
    assert Path("opened").read_text() == said.out
    assert clew("open", "nothing.py").status == 2


def test_a_run_that_goes_on_has_no_report_yet(two: tuple[Clew, list[Run]]) -> None:
    clew, (_, last) = two
    going = runs.begin(["python", "train.py"], script="train.py")
    for words in (("open",), ("exam", "last")):
        said = clew(*words)
        assert said.status == 2
        assert f"the run {going.id} is still running" in said.err
        assert "last~1" in said.err
    assert last.id in clew("open", "last~1").out


def test_a_script_names_its_latest_run(two: tuple[Clew, list[Run]]) -> None:
    clew, (first, _) = two
    for name in ("train.py", str(Path("train.py").absolute())):
        assert first.id in clew("show", name).out
    Path("below").mkdir()
    os.chdir("below")
    assert first.id in clew("show", "../train.py").out
    assert clew("show", "strain.py").status == 2


def test_paths_are_relative_below_here_and_whole_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    assert near(str(tmp_path / "a" / "b")) == "b"
    assert near(str(tmp_path / "c")) == str(tmp_path / "c")
    assert near(str(tmp_path / "ab")) == str(tmp_path / "ab")


def test_why_knows_the_rules_of_lint(clew: Clew) -> None:
    for words in (("CLW106",), ("clw106",)):
        assert clew("why", *words).out == clew("lint", "--explain", "CLW106").out
    said = clew("why", "CLW9999")
    assert said.status == 2
    assert "there is no rule" in said.err
