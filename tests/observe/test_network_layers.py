"""How the network is built: initial weights, layers without a nonlinearity between, layers it does not register."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_network import (
    Attention,
    Conv,
    Layers,
    LowRank,
    Modulated,
    answer,
    classes,
    fit,
    fit_loss,
    gan,
    initialised,
    lines,
    pictures,
    sequences,
    stack,
)
from torch import Tensor, nn

from clew.observe.watches.linear_stack import LinearStack
from clew.observe.watches.registered_modules import RegisteredModules
from clew.observe.watches.weight_init import WeightInit

# --- weight_init


class Raw(nn.Module):
    """Weights made by hand."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(128, 64) * scale)
        self.second = nn.Parameter(torch.randn(64, 4) * 0.1)
        self.place = nn.Parameter(torch.randn(64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.first + self.place) @ self.second


class SmallBranch(nn.Module):
    """The last layer of each residual branch starts small, as in GPT-2, by much more than usual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.up, self.down, self.head = (nn.Linear(a, b) for a, b in ((8, 32), (32, 64), (64, 32), (32, 4)))
        with torch.no_grad():
            self.down.weight.mul_(0.01)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.stem(x))
        return self.head(F.relu(x + F.dropout(self.down(F.relu(self.up(x))), 0.1)))  # type: ignore[no-any-return]


def all_zero() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return fit(model)


def all_zero_and_still() -> nn.Module:
    model = Modulated()
    return fit(model, rate=0.0)


class Adapted(nn.Module):
    """A layer that is there already, and a product of two factors beside it."""

    def __init__(self, base: nn.Linear, down: Callable[[Tensor], Any], up: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(4, base.in_features))
        self.up = nn.Parameter(torch.empty(base.out_features, 4))
        down(self.down)
        up(self.up)

    def forward(self, x: Tensor) -> Tensor:
        added = F.linear(F.linear(x, self.down), self.up)
        return self.base(x) + added  # type: ignore[no-any-return]


def adapted(down: Callable[[Tensor], Any], up: Callable[[Tensor], Any]) -> None:
    """Trained, then given adapters and trained on; the model is gone when the run ends."""
    model = fit(stack(), steps=900)
    for name in ("0", "2"):
        setattr(model, name, Adapted(model.get_submodule(name), down, up))  # type: ignore[arg-type]
    fit(model.requires_grad_(True), steps=40)


def new_head() -> nn.Module:
    model = fit(stack(), steps=900)
    model[2] = nn.Linear(32, 4)  # type: ignore[operator]
    nn.init.zeros_(model[2].weight)  # type: ignore[index]
    return fit(model, steps=40)


def waiting_part() -> nn.Module:
    """Zeros that a later stage holds and that no loss has asked for yet."""
    model = fit(Layers(torch.tanh), steps=900)
    model.later = nn.Linear(8, 8)
    nn.init.zeros_(model.later.weight)
    return fit(model, steps=40)


def wide(examples: int = 64) -> tuple[Tensor, Tensor]:
    return classes(examples, features=128)


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(initialised(m := stack(), lambda w: w.fill_(0.01), m[0], m[2])), "identical"),
        (all_zero, "identical"),
        (lambda: fit(initialised(m := Layers(torch.tanh), nn.init.ones_, m.layers[1])), "identical"),
        (lambda: fit(Raw(1.0), data=wide()), "too_large"),
        (lambda: fit(initialised(m := stack(), lambda w: w.normal_(0, 9), m[0])), "too_large"),
        (lambda: fit(Raw(1e-4), data=wide()), "too_small"),
        (lambda: fit(Raw(0.6), data=wide()), "too_large"),
        (lambda: fit(Raw(0.4), data=wide()), "usual"),
        (lambda: fit(initialised(m := Layers(F.relu), lambda w: w.mul_(0.01), m.layers[1])), "too_small"),
        (lambda: fit(Raw(0.1), data=wide()), "usual"),
        (lambda: fit(initialised(m := stack(), lambda w: w.mul_(0.01), m[2])), "usual"),
        (lambda: fit(LowRank()), "usual"),
        (lambda: fit(Modulated()), "usual"),
        (lambda: fit(SmallBranch()), "usual"),
        (all_zero_and_still, "usual"),
        (lambda: adapted(nn.init.zeros_, nn.init.zeros_), "identical"),
        (lambda: adapted(nn.init.kaiming_uniform_, nn.init.zeros_), "usual"),
        (lambda: adapted(nn.init.zeros_, nn.init.kaiming_uniform_), "usual"),
        (new_head, "usual"),
        (waiting_part, "usual"),
        (lambda: fit(Conv(), data=pictures()), "usual"),
        (
            lambda: fit(
                nn.Sequential(nn.ConvTranspose2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 4)), data=pictures()
            ),
            "usual",
        ),
    ],
)
def test_weight_init(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, WeightInit, train)
    assert told["outcome"] == wanted, told
    if wanted != "usual":
        assert told["where"][0]["parameter"]


# --- linear_stack


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        F.relu(x)
        return self.fc2(x)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, act: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        return F.relu(x) if self.act else x


def blocks(act: bool) -> nn.Module:
    body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), Block(act), Block(act), nn.ReLU())
    return nn.Sequential(body, nn.Flatten(), nn.Linear(8 * 12 * 12, 4))


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(8, 16), nn.Linear(16, 4), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.body(x)
        return self.policy(x), self.value(x)


def two_heads() -> nn.Module:
    x, y = classes()

    def loss(model: nn.Module) -> Tensor:
        policy, value = model(x)
        return F.cross_entropy(policy, y) + value.square().mean()  # type: ignore[no-any-return]

    return fit_loss(TwoHeads(), loss)


def parts() -> nn.Module:
    """An encoder that ends in an embedding, and a head on top of it."""
    encoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    return nn.Sequential(encoder, nn.Sequential(nn.Linear(16, 4)))


def separable() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1), nn.ReLU()]
    return nn.Sequential(
        *layers, nn.Conv2d(16, 16, (1, 5)), nn.Conv2d(16, 16, (5, 1)), nn.Flatten(), nn.Linear(1024, 4)
    )


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))), "stacked"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Linear(16, 4))), "stacked"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))), "stacked"),
        (lambda: fit(Dropped()), "stacked"),
        (lambda: fit(Layers(lambda x: x)), "stacked"),
        (lambda: fit(blocks(act=False), data=pictures()), "stacked"),
        (lambda: fit(blocks(act=True), data=pictures()), "separated"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 2), nn.Linear(2, 4))), "separated"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))), "separated"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.0), nn.Linear(16, 4))), "separated"),
        (
            lambda: fit(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4)).eval()),
            "separated",
        ),
        (lambda: fit(LowRank()), "separated"),
        (lambda: fit(separable(), data=pictures()), "separated"),
        (lambda: fit(parts()), "separated"),
        (lambda: fit(Attention(), data=sequences()), "separated"),
        (two_heads, "separated"),
        (gan, "separated"),
        (lambda: None, "unclear"),
    ],
)
def test_linear_stack(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, LinearStack, train)
    assert told["outcome"] == wanted, told


def test_the_second_layer_of_a_stack_is_the_place(tmp_path: Path) -> None:
    told = answer(tmp_path, LinearStack, lambda: fit(Dropped()))
    assert "return self.fc2(x)" in lines(told)[0]
    assert told["where"][0]["module"] == "fc2"


# --- registered_modules


class Listed(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        middle = nn.Linear(16, 16)
        if kind == "list":
            self.extra: Any = [middle]
        elif kind == "dict":
            self.extra = {"middle": [middle]}
        elif kind == "object":
            self.extra = Holder(middle)
        elif kind == "tensor":
            self.extra = torch.randn(16, 16, requires_grad=True)
        elif kind == "converted":
            self.extra = nn.Parameter(torch.randn(16, 16)).to(torch.float64)
        elif kind == "eval":
            self.extra = [middle.eval()]
        else:
            self.extra = nn.ModuleList([middle])
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        held = self.extra
        if isinstance(held, Tensor):
            x = x @ held.float()
        else:
            x = (held.layer if isinstance(held, Holder) else held["middle"][0] if isinstance(held, dict) else held[0])(
                x
            )
        return self.head(F.relu(x))  # type: ignore[no-any-return]


class Holder:
    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer


class MadeInForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(nn.Linear(16, 16)(F.relu(self.first(x)))))  # type: ignore[no-any-return]


def listed_and_optimised() -> nn.Module:
    model = Listed("list")
    x, y = classes()
    optimizer = torch.optim.SGD([*model.parameters(), *model.extra[0].parameters()], lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def attacked() -> nn.Module:
    """Inputs that need gradients, and noise that is learned anew on every step."""
    model = stack()
    x, y = classes()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        noise = nn.Parameter(torch.zeros_like(x))
        x.requires_grad_()
        optimizer.zero_grad()
        F.cross_entropy(model(x + noise), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        *[
            ((lambda kind=kind: fit(Listed(kind))), "unregistered")
            for kind in ("list", "dict", "object", "tensor", "converted")
        ],
        (lambda: fit(MadeInForward()), "unregistered"),
        (lambda: fit(Listed("modules")), "all"),
        (lambda: fit(Listed("eval")), "all"),
        (listed_and_optimised, "all"),
        (attacked, "all"),
        (gan, "all"),
        (lambda: None, "unclear"),
    ],
)
def test_registered_modules(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    if wanted == "unregistered" or train is not None:
        told = answer(tmp_path, RegisteredModules, train)
    assert told["outcome"] == wanted, told


def test_where_the_list_is_made(tmp_path: Path) -> None:
    told = answer(tmp_path, RegisteredModules, lambda: fit(Listed("list")))
    assert told["where"][0]["parameter"] == "extra[0].weight"
    assert "self.extra: Any = [middle]" in lines(told)[0]
