"""Every warning beside a verdict, with its numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from clew.sweep.crash_logs import shows
from clew.sweep.warn import brown_forsythe, expected_maximum
from conftest import Clew

Row = dict[str, Any]


def warned(clew: Clew, tmp_path: Path, held: list[Row], *words: str) -> dict[str, str]:
    names = list(dict.fromkeys(name for row in held for name in row))
    lines = [",".join(names)] + [",".join(str(row.get(name, "")) for name in names) for row in held]
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    clew("sweep", "judge", "runs.csv", "--metric", "acc", "--param", "lr", "--json", "out.json", *words)
    group = json.loads((tmp_path / "out.json").read_text())["groups"][0]
    return {item["id"]: item["says"] for item in [*group["warnings"], *group["params"][0]["warnings"]]}


def rows(values: list[Any], seeds: int, effect: Any = lambda _v, _s: 0.0, noise: float = 0.01) -> list[Row]:
    random = np.random.default_rng(5)
    return [
        {"lr": value, "seed": seed, "acc": float(0.7 + effect(value, seed) + noise * random.normal())}
        for seed in range(seeds)
        for value in values
    ]


def test_also_varies_with_how_many_values(clew: Clew, tmp_path: Path) -> None:
    held = [{**row, "batch_size": 16 if row["lr"] == 1 else 32} for row in rows([1, 2, 3], 6)]
    assert "batch_size (2 values)" in warned(clew, tmp_path, held)["also_varies"]


def test_one_seed(clew: Clew, tmp_path: Path) -> None:
    held = [*rows([1, 2], 6), {"lr": 3, "seed": 0, "acc": 0.7}]
    assert "One seed only: 3." in warned(clew, tmp_path, held)["one_seed"]


def test_missing_cells_seed_sets_and_duplicates(clew: Clew, tmp_path: Path) -> None:
    held = [*rows([1, 2, 3], 6)[:-2], rows([1, 2, 3], 6)[0]]
    found = warned(clew, tmp_path, held)
    assert "2 of 18 cells have no run: 2 with seed 5, 3 with seed 5." in found["missing_cells"]
    assert "5 of 6 seeds have every value" in found["seed_sets_differ"]
    assert found["duplicates"].startswith("1 runs repeat")


def test_crashed_runs_with_rates_states_and_logs(clew: Clew, tmp_path: Path) -> None:
    held = [{"run_id": f"r{at}", "state": "finished", **row} for at, row in enumerate(rows([1, 2, 3], 6))]
    (tmp_path / "logs").mkdir()
    for at in (0, 3, 6):
        held[at] |= {"state": "crashed", "acc": "", "log": f"logs/{at}.log"}
        text = (
            f"epoch {at}\nTraceback (most recent call last):\nRuntimeError: CUDA out of memory: {at} GiB\n 10%|#  |\n"
        )
        (tmp_path / "logs" / f"{at}.log").write_text(text)
    found = warned(clew, tmp_path, held)
    assert "of 3 of them show last: 3 x RuntimeError: CUDA out of memory" in found["crash_logs"]
    assert "3 cells crashed (1: 3 of 6)" in found["crashed"]
    assert "Their state: crashed." in found["crashed"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nValueError: bad 3\n", "ValueError: bad 3"),
        ("torch.OutOfMemoryError: CUDA out of memory.\nTerminating\n", "torch.OutOfMemoryError: CUDA out of memory."),
        ("step 1 loss nan\n 20%|###      | 2/10 [00:01<00:04, 1.9it/s]\n", "step 1 loss nan"),
        ("Killed\n", "Killed"),
        ("\n\n", ""),
    ],
)
def test_what_a_log_shows(text: str, expected: str) -> None:
    assert shows(text) == expected


def test_a_lucky_seed_with_its_results(clew: Clew, tmp_path: Path) -> None:
    found = warned(clew, tmp_path, rows([1, 2, 3], 6, lambda v, s: 0.4 * (v == 2 and s == 4)))
    assert "Seed 4 carries the lead of 2: 1.1" in found["lucky_seed"]


def test_best_of_many_beside_what_noise_makes(clew: Clew, tmp_path: Path) -> None:
    found = warned(clew, tmp_path, rows(list(range(1, 13)), 4))
    assert found["best_of_many"].startswith("Best of 12: noise alone would put the best")
    assert expected_maximum(12) == pytest.approx(1.62923, abs=1e-4)


def test_saturated(clew: Clew, tmp_path: Path) -> None:
    held = [{**row, "acc": 1.0 if row["seed"] > 1 else row["acc"]} for row in rows([1, 2, 3], 6)]
    assert "67% of the results are exactly 1" in warned(clew, tmp_path, held)["saturated"]


def test_spreads_that_differ(clew: Clew, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    held = rows([1, 2], 12, lambda v, _: 0.3 * random.normal() * (v == 2))
    found = warned(clew, tmp_path, held)
    assert "standard deviation" in found["spreads_differ"]
    assert "spreads_differ" not in warned(clew, tmp_path, rows([1, 2], 12))


def test_brown_forsythe_is_that_of_scipy() -> None:
    random = np.random.default_rng(2)
    columns = [random.normal(size=9) * scale for scale in (1.0, 2.0, 1.5)]
    assert brown_forsythe(columns) == pytest.approx(stats.levene(*columns, center="median").pvalue)


def test_a_cliff_beside_the_leader(clew: Clew, tmp_path: Path) -> None:
    held = rows([1, 2, 3, 4, 5], 6, lambda v, _: {1: 0.0, 2: 0.05, 3: 0.1, 4: -0.3, 5: -0.3}[v])
    assert "3 leads, and next to it 4 loses" in warned(clew, tmp_path, held)["cliff"]
    gone = [{**row, "acc": "nan" if row["lr"] > 3 else row["acc"]} for row in held]
    assert "crashed in 6 of 6" in warned(clew, tmp_path, gone)["cliff"]
    assert "cliff" not in warned(clew, tmp_path, rows([1, 2, 3, 4, 5], 6, lambda v, _: 0.1 * v))


def test_a_lead_that_skewed_noise_could_make_is_left_open(clew: Clew, tmp_path: Path) -> None:
    gaps = [0.01, 0.06, 0.02, 0.005, 0.03, 0.015, 0.08]
    held = [{"lr": v, "seed": s, "acc": 0.7 + (gap if v == 2 else 0.0)} for s, gap in enumerate(gaps) for v in (1, 2)]
    warned(clew, tmp_path, held)
    param = json.loads((tmp_path / "out.json").read_text())["groups"][0]["params"][0]
    assert (param["verdict"], param["best"]) == ("too_few_seeds", None)
    assert "skewed noise" in param["says"]
