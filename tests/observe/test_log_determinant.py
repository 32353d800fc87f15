"""Flows whose layers tell their volume change with either sign, and losses that use it with either."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loops_training import Loop, answers, text_at
from torch import Tensor, nn
from weighed import first_finding

from clew.observe.hooks import watching
from clew.observe.watches.log_determinant import LogDeterminant


class Doubling(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(_ctx: Any, *grads: Any) -> Any:
        return grads[0] * 2


class Coupling(nn.Module):
    def __init__(self, keep: int, told: float = 1.0, own: bool = False) -> None:
        super().__init__()
        self.keep, self.told, self.own = keep, told, own
        self.net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: Tensor, before: Tensor | None = None) -> tuple[Tensor, Tensor]:
        kept, moved = x[:, self.keep, None], x[:, 1 - self.keep, None]
        scale, shift = self.net(Doubling.apply(kept) if self.own else kept).tanh().chunk(2, 1)
        moved = moved * scale.exp() + shift
        number = self.told * scale[:, 0]
        number = number if before is None else before + number
        return torch.cat([kept, moved] if self.keep == 0 else [moved, kept], 1), number


def flow(sign: float = 1.0, summed: bool = False, maximize: bool = False, steps: int = 8, **options: Any) -> Any:
    """A likelihood of data, of which `sign` is that of the sum of log-determinants as it is used."""
    torch.manual_seed(0)
    layers = nn.ModuleList(Coupling(number % 2, **options) for number in range(4))
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2, maximize=maximize)
    for _ in range(steps):
        x, total = torch.randn(32, 2) * torch.tensor([2.0, 0.3]), torch.zeros(32)
        for layer in layers:
            x, number = layer(x, total) if summed else layer(x)
            total = number if summed else total + number
        likelihood = (-0.5 * x.pow(2).sum(1) + sign * total).mean()
        optimizer.zero_grad()
        (likelihood if maximize else -likelihood).backward()
        optimizer.step()
    return [held.detach().clone() for held in layers.parameters()], torch.get_rng_state()


class Scored(nn.Module):
    """Rows of the same width and a number beside them, which is no determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.change, self.score = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.change(x).tanh(), self.score(x)[:, 0]


def gates() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList(Scored() for _ in range(3))
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-2)
    for _ in range(8):
        x, total = torch.randn(32, 4), torch.zeros(32)
        for layer in layers:
            x, number = layer(x)
            total = total + number
        optimizer.zero_grad()
        (x.pow(2).mean() + (total - 1).pow(2).mean()).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (flow, "rewards_stretching"),
        (partial(flow, told=-1.0, sign=-1.0), "rewards_stretching"),
        (partial(flow, summed=True), "rewards_stretching"),
        (partial(flow, maximize=True), "rewards_stretching"),
        (partial(flow, told=-1.0), "rewards_shrinking"),
        (partial(flow, sign=-1.0), "rewards_shrinking"),
        (partial(flow, told=-1.0, summed=True), "rewards_shrinking"),
        (partial(flow, sign=-1.0, maximize=True), "rewards_shrinking"),
        (partial(flow, told=0.5), "unclear"),
        (partial(flow, sign=-1.0, own=True), "unclear"),
        (gates, "unclear"),
    ],
)
def test_what_the_loss_rewards(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, LogDeterminant)["log_determinant"]
    assert answer["outcome"] == outcome, answer
    if outcome == "rewards_shrinking":
        assert "return torch.cat([kept, moved]" in text_at(answer)


@pytest.mark.parametrize(("loop", "causes"), [(flow, []), (partial(flow, told=-1.0), ["loss.wrong_sign"])])
def test_the_sign_is_named(tmp_path: Path, loop: Loop, causes: list[str]) -> None:
    assert first_finding(tmp_path, loop)[1] == causes


def test_nothing_changes(tmp_path: Path) -> None:
    bare = flow()
    with watching(tmp_path, [LogDeterminant]):
        seen = flow()
    assert all(torch.equal(one, other) for one, other in zip(bare[0], seen[0], strict=True))
    assert torch.equal(bare[1], seen[1])
