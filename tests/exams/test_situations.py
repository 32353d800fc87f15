"""Ten situations from practice, each a script that knows nothing of clew, and its sound twin.

CLEW_SITUATIONS=all runs all twenty, which takes minutes; otherwise those whose fault only exams or the joined evidence
show, and a few twins.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from warm import warm_run

SCRIPTS = Path(__file__).parent / "situations"
ALL = os.environ.get("CLEW_SITUATIONS") == "all"


class Situation(NamedTuple):
    """The cause that must come first, and the line that must be named where there is one."""

    script: str
    cause: str
    line: int | None = None
    quick: bool = False


FAULTY = (
    Situation("softmax_into_cross_entropy", "loss.double_softmax", 34),
    Situation("labels_all_masked", "data.labels_masked", 52),
    Situation("label_in_the_input", "data.leak_target"),
    Situation("reshape_mixes_the_batch", "arch.batch_mixing", 27, quick=True),
    Situation("constant_feature_standardised", "data.nonfinite"),
    Situation("validation_in_training_mode", "train.train_mode_in_eval", 35),
    Situation("stale_token_cache", "env.stale_cache", 38, quick=True),
    Situation("bootstrap_over_terminal", "rl.terminal_bootstrap", 57),
    Situation("pinn_in_si_units", "pinn.not_nondimensional", 34),
)
SOUND = (
    *(f"{situation.script}_twin" for situation in FAULTY),
    "dashboard_update_ratio",
    "dashboard_update_ratio_twin",
)
QUICK = ("reshape_mixes_the_batch_twin",)


def told(folder: Path, name: str, *options: str) -> dict[str, Any]:
    script = f"{name}.py"
    shutil.copy(SCRIPTS / script, folder)
    if name.startswith("stale"):  # an earlier version of the data left its cache behind
        (folder / "earlier.py").write_text((SCRIPTS / script).read_text().replace("seed=11", "seed=4"))
        subprocess.run([sys.executable, "earlier.py"], cwd=folder, check=True, capture_output=True)
    done = warm_run(folder, "--quiet", "--json", "out.json", "--budget", "120s", *options, script)
    assert done.status == 0, done.err
    table: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return table


@pytest.mark.parametrize(
    "situation", [held for held in FAULTY if ALL or held.quick], ids=lambda held: getattr(held, "script", "")
)
def test_the_fault_is_named(tmp_path: Path, situation: Situation) -> None:
    table = told(tmp_path, situation.script)
    first = table["causes"][0]
    assert (table["verdict"], first["id"]) == ("fault", situation.cause)
    if situation.line is not None:
        assert situation.line in [place.get("line") for place in first["where"]]
    assert sum(cause["kind"] == "finding" for cause in table["causes"]) <= 3


@pytest.mark.parametrize("name", [name for name in SOUND if ALL or name in QUICK])
def test_the_sound_twin_is_healthy(tmp_path: Path, name: str) -> None:
    table = told(tmp_path, name)
    assert table["verdict"] == "healthy"
    assert table["exams"]["made"] > 10


@pytest.mark.parametrize("name", ["hinge_gan", "next_step_forecaster"])
def test_textbook_idioms_are_not_alarmed(tmp_path: Path, name: str) -> None:
    """A hinge GAN with spectral norm, and a GRU that predicts each next value with a Gaussian loss."""
    table = told(tmp_path, name, "--budget", "30s")
    assert table["verdict"] not in ("fault", "suspect")
    assert not [cause for cause in table["causes"] if cause["kind"] == "finding"]


def test_the_true_update_ratio_is_shown(tmp_path: Path) -> None:
    """The script's own dashboard says some 1e-4 late in training, from the rate times the gradient under AdamW."""
    table = told(tmp_path, "dashboard_update_ratio", "--no-exams")
    (clue,) = (clue for clue in table["clues"] if clue["test"] == "update_ratio")
    ratio = clue["measured"]["median_update_over_weight"]
    assert 1e-3 < ratio < 2e-2
