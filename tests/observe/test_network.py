"""What goes through the network: sound loops raise no alarm, gradients by depth, dead and saturated units."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_network import (
    KNOWN,
    Conv,
    Layers,
    answer,
    classes,
    fit,
    fit_loss,
    gan,
    judged,
    lines,
    pictures,
    sound_models,
    stack,
)
from torch import Tensor, nn

from clew.archive.metrics import read_numbers
from clew.observe.hooks import watching
from clew.observe.watch import Watch
from clew.observe.watches._network_graph import norms
from clew.observe.watches.activation_saturation import ActivationSaturation
from clew.observe.watches.activation_zero_share import ActivationZeroShare
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.gradient_by_depth import GradientByDepth
from clew.observe.watches.linear_stack import LinearStack
from clew.observe.watches.registered_modules import RegisteredModules
from clew.observe.watches.weight_distribution import WeightDistribution
from clew.observe.watches.weight_init import WeightInit

WATCHES: list[type[Watch]] = [
    ActivationSaturation,
    ActivationZeroShare,
    FirstNonfinite,
    GradientByDepth,
    LinearStack,
    RegisteredModules,
    WeightDistribution,
    WeightInit,
]
SOUND = sound_models()


@pytest.mark.parametrize("name", SOUND)
def test_sound_loops_raise_no_alarm(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    with watching(tmp_path, WATCHES) as recorder:
        kept = SOUND[name]()
        assert not recorder.broken, recorder.broken
        told = [judged(held) for held in recorder.answers()]
        del kept
    alarms = []
    for held in told:
        known = KNOWN.tests[held["test"]].outcome(held["outcome"])
        if known is not None and known.kind == "seen":
            alarms.append(held)
    assert not alarms
    said = [held["test"] for held in told if held["outcome"] != "unclear"]
    assert len(said) >= 5, told


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    import gc
    import weakref

    with watching(tmp_path, WATCHES) as recorder:
        model = Conv()
        data = pictures()
        loss = F.cross_entropy(model(data[0]), data[1])
        graph, batch = weakref.ref(loss), weakref.ref(data[0])
        loss.backward()  # type: ignore[no-untyped-call]
        refs = [weakref.ref(p) for p in model.parameters()]
        del model, data, loss
        gc.collect()
        assert graph() is None
        assert batch() is None
        assert all(ref() is None for ref in refs)
        recorder.answers()


# --- gradient_by_depth


def explode() -> nn.Module:
    model = Layers(torch.tanh, depth=14, width=64)
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(20)  # type: ignore[operator]
    return fit(model, rate=1e-6)


def cut() -> nn.Module:
    class Cut(Layers):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(self.layers[0](x)).detach()
            return self.layers[2](torch.relu(self.layers[1](x)))  # type: ignore[no-any-return]

    return fit(Cut(torch.relu))


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(Layers(torch.sigmoid, depth=12)), "vanishing"),
        (lambda: fit(nn.Sequential(*[m for _ in range(14) for m in (nn.Linear(8, 8), nn.Sigmoid())])), "vanishing"),
        (explode, "exploding"),
        (cut, "zero"),
        (lambda: fit(Layers(torch.relu)), "even"),
        (lambda: fit(nn.Linear(8, 4)), "unclear"),
    ],
)
def test_gradient_by_depth(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, GradientByDepth, train)
    assert told["outcome"] == wanted, told
    if wanted in ("vanishing", "exploding", "zero"):
        assert told["where"][0]["parameter"] == told["measured"]["first"]


def test_a_line_search_is_looked_at_before_it_has_emptied_the_gradient(tmp_path: Path) -> None:
    def train() -> nn.Module:
        layers = [part for _ in range(9) for part in (nn.Linear(24, 24), nn.Sigmoid())]
        model = nn.Sequential(nn.Linear(1, 24), nn.Sigmoid(), *layers, nn.Linear(24, 1))
        x = torch.linspace(-1, 1, 100)[:, None]
        optimizer = torch.optim.LBFGS(model.parameters(), lr=1, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), torch.sinc(4 * x))
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        for _ in range(5):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
        return model

    assert answer(tmp_path, GradientByDepth, train)["outcome"] == "vanishing"


def test_gradient_norms_are_recorded_and_right(tmp_path: Path) -> None:
    with watching(tmp_path, [GradientByDepth]) as recorder:
        model = Layers(torch.relu)
        x, y = classes()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        wanted = {name: float(p.grad.norm()) for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        recorder.stream.flush()
    written = {of: value for name, of, step, value in read_numbers(recorder.stream.path) if name == "grad_norm"}
    assert written == pytest.approx(wanted, rel=1e-5)


def test_a_dying_network_shows_although_it_began_well(tmp_path: Path) -> None:
    def train() -> nn.Module:
        model = Layers(torch.relu)
        x, y = classes()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(10):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step == 2:
                with torch.no_grad():
                    model.layers[1].bias.fill_(-1e3)  # type: ignore[operator]
        return model

    assert answer(tmp_path, GradientByDepth, train)["outcome"] == "zero"


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_norms_do_not_overflow_and_skip_what_cannot_be_read(kind: torch.dtype) -> None:
    large = torch.full((100, 100), 3e4, dtype=kind)
    indices, values = torch.tensor([[0, 1]]), torch.ones(2)
    sparse = torch.sparse_coo_tensor(indices, values, (3,), check_invariants=False)
    found = norms([large, torch.empty(0), torch.ones(3, dtype=torch.int64), torch.ones(2, device="meta"), sparse])
    assert found[0] == pytest.approx(3e6, rel=0.01)
    assert found[1:] == [0, 0, 0, 0]


# --- activation_zero_share


def killed(model: nn.Module, layer: nn.Module) -> nn.Module:
    nn.init.constant_(layer.bias, -100.0)  # type: ignore[arg-type]
    return model


def conv_killed(which: str) -> Callable[[], nn.Module]:
    def train() -> nn.Module:
        model = Conv()
        return fit(killed(model, getattr(model, which)), data=pictures())

    return train


def sparse_code() -> nn.Module:
    """Many units, each for a few inputs only: most are silent on one batch, none is dead."""
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(256))  # type: ignore[operator]
        model[0].bias.fill_(-0.5)  # type: ignore[operator]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(10):
        picked = torch.randint(0, 256, (8,))
        F.cross_entropy(model(F.one_hot(picked, 256).float()), picked % 4).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(killed(model := stack(), model[0])), "dead"),
        (lambda: fit(killed(model := Layers(torch.relu), model.layers[0])), "dead"),
        (lambda: fit(killed(model := Layers(F.relu6), model.layers[1])), "dead"),
        (conv_killed("conv1"), "dead"),
        (conv_killed("conv2"), "dead"),
        (conv_killed("fc1"), "dead"),
        (lambda: fit(Conv(), data=pictures()), "alive"),
        (lambda: fit(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.9), nn.Linear(64, 4))), "alive"),
        (lambda: fit(Conv(nn.ReLU(inplace=True)), data=pictures()), "alive"),
        (lambda: fit(Layers(torch.tanh)), "alive"),  # nothing in it can fall silent
        (lambda: fit(stack(), data=classes(2)), "unclear"),
        (sparse_code, "alive"),
    ],
)
def test_activation_zero_share(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, ActivationZeroShare, train)
    assert told["outcome"] == wanted, told


def test_the_dead_layer_is_named(tmp_path: Path) -> None:
    told = answer(tmp_path, ActivationZeroShare, conv_killed("conv2"))
    assert told["where"][0]["module"] == "conv2 (relu)"
    assert "nn.init.constant_(layer.bias, -100.0)" in lines(told)[0]  # it was dead before the first step
    assert "self.fc1(x)" in lines(told)[1]


def test_dead_units_early_on_that_come_back_are_no_alarm(tmp_path: Path) -> None:
    def train() -> nn.Module:
        model = killed(stack(), nn.Linear(1, 1))
        x, y = classes()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(60):
            with torch.no_grad():
                model[0].bias.fill_(-100.0 if step < 3 else 0.0)  # type: ignore[index]
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    assert answer(tmp_path, ActivationZeroShare, train)["outcome"] == "alive"


# --- activation_saturation


def scaled(model: nn.Module, factor: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(factor)
    return model


class Gates(nn.Module):
    """A hand-written gated cell: its gates sit at their limits, as those of a trained one do."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 4)
        nn.init.constant_(self.gate.bias, 30.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sigmoid(self.gate(x)) * self.value(x))  # type: ignore[no-any-return]


def sigmoid_output() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1), nn.Sigmoid())
    nn.init.constant_(model[2].bias, 20.0)  # type: ignore[arg-type]
    x, _ = classes()
    return fit_loss(model, lambda m: F.binary_cross_entropy(m(x), torch.ones(64, 1)))


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(scaled(Layers(torch.tanh), 100)), "saturated"),
        (
            lambda: fit(scaled(nn.Sequential(nn.Linear(8, 16), nn.Sigmoid(), nn.Dropout(), nn.Linear(16, 4)), 200)),
            "saturated",
        ),
        (lambda: fit(scaled(nn.Sequential(nn.Linear(8, 16), nn.Hardtanh(), nn.Linear(16, 4)), 100)), "saturated"),
        (lambda: fit(scaled(Conv(torch.tanh), 100), data=pictures()), "saturated"),
        (lambda: fit(Layers(torch.tanh)), "free"),
        (lambda: fit(scaled(nn.Sequential(nn.Linear(8, 16), nn.ReLU6(), nn.Linear(16, 4)), 100)), "free"),
        (lambda: fit(Gates()), "free"),
        (sigmoid_output, "free"),
        (lambda: gan(output=nn.Tanh(), gain=300), "free"),
        (lambda: fit(stack()), "free"),
        (lambda: fit(Layers(torch.tanh), steps=2), "unclear"),
    ],
)
def test_activation_saturation(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, ActivationSaturation, train)
    assert told["outcome"] == wanted, told


def test_without_modules_nothing_can_be_said(tmp_path: Path) -> None:
    def train() -> None:
        x, y = classes()
        weight = torch.randn(8, 4, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(torch.tanh(x) @ weight, y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    for watch in (ActivationSaturation, ActivationZeroShare, LinearStack, WeightInit, GradientByDepth):
        assert answer(tmp_path, watch, train)["outcome"] == "unclear", watch
    assert answer(tmp_path, RegisteredModules, train)["outcome"] == "all"
    assert answer(tmp_path, FirstNonfinite, train)["outcome"] == "none"
