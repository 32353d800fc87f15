"""`clew runs` and `clew show`, as a person types them."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clew.cli
from clew.archive import code, runs
from clew.archive.model import Run
from clew.archive.output import OutputLog
from clew.records import exact
from conftest import Clew, Said


@pytest.fixture
def archive(clew: Clew, monkeypatch: pytest.MonkeyPatch) -> Clew:
    for name in ("runs", "show"):
        if name not in clew_commands():
            monkeypatch.setitem(clew_commands(), name, "the archive")
    Path(".clew").mkdir()
    return clew


def clew_commands() -> dict[str, str]:
    return clew.cli.COMMANDS


def made(*words: str, source: str = "print('hello')\n", verdict: str = "healthy", end: bool = True) -> Run:
    run = runs.begin([sys.executable, "train.py", *words], ".", "train.py", labels={"seed": 1})
    Path("train.py").write_text(source)
    code.snapshot(run, ["train.py"])
    log = OutputLog.of(run.folder)
    log.write("out", "epoch 1 \033[31mloss\033[0m 2.3\n")
    log.write("err", "a warning\n")
    log.flush()
    points = [["loss", "", step, 1.0 / (step + 1)] for step in range(40)] + [["norm", "head.weight", 3, math.nan]]
    Path(run.path("trace-9.jsonl")).write_text("".join(exact.dumps(point) + "\n" for point in points))
    if end:
        runs.finish(run, 0, seconds=float(len(words)), steps=40, verdict=verdict)
    return run


def fits(said: Said) -> bool:
    return all(len(line) <= 80 for line in said.out.splitlines())


def test_an_empty_archive(archive: Clew) -> None:
    said = archive("runs")
    assert said.status == 0
    assert "no run here yet" in said.out
    assert archive("show", "last").err.startswith("clew: there is no run in ")
    assert archive("runs", "gc").status == 0
    assert os.listdir(".clew") == [], "looking changes nothing"


def test_the_list(archive: Clew) -> None:
    first, second, third = made("--lr", "1"), made(verdict="fault"), made("a", "b", "c", end=False)
    said = archive("runs")
    assert fits(said)
    rows = [line.split()[0] for line in said.out.splitlines()]
    assert rows == ["RUN", third.id, second.id, first.id]
    assert "running" in said.out.splitlines()[1]
    assert "--lr 1" in said.out.splitlines()[3]
    assert archive("runs", "--sort", "verdict").out.split()[5] == second.id
    assert archive("runs", "--sort", "seconds", "--verdict", "finished").out.split()[5] == first.id
    assert "2 more" in archive("runs", "-n", "1").out
    assert archive("runs", "--script", "other").out.startswith("None of the 3 runs")
    assert archive("runs", "--verdict", "helthy").err.endswith("did you mean healthy?\n")
    assert archive("runs", "--sort", "mood").status == 2
    Path(second.path("run.json")).write_text("")
    said = archive("runs")
    assert said.status == 0
    assert first.id in said.out
    assert "is damaged" in said.out


def test_one_run(archive: Clew) -> None:
    run = made("--lr", "1", verdict="fault")
    cause = {
        "id": "loss.double_softmax",
        "kind": "finding",
        "credence": 0.97,
        "where": [{"file": "train.py", "line": 4}] * 2,
    }
    Path(run.path("report.json")).write_text(json.dumps({"schema": "clew/1", "causes": [cause]}))
    said = archive("show", "last", "--json", "out.json")
    assert said.status == 1
    assert fits(said)
    for words in (
        "FAULT",
        "loss.double_softmax at train.py:4:",
        "0.025",
        "epoch 1 loss 2.3",
        "seed 1",
        "1 more: norm",
    ):
        assert words in said.out
    assert "\033" not in said.out
    table = exact.loads(Path("out.json").read_text())
    assert (table["schema"], table["command"], table["run"]["id"]) == ("clew/1", "show", run.id)
    assert table["run"]["argv"][1:] == ["train.py", "--lr", "1"]
    assert math.isnan(table["metrics"][1]["last"])
    assert table["report"]["causes"][0]["id"] == "loss.double_softmax"


def test_the_parts_of_a_run(archive: Clew) -> None:
    run = made()
    assert archive("show", run.id, "--output").out == "epoch 1 loss 2.3\na warning\n"
    assert archive("show", "last", "--code").out.split()[-1] == "train.py"
    assert archive("show", "last", "--code", "train.py").out == "print('hello')\n"
    assert "did you mean train.py" in archive("show", "last", "--code", "trian.py").err
    said = archive("show", "last", "--metrics", "loss")
    assert "40 points, last 0.025, least 0.025, most 1" in said.out
    assert len(said.out.splitlines()) == 18
    assert "1 not finite, first at step 3" in archive("show", "last", "--metrics", "norm/head.weight").out
    assert "did you mean loss" in archive("show", "last", "--metrics", "los").err
    assert "has no HTML report" in archive("show", "last", "--html", "x.html").err
    assert not os.path.exists("x.html")
    Path(run.path("report.html")).write_text("<!doctype html>")
    assert archive("show", "last", "--html", "x.html").status == 0
    assert Path("x.html").read_text() == "<!doctype html>"


def test_torn_output_is_said(archive: Clew) -> None:
    run = made()
    path = Path(run.path("output.jsonl"))
    path.write_bytes(path.read_bytes()[:-5])
    said = archive("show", "last", "--output")
    assert said.out == "epoch 1 loss 2.3\n"
    assert "output.jsonl are torn" in said.err
    assert "output.jsonl are torn" in " ".join(archive("show", "last").out.split())


def test_damaged_parts_cost_themselves(archive: Clew) -> None:
    run = made()
    for name in ("code.json", "report.json", "end.json"):
        Path(run.path(name)).write_text("{")
    said = archive("show", "last")
    assert said.status == 0
    text = " ".join(said.out.split())
    for name in ("code.json", "report.json", "end.json"):
        assert f"{name} is damaged" in text.replace("- ", "-")
    assert "loss" in text


def test_what_changed(archive: Clew) -> None:
    made("--lr", "1")
    made("--lr", "2", source="print('other')\n", verdict="fault")
    said = archive("runs", "diff", "last~1", "last", "--json", "out.json")
    assert said.status == 1
    for words in ("--lr: 1 → 2", "-print('hello')", "+print('other')", "verdict: healthy → fault", "the same value"):
        assert words in said.out
    table = exact.loads(Path("out.json").read_text())
    assert table["command"] == "runs diff"
    assert table["code"][0]["path"] == "train.py"
    assert archive("runs", "diff", "last", "last").status == 0
    assert archive("runs", "diff", "last", "nothing").status == 2


def test_running_again(archive: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    made(source="import os; open(os.environ['CLEW_HOME'] + '/seen', 'w').write('old'); raise SystemExit(3)\n")
    Path("train.py").write_text("raise SystemExit(4)\n")
    assert archive("runs", "rerun", "last", "--only-prepare").status == 0
    assert not Path(".clew/seen").exists()
    said = archive("runs", "rerun", "last")
    assert said.status == 3
    assert "on 1 source file as it was" in said.out
    assert Path(".clew/seen").read_text() == "old"


def test_throwing_away(archive: Clew) -> None:
    made()
    made(end=False)
    said = archive("runs", "gc", "--keep", "0", "--dry-run")
    assert said.out.startswith("Would remove 1 run and 0 source files")
    assert "1 running: left alone" in said.out
    assert archive("runs", "gc", "--older-than", "30d").out.startswith("Removed 0 runs")
    assert archive("runs", "gc", "--older-than", "soon").err.startswith("clew: an age is a number with")
    assert archive("runs", "gc", "--keep", "0").out.startswith("Removed 1 run")
    assert len(archive("runs").out.splitlines()) == 2


def test_control_characters_do_not_reach_the_terminal(archive: Clew) -> None:
    made("--name", "red \033[2J\a")
    for words in (["runs"], ["show", "last"], ["runs", "diff", "last", "last"]):
        out = archive(*words).out
        assert "\033" not in out
        assert "\a" not in out


@pytest.mark.parametrize("words", [["runs"], ["show", "last"], ["runs", "diff", "last", "last"], ["runs", "gc"]])
def test_nothing_heavy_is_imported(archive: Clew, words: list[str]) -> None:
    made()
    assert archive("runs").status == 0
    script = """
import sys
import clew.cli
clew.cli.COMMANDS.update(runs="the archive", show="one run")
clew.cli.main(sys.argv[1:])
heavy = {"torch", "numpy", "pandas", "pyarrow", "jinja2", "dataclasses", "inspect", "pathlib", "tempfile", "subprocess"}
print(*(heavy & set(sys.modules)), file=sys.stderr)
"""
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_show_all_lists_what_the_report_promised(archive: Clew) -> None:
    run = runs.begin(["python", "train.py"])
    runs.finish(run, 0)
    clues = [
        {"test": "init_loss", "outcome": "at_chance", "says": "at chance"},
        {"test": "update_ratio", "outcome": "zero", "says": "updates are tiny"},
        {"test": "overfit_one_batch", "outcome": "unclear", "why": "there is no batch"},
    ]
    table = {"schema": "clew/1", "verdict": "suspect", "causes": [], "clues": clues, "run": {"files": []}}
    Path(run.path("report.json")).write_text(json.dumps(table))
    said = archive("show", run.id, "--all")
    assert said.status == 0, said.err
    assert "Passed (1)\n  init_loss" in said.out
    assert "Did not apply, or lacked data or time (1)\n  - overfit_one_batch: there is no batch" in said.out
    assert "updates are tiny" in said.out
