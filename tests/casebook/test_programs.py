"""The known-good programs learn, every time: what their table promises is what they print.

A few fast ones run here; CLEW_CASEBOOK=all runs every program with three seeds.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from launching import environment

import clew

PROGRAMS = Path(clew.__file__).parent / "casebook" / "programs"
TABLE: dict[str, dict[str, Any]] = tomllib.loads((PROGRAMS / "programs.toml").read_text())["program"]
ALL = os.environ.get("CLEW_CASEBOOK") == "all"
FAST = ("digits_mlp", "sinc_lbfgs", "bird_probe", "churn_mlp", "notes_multilabel", "dqn_catch")
RUNS = [(name, seed) for name in TABLE for seed in range(3)] if ALL else [(name, 0) for name in FAST]
LAUNCHERS = {"python": (sys.executable,), "torchrun": (sys.executable, "-m", "torch.distributed.run")}
FIELDS = {"command", "metric", "kind", "style", "domain", "seconds"}

Run = Callable[..., str]


def run(command: tuple[str, ...], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, f"{command} in {folder.name}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="session")
def output(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What a program prints with a seed; its folder is copied, and its data made, once per session."""
    root = tmp_path_factory.mktemp("programs")
    printed: dict[tuple[str, int], str] = {}

    def program(name: str, seed: int, afresh: bool = False) -> str:
        if (name, seed) in printed and not afresh:
            return printed[name, seed]
        folder = root / name
        if not folder.exists():
            shutil.copytree(PROGRAMS / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
            if (folder / "make_data.py").exists():
                run((sys.executable, "make_data.py"), folder)
        first, *rest = TABLE[name]["command"]
        words = (word.replace("{seed}", str(seed)) for word in rest)
        printed[name, seed] = run((*LAUNCHERS[first], *words), folder)
        return printed[name, seed]

    return program


def final(name: str, out: str) -> float:
    metric = re.escape(TABLE[name]["metric"])
    said = re.fullmatch(rf"final {metric}=(-?[\d.]+)", out.splitlines()[-1])
    assert said, f"{name} ended with {out.splitlines()[-1]!r}"
    return float(said[1])


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_learns_what_the_table_promises(output: Run, name: str, seed: int) -> None:
    value = final(name, output(name, seed))
    row = TABLE[name]
    assert row.get("at_least", value) <= value <= row.get("at_most", value), f"{name}: {row['metric']} {value}"


@pytest.mark.parametrize("name", ["sinc_lbfgs", "churn_mlp", "dqn_catch"] if ALL else ["sinc_lbfgs"])
def test_the_seed_decides_the_run(output: Run, name: str) -> None:
    first = output(name, 0)
    assert output(name, 0, afresh=True) == first
    assert output(name, 1) != first


def test_the_table_names_every_folder() -> None:
    assert set(TABLE) == {path.parent.name for path in PROGRAMS.glob("*/train.py")}


@pytest.mark.parametrize("name", TABLE)
def test_row_is_complete(name: str) -> None:
    row = TABLE[name]
    assert row.keys() ^ FIELDS in ({"at_least"}, {"at_most"})
    assert row["domain"] in tomllib.loads((PROGRAMS.parents[1] / "knowledge/data/domains.toml").read_text())
    assert row["command"][0] in LAUNCHERS
    assert any("{seed}" in word for word in row["command"])
    assert 2 <= row["seconds"] <= 20


@pytest.mark.parametrize("name", TABLE)
def test_nothing_made_is_kept(name: str) -> None:
    """Data comes from make_data.py, which no program imports; only sources and settings are in the folder."""
    files = [path for path in (PROGRAMS / name).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in files} <= {".py", ".toml", ".json", ".yaml"}
    sources = [path.read_text() for path in files if path.name != "make_data.py"]
    assert not any(re.search(r"\bclew\b|make_data|casebook|mutant", text, re.IGNORECASE) for text in sources)
    assert all(len(text) < 20_000 for text in sources)
