"""Ranks that do not exchange what they should: real processes on gloo."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import clew_run, script

TWO_RANKS = ("--", sys.executable, str(Path(__file__).with_name("two_ranks.py")))
TORN_DOWN = "terminate called without an active exception"
"""A rank that ends while gloo's threads still run is aborted by C++ now and then, also without clew: then run again."""

RANKS = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
model = nn.parallel.DistributedDataParallel(model)
{move}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for step in range(12):
    x = torch.randn(32, 8).to(next(model.parameters()).dtype)
    y = x.sum(1, keepdim=True)
    optimizer.zero_grad()
    {train}
    optimizer.step()
    with torch.no_grad():
        model.module.eval()
        model.module(x)
        model.module.train()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""
THROUGH = "nn.functional.mse_loss(model(x), y).backward()"
PAST = "nn.functional.mse_loss(model.module(x), y).backward()"
BY_HAND = PAST + "; [dist.all_reduce(p.grad) for p in model.parameters()]"
ACCUMULATED = f"""with model.no_sync():
        {THROUGH}
    {THROUGH}"""


def under_clew(folder: Path, move: str, train: str) -> dict[str, Any]:
    for attempt in range(3):
        below = folder / str(attempt)
        below.mkdir()
        script(below, RANKS.format(move=move, train=train))
        said = clew_run(below, "--json", "out.json", *TWO_RANKS, "train.py")
        if TORN_DOWN not in said.err:
            break
    assert said.status == 0, said.err
    table = json.loads((below / "out.json").read_text())
    assert isinstance(table, dict)
    return table


@pytest.mark.parametrize(
    ("outcome", "move", "train", "line"),
    [
        ("bypassed", "", PAST, 15),
        ("lost", "model.double()", THROUGH, 15),
        ("exchanged", "", ACCUMULATED, 0),
        ("exchanged", "", BY_HAND, 0),
    ],
    ids=["called past its wrapper", "cast after it was wrapped", "accumulated", "averaged by hand"],
)
def test_gradients_that_are_not_exchanged(tmp_path: Path, outcome: str, move: str, train: str, line: int) -> None:
    table = under_clew(tmp_path, move, train)
    held = [clue for clue in table["clues"] if clue["test"] == "gradients_exchanged"]
    assert outcome in [clue["outcome"] for clue in held], held
    found = [cause for cause in table["causes"] if cause["kind"] == "finding"]
    assert ("train.rank_divergence" in [cause["id"] for cause in found]) == bool(line)
    if line:
        assert line in [place.get("line") for place in found[0]["where"]]
