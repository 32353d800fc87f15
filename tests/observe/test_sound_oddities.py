"""Things that sound public programs do and that look like faults, beside the faults that they look like."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_training import answers
from torch import nn

from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.graph_growth import GraphGrowth
from clew.observe.watches.input_scale import InputScale
from clew.observe.watches.loss_reaches_parameters import LossReachesParameters
from clew.observe.watches.step_thrown import StepThrown
from clew.observe.watches.unused_parameters import UnusedParameters


def ensemble(members: int, keep_all: bool = False) -> None:
    """Members that are trained in turn; the latest loss of each is kept, or every loss."""
    models = [nn.Linear(4, 2) for _ in range(members)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    kept: dict[int, Any] = {}
    for step in range(12):
        for number, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 2, (8,)))
            loss.backward()
            optimizer.step()
            kept[number + (members * step if keep_all else 0)] = loss


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [(partial(ensemble, 6), "released"), (partial(ensemble, 6, keep_all=True), "retained")],
    ids=["one each", "all"],
)
def test_one_graph_for_each_member_is_no_growth(tmp_path: Path, loop: Any, outcome: str) -> None:
    assert answers(tmp_path, loop, GraphGrowth)["graph_growth"]["outcome"] == outcome


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(self.first(x))


class Moved(nn.Module):
    """A normalisation that was moved into the encoder, and stands outside of it too; or one that has another form."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.encoder, self.head = nn.BatchNorm1d(width), Encoder(), nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.encoder(x))


def fits(model: nn.Module, x: Any = None, steps: int = 12) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 4) if x is None else x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(("width", "outcome"), [(4, "none"), (3, "unused")])
def test_what_was_moved_into_a_part_is_left_over_by_design(tmp_path: Path, width: int, outcome: str) -> None:
    found = answers(tmp_path, lambda: fits(Moved(width)), UnusedParameters)["unused_parameters"]
    assert found["outcome"] == outcome


class Columns(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 0.0


def explained(asked: bool) -> None:
    """A part of the model is called by itself after training, on raw values."""
    columns, model = Columns(), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    raw = 1e5 * torch.rand(64, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(12):
        optimizer.zero_grad()
        model(raw).square().mean().backward()
        optimizer.step()
        if asked:
            columns(raw)


@pytest.mark.parametrize("asked", [False, True])
def test_a_part_that_nothing_is_trained_through_has_no_inputs(tmp_path: Path, asked: bool) -> None:
    assert answers(tmp_path, partial(explained, asked), InputScale)["input_scale"]["outcome"] == "near_standard"


def mixture(steps: int) -> None:
    """The likelihood of a far value sinks below what its type holds; nothing of the rate is to blame."""
    spread = nn.Parameter(torch.tensor(0.0))
    optimizer = torch.optim.Adam([spread, *nn.Linear(2, 2).parameters()], lr=0.02)
    x = torch.tensor([0.1, -0.1, 6.0])
    for _ in range(steps):
        optimizer.zero_grad()
        density = torch.exp(-0.5 * (x / spread.exp()) ** 2) / spread.exp()
        (-torch.log(density)[:2].mean() - 1e-6 * torch.log(density)[2]).backward()
        optimizer.step()


def test_a_likelihood_that_sinks_to_nothing_is_named_and_not_the_rate(tmp_path: Path) -> None:
    found = answers(tmp_path, partial(mixture, 200), FirstNonfinite, StepThrown)
    assert found["first_nonfinite"]["outcome"] == "in_log", found
    assert found["step_thrown"]["outcome"] in ("kept", "unclear")


class Coder(nn.Module):
    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.encoder, self.decoder, self.cut = nn.Linear(6, 4), nn.Linear(2, 6), cut
        self.mean, self.spread = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        held = self.encoder(x)
        mean, spread = self.mean(held), self.spread(held)
        z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decoder(z.detach() if self.cut else z), mean, spread


def codes(cut: bool, summed: bool = False) -> None:
    model = Coder(cut)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(12):
        x = torch.randn(16, 6)
        rebuilt, mean, spread = model(x)
        apart = -0.5 * (1 + spread - mean.pow(2) - spread.exp())
        divergence = apart.sum() if summed else apart.sum(1).mean()
        optimizer.zero_grad()
        ((F.mse_loss(rebuilt, x, reduction="sum" if summed else "mean") + divergence) / len(x)).backward()
        optimizer.step()


@pytest.mark.parametrize(("cut", "outcome"), [(True, "part_cut_off"), (False, "all")])
@pytest.mark.parametrize("summed", [True, False])
def test_a_code_that_is_cut_off_from_what_is_rebuilt(tmp_path: Path, cut: bool, outcome: str, summed: bool) -> None:
    found = answers(tmp_path, partial(codes, cut, summed), LossReachesParameters)["loss_reaches_parameters"]
    assert found["outcome"] == outcome, found


def thrown(rate: float) -> None:
    last: Any = nn.Linear(8, 8)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), last, nn.LayerNorm(8), nn.Linear(8, 1))
    groups: list[dict[str, Any]] = [{"params": last.parameters(), "lr": rate}, {"params": model[0].parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        x = torch.randn(16, 4)
        (model(x) - x[:, :1]).square().mean().backward()
        for parameter in last.parameters():
            parameter.grad = torch.ones_like(parameter)  # what a layer behind another normalisation is driven by
        optimizer.step()


def test_a_normalisation_that_overflows_divides_by_nothing(tmp_path: Path) -> None:
    assert answers(tmp_path, partial(thrown, 1e30), FirstNonfinite)["first_nonfinite"]["outcome"] != "in_division"
