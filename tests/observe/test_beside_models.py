"""What stands beside the models: parameters of the script's own, one look at a whole set, an actor and its critic."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_data import answer, lines
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.hooks import watching
from clew.observe.watches.actor_pull import ActorPull
from clew.observe.watches.critic_in_loss import CriticInLoss
from clew.observe.watches.mode_in_validation import ModeInValidation
from clew.observe.watches.optimizer_coverage import OptimizerCoverage
from clew.observe.watches.policy_direction import PolicyDirection
from clew.records.clue import Saw


def equation(held: bool = False, by_hand: bool = False) -> None:
    """A coefficient that is to be learned along with the network that solves the equation."""
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    rate_raw = nn.Parameter(torch.tensor(0.3))
    optimizer = torch.optim.Adam([*net.parameters(), rate_raw] if held else net.parameters(), lr=1e-2)
    for _ in range(12):
        t = torch.rand(32, 1, requires_grad=True)
        u = net(t)
        (slope,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        optimizer.zero_grad()
        (slope + rate_raw.exp() * u).square().mean().backward()
        optimizer.step()
        if by_hand and rate_raw.grad is not None:
            with torch.no_grad():
                rate_raw.sub_(0.1 * rate_raw.grad)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (equation, "missing"),
        (lambda: equation(held=True), "complete"),
        (lambda: equation(by_hand=True), "complete"),
    ],
)
def test_a_parameter_that_no_module_holds(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    told = answer(tmp_path, OptimizerCoverage, loop)
    assert told["outcome"] == outcome
    if outcome == "missing":
        assert any(place.get("parameter") == "rate_raw" for place in told["where"])
        assert any("torch.optim.Adam" in line for line in lines(told))


def fitted(mode: str, last: bool = True) -> None:
    """Twenty initialisers enter no_grad before anything is learned, as they do in larger networks."""
    torch.manual_seed(0)
    model = nn.Sequential(*(part for _ in range(10) for part in (nn.Linear(4, 4), nn.BatchNorm1d(4))), nn.Linear(4, 1))
    x = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    others = torch.randn(200, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(6):
        model.train()
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().mean().backward()
            optimizer.step()
    if last:
        model.train(mode == "train")
        with torch.no_grad():
            print(1 - (model(others) - others.sum(1, keepdim=True)).var() / 4)


@pytest.mark.parametrize(("loop", "outcome"), [(lambda: fitted("train"), "train"), (lambda: fitted("eval"), "eval")])
def test_one_look_at_a_whole_set(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    assert answer(tmp_path, ModeInValidation, loop)["outcome"] == outcome


def looked_at(mode: str, rows: int) -> None:
    """A set that is made anew for every look between two epochs, with training after the last."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    x = torch.randn(64, 4)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(5):
        model.train()
        for a, b in loader:
            optimizer.zero_grad()
            (model(a) - b).square().mean().backward()
            optimizer.step()
        model.train(mode == "train")
        if epoch < 4:
            with torch.no_grad():
                print(float(model(torch.randn(rows, 4)).mean()))


@pytest.mark.parametrize(
    ("mode", "rows", "outcome"), [("train", 200, "train"), ("eval", 200, "eval"), ("train", 16, "")]
)
def test_looks_at_a_whole_set_between_epochs(tmp_path: Any, mode: str, rows: int, outcome: str) -> None:
    assert answer(tmp_path, ModeInValidation, lambda: looked_at(mode, rows))["outcome"] == (outcome or "unclear")


class Line:
    """A place on a line; the action is how far to go."""

    action_space = observation_space = None

    def reset(self) -> tuple[Any, dict[str, Any]]:
        self.at = torch.randn(2)
        return self.at.numpy(), {}

    def step(self, action: float) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at = self.at + torch.tensor([action, 0.0])
        return self.at.numpy(), -abs(float(self.at[0])), False, False, {}


def controlled(sign: float) -> None:
    torch.manual_seed(0)
    env = Line()
    actor = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    critic = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    first, second = (torch.optim.Adam(held.parameters(), lr=1e-3) for held in (actor, critic))
    state, _ = env.reset()
    for _ in range(10):
        here = torch.tensor(state).reshape(1, 2)
        with torch.no_grad():
            action = float(actor(here))
        state, reward, *_ = env.step(action)
        states = here + 0.01 * torch.randn(16, 2)
        tried = torch.cat([states, torch.full((16, 1), action)], 1)
        second.zero_grad()
        (critic(tried) - reward).square().mean().backward()
        second.step()
        first.zero_grad()
        (sign * critic(torch.cat([states, actor(states)], 1))).mean().backward()
        first.step()


@pytest.mark.parametrize(("sign", "outcome"), [(-1.0, "up"), (1.0, "down")])
def test_an_actor_that_learns_through_its_critic(tmp_path: Any, sign: float, outcome: str) -> None:
    with watching(tmp_path, [ActorPull, PolicyDirection]) as recorder:
        controlled(sign)
        told = next(held.read() for held in recorder.watches if isinstance(held, ActorPull))
    assert isinstance(told, Saw)
    assert told.outcome == outcome


class Valued(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.body(torch.cat([state, action], 1))
        return out


def remembered() -> None:
    """An actor that gives one number and learns through its critic, from states that were met."""
    torch.manual_seed(0)
    env, actor, critic = Line(), nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), Valued()
    first, second = (torch.optim.Adam(held.parameters(), lr=1e-3) for held in (actor, critic))
    state, _ = env.reset()
    met = []
    for _ in range(60):
        here = torch.tensor(state).reshape(1, 2)
        action = actor(here).item()
        state, reward, *_ = env.step(action)
        met.append((here, torch.full((1, 1), action), torch.full((1, 1), reward)))
        if len(met) < 20:
            continue
        states, actions, rewards = (torch.cat(part) for part in zip(*met[-16:], strict=True))
        second.zero_grad()
        (critic(states, actions) - rewards).square().mean().backward()
        second.step()
        first.zero_grad()
        (-critic(states, actor(states))).mean().backward()
        first.step()


def test_an_actor_is_not_taken_for_a_critic_that_no_loss_reaches(tmp_path: Any) -> None:
    with watching(tmp_path, [CriticInLoss]) as recorder:
        remembered()
        (held,) = recorder.watches
        told = held.read()
    assert not (isinstance(told, Saw) and told.outcome == "left_out"), told


@pytest.mark.parametrize(("mode", "outcome"), [("train", "train"), ("eval", "eval")])
def test_one_batch_of_another_loader_now_and_then(tmp_path: Any, mode: str, outcome: str) -> None:
    """Validated with gradients recorded, a batch at a time, between the steps of training."""

    def loop() -> None:
        model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        x, y = torch.randn(80, 6), torch.randint(0, 2, (80,))
        training = DataLoader(TensorDataset(x[:60], y[:60]), batch_size=6, shuffle=True)
        held = DataLoader(TensorDataset(x[60:], y[60:]), batch_size=5)
        for a, b in training:
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(a), b).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            model.train(mode == "train")
            others, wanted = next(iter(held))
            F.cross_entropy(model(others), wanted).item()

    assert answer(tmp_path, ModeInValidation, loop)["outcome"] == outcome


def averaged(look: Callable[[nn.Module, DataLoader[Any]], None], each: str = "") -> None:
    """A moving average of the weights, looked at after every epoch; `each` says what it does on the training steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 2))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x, y = torch.randn(120, 6), torch.randint(0, 2, (120,))
    training = DataLoader(TensorDataset(x[:60], y[:60]), batch_size=10, shuffle=True)
    held = DataLoader(TensorDataset(x[60:], y[60:]), batch_size=20)
    for _ in range(4):
        for a, b in training:
            loss = F.cross_entropy(model(a), b)
            with torch.no_grad():
                for view in (a, a + 0.1 * torch.randn_like(a)) if each else ():
                    F.cross_entropy(average(view), b)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                    slow.lerp_(fast, 0.1)
        with torch.no_grad():
            look(average, held)


def scores(average: nn.Module, val_loader: DataLoader[Any]) -> None:
    for a, b in val_loader:
        F.cross_entropy(average(a), b)


def counts(average: nn.Module, val_loader: DataLoader[Any]) -> None:
    print(sum(int((average(val_x).argmax(1) == val_y).sum()) for val_x, val_y in val_loader))


def labels(average: nn.Module, others: DataLoader[Any]) -> None:
    """Answers for unlabelled examples, which training may use."""
    print(len([average(a).argmax(1) for a, _ in others]))


def settles(average: nn.Module, others: DataLoader[Any]) -> None:
    """Statistics of the average, then a look in eval mode."""
    for a, _ in others:
        average(a)
    average.eval()
    scores(average, others)
    average.train()


def samples(average: nn.Module, val_loader: DataLoader[Any]) -> None:
    for a, b in val_loader:
        F.cross_entropy(torch.stack([average(a) for _ in range(5)]).mean(0), b)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (lambda: averaged(scores), "train"),
        (lambda: averaged(counts), "train"),
        (lambda: averaged(lambda average, held: scores(average.eval(), held)), "eval"),
        (lambda: averaged(labels), "unclear"),
        (lambda: averaged(settles), "eval"),
        (lambda: averaged(samples), "unclear"),
        (lambda: averaged(lambda _average, _held: None, each="a teacher"), "unclear"),
    ],
)
def test_an_average_of_the_weights_is_looked_at(tmp_path: Any, loop: Callable[[], None], outcome: str) -> None:
    assert answer(tmp_path, ModeInValidation, loop)["outcome"] == outcome
