"""Choices that no gradient goes past: seen where only a pull to the chosen trains what chooses, and left alone else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from taping import taping
from torch import Tensor, nn

Step = Callable[[nn.Module, Tensor], Tensor]


class Quantized(nn.Module):
    """An encoder, the nearest of some codes, and a decoder. `how` says what is written differently."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.encoder = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 8))
        self.codes: Tensor
        if "learned" in how:
            self.codes = nn.Parameter(torch.randn(6, 4))
        else:
            self.register_buffer("codes", torch.randn(6, 4))

    def chosen(self, z: Tensor) -> Tensor:
        far = torch.cdist(z, self.codes)
        if "soft" in self.how:
            return (-far).softmax(1) @ self.codes
        if "min" in self.how:
            return self.codes[far.min(1).indices]
        if "one-hot" in self.how:
            return F.one_hot(far.argmin(1), 6).float() @ self.codes
        return F.embedding(far.argmin(1), self.codes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = self.encoder(x)
        quant = self.chosen(z)
        if "residual" in self.how:
            quant = quant + self.chosen(z - quant)
        given = z + (quant - z).detach() if "straight" in self.how else quant
        return self.decoder(given), z, quant


def autoencodes(model: nn.Module, x: Tensor) -> Tensor:
    made, z, quant = model(x)
    return F.mse_loss(made, x) + F.mse_loss(z, quant.detach()) + F.mse_loss(quant, z.detach())


def by_hand(model: nn.Module, x: Tensor) -> Tensor:
    made, z, quant = model(x)
    apart: Tensor = ((made - x) ** 2).mean() + 0.25 * ((quant.detach() - z) ** 2).mean()
    return apart


def trained(model: Callable[[], nn.Module], step: Step) -> Callable[[], None]:
    def train() -> None:
        torch.manual_seed(0)
        held = model()
        optimizer = torch.optim.SGD(held.parameters(), lr=0.01)
        for _ in range(4):
            optimizer.zero_grad()
            step(held, torch.randn(16, 8)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return train


def quantized(how: str, step: Step = autoencodes) -> Callable[[], None]:
    return trained(lambda: Quantized(how), step)


CUT = {
    "plain": quantized(""),
    "by hand": quantized("", by_hand),
    "by its smallest distance": quantized("min"),
    "by a matrix": quantized("one-hot learned"),
    "learned": quantized("learned"),
    "residual": quantized("residual"),
}


class Routed(nn.Module):
    """Each example goes through the expert with the largest score, weighed by it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.gate = nn.Linear(8, 8), nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).tanh()
        share, which = self.gate(x).softmax(1).max(1)
        made = torch.stack([expert(x) for expert in self.experts], 1)[torch.arange(len(x)), which]
        return made * share.unsqueeze(1)  # type: ignore[no-any-return]


class Neighbours(nn.Module):
    """Each example and its nearest one, by what the first layer says of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        near = h[torch.cdist(h, h).topk(2, largest=False).indices[:, 1]]
        out: Tensor = self.second(torch.cat([near - h, h], 1))
        return out


class FedBack(nn.Module):
    """Says a symbol, and goes on from the symbol that it said."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.cell = nn.Linear(8, 8), nn.GRUCell(4, 8)
        self.say, self.symbols = nn.Linear(8, 5), nn.Embedding(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, said = self.start(x), []
        for _ in range(3):
            said.append(self.say(h))
            h = self.cell(self.symbols(said[-1].argmax(1)), h)
        return torch.stack(said, 1)


class Coarse(nn.Module):
    """A first guess at the target, and a second part that is trained on the target itself."""

    def __init__(self) -> None:
        super().__init__()
        self.guess, self.refine = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        target = x / x.std()
        return self.guess(x), self.refine(target), target


def coarse(model: nn.Module, x: Tensor) -> Tensor:
    guess, refined, target = model(x)
    return F.mse_loss(guess, target) + F.mse_loss(refined, x)


class Self(nn.Module):
    """Its own answers are its labels."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).tanh())
        return out


def own_labels(model: nn.Module, x: Tensor) -> Tensor:
    scores = model(x)
    return F.mse_loss(scores.softmax(1), F.one_hot(scores.argmax(1), 5).float())


def nearest_point(model: nn.Module, x: Tensor) -> Tensor:
    made = model(x)
    cloud = torch.randn(40, 5)
    return F.mse_loss(made, cloud[torch.cdist(made, cloud).argmin(1)])


WHOLE: dict[str, Callable[[], Any]] = {
    "straight through": quantized("straight"),
    "straight through, learned": quantized("straight learned", by_hand),
    "straight through, residual": quantized("straight residual"),
    "weighed": quantized("soft learned"),
    "experts": trained(Routed, lambda m, x: F.mse_loss(m(x), x)),
    "neighbours": trained(Neighbours, lambda m, x: F.mse_loss(m(x), x)),
    "fed back": trained(FedBack, lambda m, x: m(x).logsumexp(2).mean()),
    "target given": trained(Coarse, coarse),
    "own labels": trained(Self, own_labels),
    "nearest point": trained(Self, nearest_point),
}


@pytest.mark.parametrize("train", CUT.values(), ids=CUT)
def test_a_choice_that_nothing_passes_is_seen(tmp_path: Path, train: Callable[[], None]) -> None:
    with taping(tmp_path) as taper:
        train()
    found = taper.recorder.choice
    assert found is not None
    assert set(found.lost) >= {"encoder.0.weight", "encoder.2.weight"}
    assert not any(name.startswith("decoder") for name in found.lost)
    assert found.chosen is not None
    assert found.given is not None


@pytest.mark.parametrize("train", WHOLE.values(), ids=WHOLE)
def test_other_choices_are_left_alone(tmp_path: Path, train: Callable[[], None]) -> None:
    with taping(tmp_path) as taper:
        train()
    assert taper.recorder.choice is None
    assert taper.looks < 4, "nothing was looked at"
