"""Training loops in which a first NaN or infinity arises, each in another way, on the line marked `# here`."""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


def fit(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], steps: int = 6, rate: float = 1e-3) -> None:
    x = torch.randn(16, 6, generator=torch.Generator().manual_seed(2))
    y = x[:, :1].abs()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


# --- forward, in a module


class Entropy(nn.Module):
    def __init__(self, from_step: int = 0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1)
        self.calls, self.from_step = 0, from_step

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.first(x))
        floor = 1e-3 if self.calls < self.from_step else 0.0
        self.calls += 1
        h = h + floor
        surprise = torch.log(h)  # here
        h = h * 2 + surprise
        return self.second(h)


class Standardised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1)

    def spread(self, h: Tensor) -> Tensor:
        centred = h - h.mean(1, keepdim=True)
        return centred / (0 * centred).abs().sum(1, keepdim=True)  # here

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        h = self.spread(h)
        return self.second(h)


def log_in_a_module() -> None:
    fit(Entropy(), F.mse_loss)


def log_in_a_module_late() -> None:
    fit(Entropy(from_step=25), F.mse_loss, steps=40, rate=1e-5)


def division_in_a_method() -> None:
    fit(Standardised(), F.mse_loss)


# --- forward, in a loss of one's own


def likelihood(p: Tensor, y: Tensor) -> Tensor:
    p = torch.clamp(p, 0, 1)
    hit = y * torch.log(p)  # here
    miss = (1 - y).clamp(min=0) * torch.log(1.5 - p)
    return -(hit + miss).mean()


def poisson(rate: Tensor, y: Tensor) -> Tensor:
    rate = rate * 300
    expected = rate.exp()  # here
    return (expected - y * rate).mean()


def share(out: Tensor, y: Tensor) -> Tensor:
    chosen = (y > 100).float()
    error = (out - y).pow(2) * chosen
    return error.sum() / chosen.sum()  # here


class Criterion(nn.Module):
    def forward(self, out: Tensor, y: Tensor) -> Tensor:
        gap = (out - y).abs()
        wide = gap * 1e30
        grown = wide * wide  # here
        return grown.mean()


def log_in_a_loss() -> None:
    fit(network(), likelihood)


def exponential_in_a_loss() -> None:
    fit(network(), lambda out, y: poisson(out.abs() + 1, y))


def empty_share_in_a_loss() -> None:
    fit(network(), share)


def product_in_a_criterion() -> None:
    fit(network(), Criterion())


def log_in_the_loop() -> None:
    x = torch.randn(16, 6)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(5):
        probabilities = torch.softmax(model(x) * (1 if step < 3 else 1e4), 1)
        entropy = probabilities * torch.log(probabilities)  # here
        loss = entropy.sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# --- backward only


def distance(out: Tensor, y: Tensor) -> Tensor:
    near = F.mse_loss(out, y)
    itself = (out - out).pow(2).sum(1)
    far = itself.sqrt()  # here
    return near + far.mean()


def masked(out: Tensor, y: Tensor) -> Tensor:
    logs = torch.log(out * 0)  # here
    kept = torch.where(y > 100, logs, torch.zeros_like(logs))
    return F.mse_loss(out, y) + kept.mean()


def masked_ratio(out: Tensor, y: Tensor) -> Tensor:
    below = out * 0
    ratio = out / below  # here
    return F.mse_loss(out, y) + torch.where(below != 0, ratio, y).mean()


def masked_exponential(out: Tensor, y: Tensor) -> Tensor:
    large = out.abs() * 1e4 + 200
    grown = torch.exp(large)  # here
    return F.mse_loss(out, y) + torch.where(large < 80, grown, large).mean()


def power(out: Tensor, y: Tensor) -> Tensor:
    off = out * 0
    bent = off**0.5  # here
    return F.mse_loss(out, y) + bent.mean()


class Unit(nn.Module):
    """The length of a vector that is zero, inside a module."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = h - h.detach()
        length = h.pow(2).sum(1, keepdim=True).sqrt()  # here
        h = h + length
        return self.second(h)


# --- data, updates, half precision


def nan_in_the_data() -> None:
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    x[9, 2] = float("nan")
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=4):  # here
        loss = F.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def rate_beyond_all_numbers() -> None:
    x, y = torch.randn(16, 6), 1e3 * torch.randn(16, 1)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e38)
    for _ in range(3):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # here


def rate_too_high() -> None:
    x, y = torch.randn(16, 6), torch.randn(16, 1)
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=30.0)
    for _ in range(60):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # here


class Half(nn.Module):
    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).to(self.kind)
        h = h * 200
        h = h * h * (1 if self.kind is torch.float16 else 1e36)  # here
        return self.second(h.float())


FAILS: list[tuple[str, Callable[[], None]]] = [
    ("in_log", log_in_a_module),
    ("in_log", log_in_a_module_late),
    ("in_division", division_in_a_method),
    ("in_log", log_in_a_loss),
    ("in_overflow", exponential_in_a_loss),
    ("in_division", empty_share_in_a_loss),
    ("in_overflow", product_in_a_criterion),
    ("in_log", log_in_the_loop),
    ("in_division", lambda: fit(network(), distance)),
    ("in_log", lambda: fit(network(), masked)),
    ("in_division", lambda: fit(network(), masked_ratio)),
    ("in_overflow", lambda: fit(network(), masked_exponential)),
    ("in_division", lambda: fit(network(), power)),
    ("in_division", lambda: fit(Unit(), F.mse_loss)),
    ("in_data", nan_in_the_data),
    ("in_update", rate_beyond_all_numbers),
    ("in_update", rate_too_high),
    ("in_overflow", lambda: fit(Half(torch.float16), F.mse_loss)),
    ("in_overflow", lambda: fit(Half(torch.bfloat16), F.mse_loss)),
]
