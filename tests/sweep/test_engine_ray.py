"""`clew sweep run --engine ray` on a real cluster of this machine, with a worker killed under a run."""

import importlib.util
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clew.archive import runs
from conftest import Clew

WITH_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'clew[ray]'"
)
PLAN = """
name = "lr"
command = "{python} train.py --lr {{lr}} --seed {{seed}}"
metric = "acc"
seeds = [0, 1]

[params]
lr = [0.01, 0.1]
"""
TRAIN = """
import json, os, sys, time
from helper import value
lr, seed = float(sys.argv[2]), int(sys.argv[4])
print("starting", flush=True)
if lr == 0.1 and seed == 1 and not os.path.exists("killed"):
    open("killed", "w").close()
    time.sleep(0.7)
    os.kill(os.getppid(), 9)
    time.sleep(3)
    open("survived", "w").close()
if lr == 0.01 and seed == 1:
    sys.exit("no good")
with open(os.environ["CLEW_SWEEP_METRICS"], "a") as file:
    file.write(json.dumps({"acc": value(lr, seed)}) + chr(10))
"""


def test_without_ray_it_is_said_what_to_install(clew: Clew, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lr.toml").write_text(PLAN.format(python=shlex.quote(sys.executable)))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name, *rest))
    said = clew("sweep", "run", "lr.toml", "--engine", "ray")
    assert said.status == 2
    assert "pip install 'clew[ray]'" in said.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--engine", "ray", "--gpus", "0"], "--gpus-per-run"),
        (["--address", "x:1"], "--engine ray"),
        (["--engine", "ray", "--jobs", "0"], "--jobs"),
        pytest.param(["--engine", "ray", "--address", "127.0.0.1:1"], "no Ray cluster answers", marks=WITH_RAY),
        pytest.param(["--engine", "ray", "--address", "here:port"], "HOST:PORT", marks=WITH_RAY),
        (["--engine", "ray", "--gpus-per-run", "-1"], "below zero"),
    ],
)
def test_options_that_do_not_go_together(clew: Clew, tmp_path: Path, words: list[str], expected: str) -> None:
    (tmp_path / "lr.toml").write_text(PLAN.format(python=shlex.quote(sys.executable)))
    said = clew("sweep", "run", "lr.toml", *words)
    assert said.status == 2
    assert expected in said.err


@WITH_RAY
def test_a_killed_worker_costs_its_run_and_that_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("def value(lr, seed):\n    return lr + seed\n")
    (tmp_path / "lr.toml").write_text(PLAN.format(python=shlex.quote(sys.executable)))
    words = [sys.executable, "-m", "clew", "sweep"]
    done = subprocess.run(
        [*words, "run", "lr.toml", "--engine", "ray", "--jobs", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1, done.stderr
    assert "worker lost, made again" in done.stderr
    assert "CRASHED (exit 1): no good" in done.stderr
    records = runs.all_runs(str(tmp_path / ".clew")).records
    assert sorted(record.end.says for record in records if record.end) == ["exit 0"] * 3 + ["exit 1", "lost"]
    lost = next(record for record in records if record.end and record.end.signal == "lost")
    assert "starting" in (Path(lost.run.folder) / "output.jsonl").read_text()
    again = next(record for record in records if record.rerun_of)
    assert again.rerun_of == lost.run.id
    assert json.loads((Path(again.run.folder) / "node.json").read_text())["shared_folder"] is True
    assert not (tmp_path / "survived").exists()
    resumed = subprocess.run(
        [*words, "run", "lr.toml", "--resume"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "0 runs to make, 4 are there already" in resumed.stderr
