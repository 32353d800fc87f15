"""Whether replicas have parted is seen by joining the ranks: real processes on gloo, and traces
made up for the ways in which ranks differ rightly.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import clew_run, script

from clew.observe.ranks import GRADIENT, PARAMETER, REPLICATED, TALK, drifted
from clew.records.clue import Reading, Unclear
from clew.records.trace import Series

TWO_RANKS = ("--", sys.executable, str(Path(__file__).with_name("two_ranks.py")))
TORN_DOWN = "terminate called without an active exception"
"""A rank that ends while gloo's threads still run is aborted by C++ now and then, also without clew: then run again."""

RANKS = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed({seed})
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(rank)
for _ in range(12):
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True)
    optimizer.zero_grad()
    {loss}
    loss.backward()
    {average}
    optimizer.step()
dist.barrier()
del model, optimizer
dist.destroy_process_group()
"""
PLAIN = "loss = nn.functional.mse_loss(model(x), y)"
DDP = "model = nn.parallel.DistributedDataParallel(model)"
AVERAGE = "[dist.all_reduce(p.grad, dist.ReduceOp.SUM) for p in model.parameters()]"
LAID_OUT = "dist.all_reduce(torch.cat([p.grad.flatten() for p in model.parameters()]))"
TENSOR_PARALLEL = (
    "out = model(x); whole = out.detach().clone(); dist.all_reduce(whole); loss = ((out + whole) - y).square().mean()"
)


def under_clew(folder: Path, seed: str = "0", wrap: str = "", loss: str = PLAIN, average: str = "") -> dict[str, Any]:
    text = RANKS.format(seed=seed, wrap=wrap, loss=loss, average=average)
    for attempt in range(3):
        below = folder / str(attempt)
        below.mkdir()
        script(below, text)
        said = clew_run(below, "--json", "out.json", *TWO_RANKS, "train.py")
        if TORN_DOWN not in said.err:
            break
    table = json.loads((below / "out.json").read_text())
    assert said.status == 0, said.err
    assert isinstance(table, dict)
    return table


def clue(table: dict[str, Any]) -> dict[str, Any]:
    (held,) = (clue for clue in table["clues"] if clue["test"] == "rank_parameters")
    assert isinstance(held, dict)
    return held


def test_replicas_that_nobody_averages_have_parted(tmp_path: Path) -> None:
    table = under_clew(tmp_path)
    assert clue(table)["outcome"] == "drift"
    assert [cause["id"] for cause in table["causes"] if cause["kind"] == "finding"] == ["train.rank_divergence"]
    assert table["causes"][0]["where"][0] == {"file": "train.py", "line": 18}
    assert "never exchanged gradients" in clue(table)["measured"]["because"]


def test_averaged_gradients_do_not_mend_another_start(tmp_path: Path) -> None:
    table = under_clew(tmp_path, seed="rank", average=AVERAGE)
    assert clue(table)["outcome"] == "drift"
    assert clue(table)["measured"]["because"] == "their gradients are averaged"


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [({"wrap": DDP}, "identical"), ({"average": AVERAGE}, "identical"), ({"loss": TENSOR_PARALLEL}, "unclear")],
    ids=["ddp", "averaged by hand", "activations exchanged"],
)
def test_ranks_that_are_as_they_should_be(tmp_path: Path, parts: dict[str, str], outcome: str) -> None:
    table = under_clew(tmp_path, **parts)
    assert clue(table)["outcome"] == outcome
    assert not [
        cause for cause in table["causes"] if cause["id"] == "train.rank_divergence" and cause["credence"] > 0.2
    ]


@pytest.mark.parametrize(
    "average", [AVERAGE.replace("p.grad", "p.grad.clone()"), LAID_OUT], ids=["copies", "end to end"]
)
def test_gradients_that_are_exchanged_and_not_used(tmp_path: Path, average: str) -> None:
    held = clue(under_clew(tmp_path, average=average))
    assert held["outcome"] == "drift"
    assert "exchanges their gradients" in held["measured"]["because"]
    assert held["where"][0]["line"] < held["where"][-1]["line"]


def rank(values: tuple[float, ...], /, *, of: str = "0 w 4x1", **more: Any) -> dict[tuple[str, str], Series]:
    def line(name: str, of: str, held: tuple[float, ...]) -> dict[tuple[str, str], Series]:
        return {(name, of): Series(name, tuple(range(len(held))), held, of)}

    return {
        **line(PARAMETER, of, values),
        **line(GRADIENT, of, more.get("gradient", values)),
        **line(REPLICATED, "0", more.get("replicated", (0.0,) * len(values))),
        **line(TALK, "", more.get("talk", (1.0,) * len(values))),
        **line("loss", "", (1.0,) * len(values)),
    }


def test_names_and_shapes_that_differ_are_no_replicas() -> None:
    answer = drifted([rank((1.0, 2.0)), rank((1.0, 3.0), of="0 w 8x1")])
    assert isinstance(answer, Unclear)
    assert "not replicas" in answer.why


def test_what_shows_that_ranks_are_replicas() -> None:
    talking: dict[str, Any] = {"talk": (1.0, 9.0)}
    assert isinstance(drifted([rank((1.0, 2.0), **talking), rank((1.0, 3.0), **talking)]), Unclear)
    uncounted: dict[str, Any] = {"talk": (float("nan"),) * 2}
    assert isinstance(drifted([rank((1.0, 2.0), **uncounted), rank((1.0, 3.0), **uncounted)]), Unclear)
    shown: list[dict[str, Any]] = [{"replicated": (1.0, 1.0)}, {"gradient": (0.5, 0.5)}]
    for more in shown:
        answer = drifted([rank((1.0, 2.0), **talking, **more), rank((1.0, 3.0), **talking, **more)])
        assert isinstance(answer, Reading)
        assert dict(answer.measured)["largest_relative_difference"] == pytest.approx(1 / 3)
        assert dict(answer.measured)["first_seen_after_step"] == 2


def test_a_stage_without_a_loss_is_part_of_a_pipeline() -> None:
    stage = rank((1.0, 3.0))
    del stage["loss", ""]
    assert isinstance(drifted([rank((1.0, 2.0)), stage]), Unclear)


def test_one_rank_that_is_no_number_any_more_has_parted() -> None:
    more: dict[str, Any] = {"replicated": (1.0, 1.0)}
    answer = drifted([rank((1.0, 2.0), **more), rank((1.0, float("inf")), **more)])
    assert isinstance(answer, Reading)
    assert dict(answer.measured)["largest_relative_difference"] == float("inf")


def test_nothing_to_compare() -> None:
    assert isinstance(drifted([{}, {}]), Unclear)
    late = rank((1.0, 2.0))
    late[PARAMETER, "0 w 4x1"] = Series(PARAMETER, (7, 8), (1.0, 2.0), "0 w 4x1")
    assert isinstance(drifted([rank((1.0, 2.0)), late]), Unclear)
