"""Environments that the script wrote itself, in whatever form their steps give back what happened."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from loops_training import answers
from torch import nn

from clew.observe.told import GYMNASIUM, Form, form_of, taken, told_by
from clew.observe.watches.returns_course import ReturnsCourse
from clew.observe.watches.terminal_handling import TerminalHandling
from clew.observe.watches.transition_pairs import TransitionPairs

OBS, ROWS = np.full(3, 0.5, np.float32), np.full((4, 3), 0.5, np.float32)
PAY, FLAGS = np.full(4, 0.25, np.float32), np.zeros(4, bool)


class Step(NamedTuple):
    state: Any
    reward: Any
    done: Any


@dataclass
class Outcome:
    terminated: Any
    truncated: Any
    reward: Any
    observation: Any


@pytest.mark.parametrize(
    ("result", "form"),
    [
        ((OBS, 0.5, False, False, {}), GYMNASIUM),
        ((OBS, 0.5, True), GYMNASIUM),
        ((ROWS, PAY, False), GYMNASIUM),
        ((ROWS, ROWS, PAY, FLAGS, FLAGS), Form(0, 2, 3, 4, 1)),
        ((torch.zeros(4, 3), FLAGS, torch.zeros(4)), Form(0, 2, 1)),
        ((0.5, OBS, False), Form(1, 0, 2)),
        ((False, 0.5, OBS), Form(2, 1, 0)),
        ({"obs": OBS, "reward": 1.0, "done": False}, Form("obs", "reward", "done")),
        (Step(OBS, 1.0, False), GYMNASIUM),
        (
            Outcome(False, False, 1.0, OBS),
            Form("observation", "reward", "terminated", "truncated"),
        ),
    ],
)
def test_the_parts_of_a_step(result: Any, form: Form) -> None:
    found = form_of(result)
    assert found == form
    told = told_by(result, found)
    assert told is not None
    assert len(told.rewards) == len(told.terminated) == len(told.truncated)
    assert taken(result, form) is not None


@pytest.mark.parametrize(
    "result",
    [
        None,
        0.5,
        (OBS, 0.5),
        (OBS, OBS, OBS),
        (ROWS, PAY, PAY, FLAGS, FLAGS, FLAGS),  # which of the flags?
        (ROWS, ROWS, PAY, PAY + 1, FLAGS),  # which of the numbers?
        (torch.zeros(4, 3, requires_grad=True), torch.zeros(4, 3), torch.zeros(4), torch.zeros(4, dtype=torch.bool)),
        {"loss": 0.5, "logits": OBS, "done": False},
        {"obs": OBS, "reward": torch.ones((), requires_grad=True), "done": False},
    ],
)
def test_what_leaves_a_choice_or_is_no_step(result: Any) -> None:
    assert form_of(result) is None


@pytest.mark.parametrize(
    ("result", "read"),
    [
        ((OBS, 0.5), True),
        ((ROWS, PAY, {}), True),
        ((OBS, OBS), False),
        ((0.5, 0.5), False),
        ((OBS, True), False),
        ((torch.zeros(4, 3, requires_grad=True), 0.5), False),
    ],
)
def test_a_step_without_a_flag_needs_a_reset(result: Any, read: bool) -> None:
    assert form_of(result) is None
    found = form_of(result, resets=True)
    assert found == (Form(0, 1) if read else None)
    assert not read or taken(result, Form(0, 1)) is not None


# --- environments


class Line:
    """Several walkers on a line that falls off at one end. Most walks are cut off by the clock."""

    def __init__(self, lanes: int, tell: Callable[..., Any], limit: int = 7) -> None:
        self.lanes, self.tell, self.limit = lanes, tell, limit
        self.draw = np.random.default_rng(0)
        self.at = np.zeros(lanes)
        self.time = np.zeros(lanes, int)

    def start(self, rows: Any) -> None:
        self.at[rows] = self.draw.uniform(0.2, 0.9, int(rows.sum()))
        self.time[rows] = 0

    def seen(self) -> Any:
        return np.stack([self.at, self.time / self.limit], 1).astype(np.float32)

    def reset(self) -> Any:
        self.start(np.ones(self.lanes, bool))
        return self.seen()

    def step(self, action: Any) -> Any:
        self.at = self.at + 0.1 * (2 * action - 1) + self.draw.normal(0, 0.01, self.lanes)
        self.time += 1
        ended = self.at < 0
        cut = ~ended & (self.time >= self.limit)
        led_to, paid = self.seen(), (self.at + self.draw.normal(0, 0.1, self.lanes)).astype(np.float32)
        self.start(ended | cut)
        return self.tell(self.seen(), led_to, paid, ended, cut)


ORDERS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "last before the end second": (lambda obs, led, pay, end, cut: (obs, led, pay, end, cut), lambda held: held),
    "last before the end first": (
        lambda obs, led, pay, end, cut: (led, obs, pay, end, cut),
        lambda held: (held[1], held[0], *held[2:]),
    ),
    "reward first": (
        lambda obs, led, pay, end, cut: (pay, end, cut, obs, led),
        lambda held: (held[3], held[4], *held[:3]),
    ),
    "named": (
        lambda obs, led, pay, end, cut: {
            "obs": obs, "final_obs": led, "reward": pay, "terminated": end, "truncated": cut,
        },
        lambda held: (held["obs"], held["final_obs"], held["reward"], held["terminated"], held["truncated"]),
    ),
}  # fmt: skip


def value_learning(order: str, limit_ends: bool = False, shift: bool = False, updates: int = 80) -> None:
    tell, read = ORDERS[order]
    env, draw = Line(8, tell), np.random.default_rng(1)
    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    obs = env.reset()
    stored: list[Any] = []
    before = np.zeros(8, int)
    for update in range(updates):
        with torch.no_grad():
            best = network(torch.from_numpy(obs)).argmax(1).numpy()
        action = np.where(draw.random(8) < 0.5, draw.integers(0, 2, 8), best)
        following, led_to, reward, ended, cut = read(env.step(action))
        stop = ended | cut if limit_ends else ended
        stored.append((obs, before if shift else action, reward, led_to, stop.astype(np.float32)))
        obs, before = following, action
        if update < 8:
            continue
        rows = draw.integers(0, len(stored), 16)
        old, taken_, paid, then, stop = (
            torch.from_numpy(np.concatenate([stored[row][part] for row in rows])) for part in range(5)
        )
        with torch.no_grad():
            target = paid + 0.9 * (1 - stop) * network(then).amax(1)
        loss = nn.functional.smooth_l1_loss(network(old).gather(1, taken_[:, None]).squeeze(1), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("order", list(ORDERS))
def test_a_learner_is_followed_whatever_the_order(tmp_path: Path, order: str) -> None:
    watches = (TerminalHandling, TransitionPairs, ReturnsCourse)
    found = answers(tmp_path / "sound", partial(value_learning, order), *watches)
    assert found["transition_pairs"]["outcome"] == "own", found
    assert found["terminal_handling"]["outcome"] in ("right", "unclear"), found
    found = answers(tmp_path / "limit", partial(value_learning, order, limit_ends=True), *watches)
    assert found["terminal_handling"]["outcome"] == "truncation_as_terminal", found
    found = answers(tmp_path / "shift", partial(value_learning, order, shift=True), *watches)
    assert found["transition_pairs"]["outcome"] == "neighbour", found


# --- functions, and classes that are made inside of one

CHANCE = torch.Generator()


def transition(state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batched walk whose state goes in and comes out."""
    noise = 0.01 * torch.randn(state.shape, generator=CHANCE)
    state = state + 0.1 * (2 * action.float()[:, None] - 1) * torch.tensor([1.0, 0.0]) + noise
    return state, state[:, 0] + state[:, 1] ** 2, state[:, 0] < 0


def of_a_function(mask: bool = True, updates: int = 60) -> None:
    CHANCE.manual_seed(0)
    draw = torch.Generator().manual_seed(1)
    network = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    state, stored = 0.3 * torch.rand(8, 2, generator=draw), []
    for update in range(updates):
        with torch.no_grad():
            best = network(state).argmax(1)
        action = torch.where(torch.rand(8, generator=draw) < 0.9, torch.randint(0, 2, (8,), generator=draw), best)
        then, paid, done = transition(state, action)
        stored.append((state, action, paid, then, done.float()))
        state = torch.where(done[:, None], 0.3 * torch.rand(8, 2, generator=draw), then)
        if update < 8:
            continue
        rows = torch.randint(0, len(stored), (16,), generator=draw).tolist()
        old, used, reward, following, stop = (torch.cat([stored[row][part] for row in rows]) for part in range(5))
        with torch.no_grad():
            target = reward + 0.9 * (1 - mask * stop) * network(following).amax(1)
        loss = (network(old).gather(1, used[:, None]).squeeze(1) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_an_environment_may_be_a_function(tmp_path: Path) -> None:
    before = transition
    found = answers(tmp_path / "sound", of_a_function, TerminalHandling, TransitionPairs)
    assert found["transition_pairs"]["outcome"] == "own", found
    assert found["terminal_handling"]["outcome"] in ("right", "unclear"), found
    found = answers(tmp_path / "faulty", partial(of_a_function, mask=False), TerminalHandling, TransitionPairs)
    assert found["terminal_handling"]["outcome"] == "bootstraps_over_terminal", found
    assert transition is before


def inside_a_function() -> None:
    class Local(Line):
        def step(self, action: Any) -> Any:
            return super().step(action)

    env = Local(8, ORDERS["reward first"][0])
    network = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    env.reset()
    for _ in range(10):
        env.step(np.zeros(8, int))
        loss = network(torch.ones(4, 2)).sum()
        loss.backward()
        optimizer.step()


def test_a_class_made_inside_a_function_is_found(tmp_path: Path) -> None:
    found = answers(tmp_path, inside_a_function, TerminalHandling)
    assert "no environment" not in found["terminal_handling"]["unclear"]


class Learner:
    """A step of training gives back what a step of an environment might."""

    def __init__(self) -> None:
        self.network = nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.1)

    def step(self, batch: torch.Tensor) -> tuple[float, torch.Tensor, bool]:
        answer = self.network(batch)
        loss = answer.square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.item(), answer, loss.item() < 1e-9


def test_a_step_of_training_is_no_environment(tmp_path: Path) -> None:
    def loop() -> None:
        learner = Learner()
        for _ in range(10):
            learner.step(torch.ones(4, 2))

    found = answers(tmp_path, loop, TerminalHandling)
    assert "no environment" in found["terminal_handling"]["unclear"]
