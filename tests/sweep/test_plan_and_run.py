"""`clew sweep plan` and `clew sweep run`: cost, power, order; a killed run, a killed scheduler, going on, filling."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clew.archive import runs
from clew.sweep.local import groups_of, pattern
from clew.sweep.plan import queue, read_plan
from clew.sweep.sources import code_digest, sources
from conftest import Clew

PYTHON = shlex.quote(sys.executable)
PLAN = """
question = "Does it matter?"
name = "lr"
command = "{python} train.py --lr {{lr}} --seed {{seed}}"
metric = "acc"
seeds = [0, 1, 2]
seconds = 60

[params]
lr = [0.01, 0.1]
"""
TRAIN = """
import os, sys, time
from helper import value
lr, seed = float(sys.argv[2]), int(sys.argv[4])
if lr == 0.1 and seed == 1 and os.path.exists("crash"):
    print("going down", flush=True)
    os.kill(os.getpid(), 9)
if os.path.exists("slow"):
    time.sleep(0.5)
print("acc: 0.1")
print(f"acc: {value(lr, seed)!r}")
"""


@pytest.fixture
def sweep(clew: Clew, tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("def value(lr, seed):\n    return lr + seed\n")
    (tmp_path / "lr.toml").write_text(PLAN.format(python=PYTHON))
    assert clew is not None
    return tmp_path


def test_a_plan_says_cost_power_and_order(clew: Clew, sweep: Path) -> None:
    said = clew("sweep", "plan", "lr.toml", "--price-per-hour", "10", "--effect", "1", "--json", "plan.json")
    assert said.status == 0
    table = json.loads((sweep / "plan.json").read_text())
    assert (table["runs"], table["total_seconds"], table["cost"]) == (6, 360.0, pytest.approx(1.0))
    assert table["needed"] == 10
    assert "six seeds" in said.out
    assert table["order"][:3] == ["lr=0.01 seed=0", "lr=0.1 seed=0", "lr=0.1 seed=1"]


def test_the_order_completes_seed_after_seed(sweep: Path) -> None:
    jobs = queue(read_plan(str(sweep / "lr.toml")))
    for seed in range(3):
        assert {dict(job.point)["lr"] for job in jobs[2 * seed : 2 * seed + 2]} == {0.01, 0.1}
        assert {job.seed for job in jobs[2 * seed : 2 * seed + 2]} == {seed}


def test_a_sweep_runs_and_is_judged(clew: Clew, sweep: Path) -> None:
    said = clew("sweep", "run", "lr.toml", "--jobs", "2")
    assert said.status == 0
    records = runs.all_runs(str(sweep / ".clew")).records
    assert len(records) == 6
    labels = dict(records[0].labels)
    assert str(labels["group"]).startswith("lr-")
    said = clew("sweep", "judge", ".", "--metric", "acc", "--json", "out.json")
    param = json.loads((sweep / "out.json").read_text())["groups"][0]["params"][0]
    assert param["name"] == "lr"
    assert [row["mean"] for row in param["values"]] == pytest.approx([1.01, 1.1])


def test_a_killed_run_is_kept_and_costs_itself_alone(clew: Clew, sweep: Path) -> None:
    (sweep / "crash").touch()
    (sweep / "lr.toml").write_text(PLAN.format(python=PYTHON).replace("[0, 1, 2]", "[0, 1, 2, 3, 4]"))
    said = clew("sweep", "run", "lr.toml", "--jobs", "2")
    assert said.status == 1
    assert "SIGKILL" in said.err
    assert "going down" in said.err
    records = runs.all_runs(str(sweep / ".clew")).records
    assert sorted(record.end.says for record in records if record.end) == ["SIGKILL", *["exit 0"] * 9]
    assert "0 runs to make, 10 are there" in clew("sweep", "run", "lr.toml", "--resume").err
    clew("sweep", "judge", ".", "--metric", "acc", "--json", "out.json")
    told = {item["id"]: item["says"] for item in json.loads((sweep / "out.json").read_text())["groups"][0]["warnings"]}
    assert "1 x going down" in told["crash_logs"]
    (sweep / "crash").unlink()
    assert "1 runs to make" in clew("sweep", "run", "lr.toml", "--resume", "--retry").err
    clew("sweep", "judge", ".", "--metric", "acc", "--json", "out.json")
    group = json.loads((sweep / "out.json").read_text())["groups"][0]
    assert group["n_runs"] == 11
    assert sum(row["crashed"] for row in group["params"][0]["values"]) == 0


def test_after_a_killed_scheduler_only_what_is_missing_runs(clew: Clew, sweep: Path) -> None:
    (sweep / "slow").touch()
    words = [sys.executable, "-m", "clew", "sweep", "run", "lr.toml"]
    scheduler = subprocess.Popen(words, cwd=sweep, stderr=subprocess.PIPE, text=True)
    assert scheduler.stderr is not None
    while not scheduler.stderr.readline().startswith("[2/6]"):
        assert scheduler.poll() is None
    os.kill(scheduler.pid, signal.SIGKILL)
    scheduler.wait()
    scheduler.stderr.close()
    time.sleep(0.7)
    (sweep / "slow").unlink()
    said = clew("sweep", "run", "lr.toml", "--resume")
    assert ": 4 runs to make, 2 are there already" in said.err
    assert len(groups_of(str(sweep / ".clew"), "lr")) == 1


def test_a_fill_of_other_code_is_kept_apart(clew: Clew, sweep: Path) -> None:
    clew("sweep", "run", "lr.toml")
    (sweep / "lr.toml").write_text(PLAN.format(python=PYTHON).replace("[0, 1, 2]", "[0, 1, 2, 3]"))
    said = clew("sweep", "run", "lr.toml", "--resume")
    assert "2 runs to make, 6 are there" in said.err
    (sweep / "helper.py").write_text("def value(lr, seed):\n    return 0.0\n")
    said = clew("sweep", "run", "lr.toml", "--resume")
    assert "the code has changed" in said.err
    groups = [name for name, _, _ in groups_of(str(sweep / ".clew"), "lr")]
    assert len(groups) == 2
    said = clew("sweep", "judge", ".", "--metric", "acc", "--merge", *groups)
    assert said.status == 2
    assert "the code differs" in said.err


def test_a_child_files_its_tracked_runs_under_the_group(clew: Clew, sweep: Path) -> None:
    code = "import os\nprint('acc: 1', os.environ['WANDB_RUN_GROUP'], os.environ['MLFLOW_EXPERIMENT_NAME'])\n"
    (sweep / "train.py").write_text(code)
    said = clew("sweep", "run", "lr.toml")
    group = said.out.partition(":")[0]
    assert f"acc: 1 {group} {group}" in clew("show", "last", "--output").out


@pytest.mark.usefixtures("sweep")
def test_the_printed_command_works_where_it_was_printed(
    clew: Clew, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("CLEW_HOME", str(tmp_path_factory.mktemp("an archive elsewhere")))
    command = shlex.split(clew("sweep", "run", "lr.toml").out.splitlines()[-1])
    said = clew(*command[1:])
    assert (said.status, said.err) == (1, "")
    assert "lr: " in said.out


def test_ordinary_runs_beside_a_sweep_stay_out_of_it(clew: Clew, sweep: Path) -> None:
    at = str(sweep / ".clew")
    earlier = runs.begin(["python", "other.py", "--seed", "7", "--lr", "3"], ".", "other.py", home=at)
    (Path(earlier.folder) / "trace-1.jsonl").write_text('["memory_resident", "", 3, 5.0]\n["loss", "", 3, 0.5]\n')
    runs.finish(earlier, 0, seconds=1.0, steps=4, verdict="healthy")
    clew("sweep", "run", "lr.toml")
    said = clew("sweep", "judge", ".", "--metric", "acc", "--json", "out.json")
    table = json.loads((sweep / "out.json").read_text())
    (group,) = table["groups"]
    assert (group["n_runs"], group["n_seeds"], group["crashed"]) == (6, 3, 0)
    assert [param["name"] for param in group["params"]] == ["lr"]
    assert f"1 run without acc is left out: {earlier.id}." in " ".join(said.out.split())
    assert "inf" not in said.out


def test_imports_beside_the_script_are_its_code(sweep: Path) -> None:
    found = sources(("python", "train.py"), str(sweep))
    assert {os.path.basename(path) for path in found} == {"train.py", "helper.py"}
    before = code_digest(found, str(sweep))
    (sweep / "helper.py").write_text("value = None\n")
    assert code_digest(found, str(sweep)) != before


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("acc: 0.5", ["0.5"]),
        ('{"acc": 1e-3, "val_acc": 7}', ["1e-3"]),
        ("epoch 3 acc=nan", ["nan"]),
        ("val_acc 0.4", []),
        ("acc -inf", ["-inf"]),
        ("accuracy 0.4", []),
        ("acc 0.25 loss 3", ["0.25"]),
    ],
)
def test_readings_in_printed_lines(line: str, expected: list[str]) -> None:
    assert pattern("acc").findall(line) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("[params]", "[parms]"), "parms"),
        (("{lr}", "1"), "{lr}"),
        (("{seed}", "1"), "{seed}"),
        (("[0, 1, 2]", "[0, 0]"), "twice"),
        (("[0, 1, 2]", "[]"), "seeds"),
        (("[0.01, 0.1]", "[]"), "list of values"),
        (("[0.01, 0.1]", "{ low = 2, high = 1, count = 3 }"), "an empty range"),
        (("seconds = 60", "seconds = -1"), "seconds"),
        (("seconds = 60", "goal = 'up'"), "max or min"),
        (("seconds = 60", "= ="), "no TOML"),
    ],
)
def test_bad_plans(clew: Clew, sweep: Path, change: tuple[str, str], expected: str) -> None:
    text = PLAN.format(python=PYTHON).replace(*change)
    (sweep / "lr.toml").write_text(text)
    for verb in ("plan", "run"):
        said = clew("sweep", verb, "lr.toml")
        assert said.status == 2
        assert expected in said.err
    assert not (sweep / ".clew").exists()
