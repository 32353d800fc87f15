"""A watch sees the same whether or not a step is kept for exams."""

import sys
from pathlib import Path
from typing import Any

from launching import answers, ended, script, start

TIMED = {"step_time_trend", "loader_wait_share", "memory_trend"}

HAND = """
import torch
from torch import nn
torch.manual_seed(0)
x, y = torch.randn(400, 6), torch.randint(0, 2, (400,))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
index = torch.arange(16)
for step in range(60):
    xb, yb = x[index], y[index]
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(xb), yb).backward()
    optimizer.step()
"""


def seen(folder: Path, *options: str) -> dict[str, Any]:
    folder.mkdir()
    command = (sys.executable, "-m", "clew", "run", "--no-exams", "--quiet", *options, script(folder, HAND))
    ran = ended(start(command, folder))
    assert ran.status == 0, ran.err
    (held,) = answers(folder)
    return {answer["test"]: answer for answer in held["answers"]}


def test_a_watch_sees_the_same_without_a_step_kept_for_exams(tmp_path: Path) -> None:
    kept, plain = seen(tmp_path / "kept", "--keep-capture"), seen(tmp_path / "plain")
    assert plain["batch_repeats"].get("outcome") == "same", plain["batch_repeats"]
    assert {test for test in kept if kept[test] != plain[test]} <= TIMED
