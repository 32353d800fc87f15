"""Batteries: regressions against a stored baseline, which is never replaced unasked."""

import json
import shlex
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from clew.errors import ClewError
from clew.sweep.battery import Baseline, Battery, Results, compare, read_battery, stored, write_baseline
from conftest import Clew

TOML = """
name = "nightly"
command = "{python} train.py {{task}} {{seed}}"
metric = "acc"
seeds = [0, 1]
tasks = ["a", "b"]
"""


@pytest.fixture
def battery(tmp_path: Path) -> Battery:
    path = tmp_path / "n.toml"
    path.write_text(TOML.format(python="python").replace('["a", "b"]', '["a", "b", "c"]'))
    return read_battery(str(path))


def drawn(seeds: int, shift: dict[str, float], spread: float = 0.1, seed: int = 0) -> Results:
    random = np.random.default_rng(seed)
    return {
        task: {str(at): float(0.7 + 0.1 * at + spread * random.normal() + shift.get(task, 0.0)) for at in range(seeds)}
        for task in "abc"
    }


def against(battery: Battery, now: Results, old: Results) -> dict[str, str]:
    view = compare(battery, "g", now, "new", Baseline(old, "old", battery.plan.base, "then"))
    return {row.task: row.verdict for row in view.tasks}


def test_a_task_that_got_worse_is_named_and_the_others_are_not(battery: Battery) -> None:
    now, old = drawn(8, {"b": -1.0, "c": 1.0}, seed=1), drawn(8, {}, seed=2)
    assert against(battery, now, old) == {"a": "no_change", "b": "regressed", "c": "improved"}


def test_few_seeds_carry_no_verdict(battery: Battery) -> None:
    assert set(against(battery, drawn(5, {"b": -5.0}), drawn(5, {}, seed=2)).values()) == {"too_few_seeds"}
    assert against(battery, drawn(1, {}), drawn(1, {}))["a"] == "too_few_seeds"


def test_equal_to_the_last_bit(battery: Battery) -> None:
    view = compare(battery, "g", drawn(6, {}), "x", Baseline(drawn(6, {}), "x", battery.plan.base, "then"))
    assert view.verdict == "no_change"
    assert view.same_code
    assert "last bit" in view.tasks[0].says


def test_crashes_where_there_were_none_are_a_regression(battery: Battery) -> None:
    now = drawn(8, {})
    now["a"]["0"] = now["a"]["1"] = None
    assert against(battery, now, drawn(8, {}, seed=2))["a"] == "crashed_runs"
    now["a"] = dict.fromkeys(map(str, range(8)), 0.7)
    now["a"]["0"] = None
    view = compare(battery, "g", now, "new", Baseline(drawn(8, {}, seed=2), "old", battery.plan.base, "then"))
    assert view.tasks[0].crashed == 1
    assert view.tasks[0].verdict != "improved"


def test_the_adjusted_p_goes_through_every_turn(battery: Battery) -> None:
    now, old = drawn(4, {"a": 0.05}, seed=3), drawn(4, {}, seed=4)
    gaps = np.array([[now[task][str(at)] - old[task][str(at)] for task in "abc"] for at in range(4)])  # type: ignore[operator]

    def largest(turned: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> "list[float]":
        return [abs(float(one.mean() / (one.std(ddof=1) / 2.0))) for one in turned.T]

    observed = largest(gaps)
    every = [max(largest(gaps * np.array(signs)[:, None])) for signs in product((1, -1), repeat=4)]
    view = compare(battery, "g", now, "new", Baseline(old, "old", battery.plan.base, "then"))
    for row, t in zip(view.tasks, observed, strict=True):
        expected = np.mean([one >= t * (1 - 1e-9) for one in every])
        assert row.p_adjusted is not None
        assert row.p_adjusted >= expected - 1e-12


def test_noise_alone_seldom_regresses(battery: Battery) -> None:
    wrong = sum(
        "regressed" in against(battery, drawn(8, {}, seed=s), drawn(8, {}, seed=900 + s)).values() for s in range(150)
    )
    assert wrong <= 8


def test_another_command_is_not_compared(battery: Battery) -> None:
    write_baseline(battery.baseline, battery, drawn(6, {}), "x")
    held = stored(battery)
    assert held is not None
    assert held.results == drawn(6, {})
    with pytest.raises(ClewError, match="another command"):
        stored(battery._replace(plan=battery.plan._replace(command="python other.py {task} {seed}")))


def test_from_run_to_baseline_to_comparison(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('acc', len(sys.argv[1]) + int(sys.argv[2]))\n")
    (tmp_path / "n.toml").write_text(TOML.format(python=shlex.quote(sys.executable)))
    said = clew("sweep", "battery", "n.toml", "--keep", "--json", "out.json")
    assert said.status == 0
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "no_baseline"
    kept = (tmp_path / "nightly.baseline.json").read_bytes()
    refused = clew("sweep", "battery", "n.toml", "--keep")
    assert refused.status == 2
    assert "--replace" in refused.err
    assert "runs to make" not in refused.err
    said = clew("sweep", "battery", "n.toml", "--no-run", "--json", "out.json")
    assert said.status == 0
    assert json.loads((tmp_path / "out.json").read_text())["verdict"] == "no_change"
    assert (tmp_path / "nightly.baseline.json").read_bytes() == kept
    assert clew("sweep", "battery", "n.toml", "--no-run", "--keep", "--replace").status == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (('["a", "b"]', "[]"), "list of names"),
        (("tasks", "taks"), "did you mean tasks"),
        (("{task}", "x"), "{task}"),
        (('["a", "b"]', '["a", "a"]'), "twice"),
    ],
)
def test_bad_batteries(clew: Clew, tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    (tmp_path / "n.toml").write_text(TOML.format(python=shlex.quote(sys.executable)).replace(*change))
    said = clew("sweep", "battery", "n.toml")
    assert said.status == 2
    assert expected in said.err


def test_a_file_that_is_no_baseline(clew: Clew, tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text(TOML.format(python=shlex.quote(sys.executable)))
    (tmp_path / "nightly.baseline.json").write_text('{"schema": "clew/1"}')
    (tmp_path / "train.py").write_text("print('acc', 1)\n")
    said = clew("sweep", "battery", "n.toml")
    assert said.status == 2
    assert "no baseline of a battery" in said.err
    assert "runs to make" not in said.err
