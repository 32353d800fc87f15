"""The watches on networks that solve an equation: raw units, parameters that stick, and what only looks alike."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_training import Loop, answers, text_at
from torch import nn
from weighed import first_finding

from clew.app.domain import domain_seen
from clew.observe.collect import processes
from clew.observe.hooks import watching
from clew.observe.watch import Watch
from clew.observe.watches.condition_outweighed import ConditionOutweighed
from clew.observe.watches.derivatives_used import DerivativesUsed
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.loss_term_sizes import LossTermSizes
from clew.observe.watches.physical_parameter_track import PhysicalParameterTrack
from clew.observe.watches.physical_units import PhysicalUnits
from clew.observe.watches.residual_scale import ResidualScale

WATCHES: list[type[Watch]] = [
    ConditionOutweighed,
    DerivativesUsed,
    PhysicalParameterTrack,
    PhysicalUnits,
    ResidualScale,
]


def solution(inputs: int = 2, width: int = 16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


def derivative(u: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


def heat(
    length: float = 1.0,
    duration: float = 1.0,
    start: float = 1.0,
    rate: float = 0.072,
    weight: float = 1.0,
    called: bool = False,
    steps: int = 15,
) -> None:
    """A rod that cools at both ends, in whatever units."""
    net = solution()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        x = (torch.rand(64, 1) * length).requires_grad_()
        t = (torch.rand(64, 1) * duration).requires_grad_()
        u = net(torch.cat([x, t], 1))
        residual = derivative(u, t) - rate * derivative(derivative(u, x), x)
        x0 = torch.rand(32, 1) * length
        wanted = start * torch.sin(math.pi * x0 / length)
        first = net(torch.cat([x0, torch.zeros_like(x0)], 1))
        if called:
            loss = F.mse_loss(residual, torch.zeros_like(residual)) + weight * F.mse_loss(first, wanted)
        else:
            loss = residual.pow(2).mean() + weight * ((first - wanted) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Scaled(nn.Module):
    """Multiplies its input before the first layer."""

    def __init__(self, factor: float, kind: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.factor = factor
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), kind(), nn.Linear(24, 24), kind())
        self.last = nn.Linear(24, 1)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.net(self.factor * t))
        return out


def swing(
    weight: float = 1.0,
    factor: float = 1.0,
    inside: float = 1.0,
    cut: str = "",
    kind: type[nn.Module] = nn.Tanh,
    watched: bool = False,
    called: bool = False,
    steps: int = 120,
    tested: bool = False,
    at_rest: bool = False,
) -> None:
    """u'' = -4 u from u = 1 at rest, which may be said in the same term. `cut` takes derivatives out of the graph;
    `watched` takes one only to print it;
    `tested` takes them on every step for a loss that nothing learns from."""
    net = Scaled(inside, kind)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    start, one = torch.zeros(1, 1), torch.ones(1, 1)
    for step in range(steps):
        t = torch.rand(32, 1).requires_grad_()
        u = net(t)
        if cut == "one line":
            change = derivative(derivative(u, t), t).detach()
        else:
            speed = derivative(u, t)
            change = derivative(speed, t)
        if cut in ("detach", "copied"):
            change = change.detach() if cut == "detach" else torch.tensor(change.tolist())
        residual = factor * (change / 4 + u)
        met = F.mse_loss(net(start), one) if called else (net(start) - 1).pow(2).mean()
        if at_rest:
            begins = torch.zeros(1, 1).requires_grad_()
            met = torch.cat([net(begins) - 1, derivative(net(begins), begins) / 2]).pow(2).mean()
        loss = residual.pow(2).mean() + weight * met
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if tested:
            probe = torch.linspace(0, 1, 8)[:, None].requires_grad_()
            derivative(derivative(net(probe), probe), probe).pow(2).mean().item()
        if watched and step % 10 == 0:
            probe = torch.linspace(0, 1, 8)[:, None].requires_grad_()
            derivative(net(probe), probe).abs().max().item()


def functional(weight: float = 1.0, how: str = "grad", kind: type[nn.Module] = nn.Tanh, steps: int = 120) -> None:
    """The same equation with derivatives of a function of one point, mapped over the points."""
    net = nn.Sequential(nn.Linear(1, 24), kind(), nn.Linear(24, 24), kind(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)

    def u(t: torch.Tensor) -> Any:
        return net(t.view(1, 1)).squeeze()

    change = torch.func.grad(torch.func.grad(u)) if how == "grad" else torch.func.hessian(u)
    for _ in range(steps):
        t = torch.rand(32)
        residual = torch.func.vmap(change)(t) / 4 + net(t[:, None]).squeeze(1)
        loss = residual.pow(2).mean() + weight * (net(torch.zeros(1, 1)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


RAW: dict[str, Any] = {"length": 0.1, "duration": 60.0, "start": 400.0, "rate": 1.2e-5}


def decay(
    bound: bool = False,
    pull: float = 0.0,
    steps: int = 240,
    fading: float = 1.0,
    kept: Any = None,
    start: float = 0.5,
    terms: int = 0,
) -> None:
    """u' = -k u with k to be found beside the network. With `terms` there are so many powers of u, each with a factor
    of its own in one tensor."""
    net = solution(1)
    k = nn.Parameter(torch.full((terms,), start) if terms else torch.tensor(start))
    optimizer = torch.optim.Adam([*net.parameters(), k], lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, fading)
    grid = torch.linspace(0, 1, 32)[:, None]
    for _ in range(steps):
        t = grid.clone().requires_grad_()
        u = net(t)
        factors = kept(k) if kept else k
        powers = torch.cat([u**power for power in range(1, terms + 1)], 1) if terms else u
        residual = derivative(u, t) + (powers @ factors[:, None] if terms else factors * u)
        loss = residual.pow(2).mean() + (u - torch.exp(-2 * grid)).pow(2).mean() + pull * k.flatten()[-1].abs()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if bound:
            with torch.no_grad():
                k.clamp_(0.0, 0.9)


def gradient_penalty(norm: bool = True, steps: int = 6) -> None:
    """A critic and a generator on points of a plane: derivatives by the inputs, and no equation."""
    torch.manual_seed(0)
    critic, generator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(2, 2)
    optimizers = [torch.optim.Adam(model.parameters(), lr=1e-3) for model in (critic, generator)]
    for _ in range(steps):
        real, fake = 300 * torch.randn(32, 2), generator(torch.randn(32, 2))
        between = (0.5 * real + 0.5 * fake.detach()).requires_grad_()
        slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean() if norm else slope.pow(2).sum(1).mean()
        loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        (-critic(fake).mean()).backward()
        optimizers[1].step()


def meta_learning(steps: int = 6) -> None:
    """Derivatives by parameters, of which the outer loss is made."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.zeros(3, 1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        x = torch.randn(16, 3)
        inner = ((x @ weight - x.sum(1, keepdim=True)) ** 2).mean()
        (slope,) = torch.autograd.grad(inner, [weight], create_graph=True)
        loss = ((x @ (weight - 0.1 * slope) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("called", [False, True])
def test_raw_units_are_seen(tmp_path: Path, called: bool) -> None:
    found = answers(tmp_path, partial(heat, **RAW, called=called), *WATCHES)
    assert found["physical_units"]["outcome"] == "raw"
    assert found["residual_scale"]["outcome"] == "apart"
    assert ("mse_loss" if called else "loss = residual") in text_at(found["physical_units"])


@pytest.mark.parametrize(
    "loop",
    [
        heat,
        partial(heat, called=True),
        partial(heat, weight=10.0),
        partial(heat, duration=3.0, start=2.0),
    ],
)
def test_units_of_order_one_are_in_order(tmp_path: Path, loop: Loop) -> None:
    found = answers(tmp_path, loop, *WATCHES)
    assert found["physical_units"]["outcome"] == "of_order_one"
    assert found["residual_scale"]["outcome"] == "comparable"


def poisson(steps: int = 200) -> None:
    """Begins with a residual a thousand times the boundary term, which counts a hundredfold; both fall."""
    net = solution(1, 32)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    ends = torch.tensor([[0.0], [1.0]])
    for _ in range(steps):
        x = torch.rand(64, 1, requires_grad=True)
        pde = ((derivative(derivative(net(x), x), x) + math.pi**2 * torch.sin(math.pi * x)) ** 2).mean()
        loss = pde + 100 * (net(ends) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "sizes", "scale"),
    [
        (poisson, "comparable", "comparable"),
        (partial(poisson, steps=12), "one_dominates", "apart"),
        (partial(heat, **RAW, steps=120), "one_dominates", "apart"),
    ],
    ids=["both fall", "too short to tell", "raw units"],
)
def test_terms_that_both_fall_outweigh_none(tmp_path: Path, loop: Loop, sizes: str, scale: str) -> None:
    found = answers(tmp_path, loop, LossTermSizes, ResidualScale)
    assert (found["loss_term_sizes"]["outcome"], found["residual_scale"]["outcome"]) == (sizes, scale), found


def test_terms_that_weights_balance_are_no_fault(tmp_path: Path) -> None:
    """Raw units, but as the terms enter the loss they are alike."""
    loop = partial(heat, **{**RAW, "weight": 1e-8})
    assert answers(tmp_path, loop, PhysicalUnits)["physical_units"]["outcome"] == "of_order_one"


@pytest.mark.parametrize(
    "loop", [gradient_penalty, partial(gradient_penalty, norm=False), meta_learning], ids=["norm", "square", "meta"]
)
def test_other_derivatives_make_no_equation(tmp_path: Path, loop: Loop) -> None:
    with watching(tmp_path, WATCHES) as recorder:
        loop()
        recorder.checkpoint(final=True)
    assert all("unclear" in answer for answer in recorder.answers())
    (part,) = processes(str(tmp_path))
    assert domain_seen(part.series) == "general"


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (decay, "moves"),
        (partial(decay, bound=True), "at_zero_or_bound"),
        (partial(decay, pull=5.0), "at_zero_or_bound"),
        (partial(decay, kept=torch.relu, start=0.0), "at_zero_or_bound"),
        (partial(decay, kept=torch.relu, start=0.0, terms=1), "at_zero_or_bound"),
        (partial(decay, kept=torch.relu, start=0.0, terms=2), "at_zero_or_bound"),
        (partial(decay, terms=2, pull=5.0), "moves"),
        (partial(decay, kept=F.softplus, start=-20.0), "at_zero_or_bound"),
        (partial(decay, kept=F.softplus), "moves"),
        (partial(decay, kept=torch.sigmoid, start=2.0, steps=1600), "at_zero_or_bound"),
        (partial(decay, kept=lambda k: 4 * torch.sigmoid(k), steps=900), "moves"),
        (partial(decay, steps=20), "unclear"),
        (partial(decay, fading=0.7), "unclear"),
        (heat, "unclear"),
    ],
    ids=[
        "free",
        "bound",
        "pulled to zero",
        "cut off",
        "one in a tensor, cut off",
        "two in a tensor, cut off",
        "a term that is not needed",
        "flat",
        "softplus",
        "bounds that the true value lies outside of",
        "bounds that it lies between",
        "short",
        "stopped by the schedule",
        "none",
    ],
)
def test_where_a_parameter_settles(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, PhysicalParameterTrack)["physical_parameter_track"]
    assert answer["outcome"] == outcome, answer


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(swing, weight=1e-5), "outweighed"),
        (partial(swing, weight=1e-5, called=True), "outweighed"),
        (partial(swing, weight=1e-5, at_rest=True), "outweighed"),
        (partial(swing, at_rest=True), "counts"),
        (partial(swing, factor=300.0), "outweighed"),
        (swing, "counts"),
        (partial(swing, weight=0.1), "counts"),
        (partial(swing, weight=1e-5, steps=20), "unclear"),
        (partial(functional, weight=1e-6, steps=240), "outweighed"),
        (partial(functional, weight=1e-6, how="hessian", steps=240), "outweighed"),
        (functional, "counts"),
    ],
    ids=[
        "weight",
        "weight on a call",
        "weight with a speed",
        "balanced with a speed",
        "factor",
        "balanced",
        "light",
        "short",
        "functional",
        "tangents",
        "functional, balanced",
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # tangents make torch use it
def test_conditions_that_count_for_nothing(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, ConditionOutweighed)["condition_outweighed"]
    assert answer["outcome"] == outcome, answer


@pytest.mark.parametrize(
    ("loop", "line"),
    [(partial(swing, factor=300.0), "residual = factor"), (partial(swing, weight=1e-5), "met = ")],
    ids=["factor", "weight"],
)
def test_the_line_to_blame_for_a_condition_that_counts_for_nothing(tmp_path: Path, loop: Loop, line: str) -> None:
    answer = answers(tmp_path, loop, FirstNonfinite, ConditionOutweighed)["condition_outweighed"]
    assert text_at(answer).startswith(line), answer


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(swing, cut="detach", steps=20), "cut"),
        (partial(swing, cut="copied", steps=20), "cut"),
        (partial(swing, cut="one line", steps=20), "cut"),
        (partial(swing, kind=nn.ReLU, steps=20), "ramps"),
        (partial(swing, kind=nn.LeakyReLU, steps=20), "ramps"),
        (partial(swing, steps=20), "used"),
        (partial(swing, kind=nn.SiLU, steps=20), "used"),
        (partial(swing, watched=True, steps=20), "used"),
        (partial(swing, tested=True, steps=20), "used"),
        (partial(heat, steps=12), "used"),
        (partial(swing, steps=3), "unclear"),
        (partial(functional, steps=20), "used"),
        (partial(functional, steps=20, kind=nn.ReLU), "ramps"),
    ],
    ids=[
        "detached",
        "copied",
        "on the line of another",
        "ramps",
        "leaky",
        "sound",
        "smooth",
        "printed now and then",
        "tested",
        "heat",
        "short",
        "functional",
        "functional ramps",
    ],
)
def test_derivatives_that_do_not_count(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, DerivativesUsed)["derivatives_used"]
    assert answer["outcome"] == outcome, answer


def test_raw_units_that_the_network_makes_itself(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(swing, inside=1000.0, steps=20), PhysicalUnits)["physical_units"]
    assert answer["outcome"] == "raw", answer
    assert "self.factor * t" in text_at(answer)
    answer = answers(tmp_path, partial(swing, inside=2.0, steps=20), PhysicalUnits)["physical_units"]
    assert answer["outcome"] == "of_order_one", answer


def test_the_patch_goes_when_the_watch_goes(tmp_path: Path) -> None:
    before = torch.autograd.grad
    with watching(tmp_path, WATCHES):
        heat(steps=1)
        assert torch.autograd.grad is not before
    assert torch.autograd.grad is before


@pytest.mark.parametrize(
    ("loop", "cause"),
    [
        (partial(heat, **RAW), "pinn.not_nondimensional"),
        (partial(swing, weight=1e-5), "pinn.boundary_ignored"),
        (heat, ""),
        (swing, ""),
    ],
)
def test_the_first_finding_is_the_cause(tmp_path: Path, loop: Loop, cause: str) -> None:
    assert first_finding(tmp_path, loop) == ("pinn", [cause] if cause else [])


def test_what_somebody_said_stands() -> None:
    assert domain_seen({("environment steps", ""): ()}, "vision") == "vision"
    assert domain_seen({("environment steps", ""): ()}) == "rl"
