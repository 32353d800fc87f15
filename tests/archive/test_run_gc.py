"""Throwing away: only what was asked for, never what runs, never what somebody still needs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clew.archive import code, files, runs
from clew.archive.gc import gc
from clew.archive.home import objects_folder, runs_folder
from clew.archive.model import Run
from clew.errors import ClewError

RACER = """
import sys
from clew.archive import code, runs
for index in range(40):
    run = runs.begin(["race"])
    open(sys.argv[1], "w").write(sys.argv[1])
    code.snapshot(run, [sys.argv[1]])
    for item in code.read(run):
        code.fetch(run, item)
    runs.finish(run, 0)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLEW_HOME", str(tmp_path / ".clew"))
    return tmp_path


def made(name: str, content: str, ended_days_ago: float | None = 0.0) -> Run:
    run = runs.begin([name])
    Path("train.py").write_text(content)
    code.snapshot(run, ["train.py"])
    if ended_days_ago is not None:
        runs.finish(run, 0)
        ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 86_400 * ended_days_ago))
        files.write_table(run.path("end.json"), {**files.read_table(run.path("end.json")), "ended": ended})
    return run


def left() -> list[str]:
    return [record.command[0] for record in runs.all_runs().records]


def contents() -> int:
    return sum(len(names) for where, _, names in os.walk(objects_folder()) if where != objects_folder())


def test_with_nothing_said_no_run_goes() -> None:
    made("a", "1", 99)
    done = gc()
    assert (done.runs, done.objects, left()) == ((), 0, ["a"])


def test_by_age_by_number_and_both() -> None:
    for name, days in (("old", 40), ("older", 39), ("new", 1), ("newest", 0)):
        made(name, name, days)
    assert len(gc(older_than=30 * 86_400, dry_run=True).runs) == 2
    assert len(gc(keep=1, dry_run=True).runs) == 3
    assert len(gc(keep=3, older_than=30 * 86_400, dry_run=True).runs) == 1
    assert left() == ["old", "older", "new", "newest"]
    done = gc(older_than=30 * 86_400)
    assert left() == ["new", "newest"]
    assert done.objects == 2
    assert done.freed > 0
    assert contents() == 2
    with pytest.raises(ClewError, match="cannot be -1"):
        gc(keep=-1)


def test_a_dry_run_says_what_would_be_freed_and_changes_nothing() -> None:
    made("a", "only a", 9)
    made("b", "both", 9)
    made("c", "both")
    before = sorted(str(path) for path in Path(".clew").rglob("*"))
    would = gc(keep=1, dry_run=True)
    assert sorted(str(path) for path in Path(".clew").rglob("*")) == before
    done = gc(keep=1)
    assert (would.runs, would.objects, would.freed) == (done.runs, done.objects, done.freed)
    assert done.objects == 1, "the content that c still uses stays"
    assert left() == ["c"]


def test_a_running_run_is_never_removed() -> None:
    made("runs", "1", None)
    made("ended", "2")
    done = gc(keep=0, older_than=0.0)
    assert left() == ["runs"]
    assert len(done.running) == 1
    assert contents() == 1


def test_what_cannot_be_read_is_left_alone() -> None:
    run = made("future", "1", 9)
    Path(run.path("run.json")).write_text('{"schema": "clew/2"}')
    done = gc(keep=0)
    assert os.path.isdir(run.folder)
    assert contents() == 1
    assert any("newer clew" in remark for remark in done.remarks)
    Path(run.path("code.json")).write_text("{")
    made("gone", "2", 9)
    done = gc(keep=0)
    assert left() == []
    assert contents() == 2
    assert any("source files were left alone" in remark for remark in done.remarks)


def test_what_dead_processes_left_behind() -> None:
    base = Path(runs_folder())
    made("a", "1")
    for name in (f"{runs.GONE}x", f"{runs.STAGING}old", f"{runs.STAGING}young"):
        (base / name).mkdir()
    os.utime(base / f"{runs.STAGING}old", (1, 1))
    assert gc().leftovers == 2
    assert (base / f"{runs.STAGING}young").exists()
    assert left() == ["a"]


def test_an_empty_archive() -> None:
    assert gc(keep=0).freed == 0


def test_racing_with_runs_that_begin() -> None:
    """Contents that a run has just found in the store must not be taken from under it."""
    racers = [subprocess.Popen([sys.executable, "-c", RACER, f"same{index % 2}.py"]) for index in range(3)]
    while any(racer.poll() is None for racer in racers):
        gc(keep=0)
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    for record in runs.all_runs().records:
        for item in code.read(record.run):
            code.fetch(record.run, item)
