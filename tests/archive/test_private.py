"""What clew keeps is its owner's alone, however open the umask is, and stays out of version control."""

import os
import subprocess
import sys
from pathlib import Path

from clew.home import private

TRAIN = """
print("epoch 1 loss: 0.5")
import os, torch
from torch import nn
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 4), torch.randn(64, 1)
for _ in range(15):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
open("own.txt", "w").close()
os.makedirs("folder")
if "die" in os.sys.argv:
    os.kill(os.getpid(), 9)
"""
SWEEP = """
command = "python own.py --lr {lr} --seed {seed}"
metric = "loss"
goal = "min"
seeds = [1, 2]
[params]
lr = [0.1, 0.2]
"""


def clew(folder: Path, *words: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "CLEW_HOME"}
    command = [sys.executable, "-m", "clew", *words]
    subprocess.run(command, cwd=folder, env=environment, umask=0, capture_output=True, check=False)


def test_folders_and_files_are_the_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "own.py").write_text("print('loss: 0.1')\n")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    clew(tmp_path, "run", "--keep-capture", "--budget", "3", "train.py", "die")
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("own.txt", "folder")}
    assert modes == {"own.txt": 0o666, "folder": 0o777}  # the script's own are as ever
    clew(tmp_path, "case", "new", "loss is flat")
    clew(tmp_path, "sweep", "run", "sweep.toml")
    kept = [tmp_path / ".clew", *(tmp_path / ".clew").rglob("*")]
    names = {"runs", "objects", "cases", "report.html", "tape.json", "sweep-metrics.jsonl"}
    assert {path.name for path in kept} >= names
    for path in kept:
        most = 0o700 if path.is_dir() else 0o600
        assert path.lstat().st_mode & 0o777 & ~most == 0, path
    said = subprocess.run(["git", "status", "--short"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ".clew" not in said.stdout


def test_the_umask_may_say_less(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        open(tmp_path / "file", "w", opener=private).close()
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o400
