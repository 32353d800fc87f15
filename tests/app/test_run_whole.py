"""`clew run` from end to end, for what only the whole shows: files in the report, a second run, several losses."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from launching import script

from warm import Ran, warm_run

TABLE = """
import pandas as pd, torch
torch.manual_seed(0)
table = pd.read_csv("data/train.csv")
x = torch.tensor(table[["a", "b", "c"]].to_numpy(), dtype=torch.float32)
y = torch.tensor(table[["y"]].to_numpy(), dtype=torch.float32)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=20, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(4):
    for inputs, targets in data:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""
SEEDED = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(15):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
"""


def clew_run(folder: Path, *words: str) -> Ran:
    return warm_run(folder, "--no-exams", *words)


def table(folder: Path) -> dict[str, Any]:
    held = json.loads((folder / "out.json").read_text())
    assert isinstance(held, dict)
    return held


def test_data_that_is_at_fault_is_traced_to_its_file(tmp_path: Path) -> None:
    draw = random.Random(0).random
    rows = [f"{(a := draw()):.4f},{(b := draw()):.4f},{'' if n == 60 else draw()},{a - b:.4f}" for n in range(200)]
    script(tmp_path, "a,b,c,y\n" + "\n".join(rows) + "\n", "data/train.csv")
    script(tmp_path, TABLE)
    said = clew_run(tmp_path, "--json", "out.json", "--html", "out.html", "train.py")
    causes = [cause["id"] for cause in table(tmp_path)["causes"] if cause["kind"] == "finding"]
    assert causes[0] == "data.nonfinite", said.out
    assert "  read: data/train.csv (pandas, 200 rows)." in said.out
    (file,) = table(tmp_path)["run"]["files"]
    assert (file["path"], file["where"], file["by"]) == ("data/train.csv", "train.py:4", "pandas")
    assert (tmp_path / "out.html").read_text().count("data/train.csv (pandas, 200 rows)") == 2
    shown = clew_run(tmp_path, "--all", "train.py").out
    assert "\nRead: data/train.csv (pandas, 200 rows).\n" in shown


@pytest.mark.parametrize("seeded", [True, False])
def test_twice(tmp_path: Path, seeded: bool) -> None:
    script(tmp_path, SEEDED if seeded else SEEDED.replace("torch.manual_seed(0)\n", ""))
    said = clew_run(tmp_path, "--twice", "--json", "out.json", "train.py")
    assert said.err == "clew: a second time, to compare the losses\n"
    (clue,) = (clue for clue in table(tmp_path)["clues"] if clue["test"] == "same_seed_repeat")
    assert clue["outcome"] == ("identical" if seeded else "differs")
    assert clue["measured"]["losses"] == 15
    found = [cause["id"] for cause in table(tmp_path)["causes"] if cause["kind"] == "finding"]
    assert found == ([] if seeded else ["env.nondeterminism"])
    assert len([path for path in (tmp_path / "kept" / "runs").iterdir() if not path.name.startswith(".")]) == 2


def test_a_run_that_fails_is_not_repeated(tmp_path: Path) -> None:
    script(tmp_path, SEEDED + "raise SystemExit(3)\n")
    assert clew_run(tmp_path, "--twice", "--json", "out.json", "train.py").status == 3
    (clue,) = (clue for clue in table(tmp_path)["clues"] if clue["test"] == "same_seed_repeat")
    assert clue["outcome"] == "unclear"
    assert "status 3" in clue["why"]
