"""Agents that act and learn step by step, and join what they gathered in lists."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from loops_rl import Corridor
from loops_training import answers
from torch import nn
from torch.distributions import Categorical

from clew.observe.watches._rl_written import pulls
from clew.observe.watches.advantage_detached import AdvantageDetached
from clew.observe.watches.observation_scale import ObservationScale
from clew.observe.watches.policy_direction import PolicyDirection


def joined(cut: bool, scale: bool = False, episodes: int = 12) -> None:
    """An actor and a critic, asked at every step; one loss over the whole episode."""
    env = Corridor()
    actor, critic = nn.Linear(8, 2), nn.Linear(8, 1)
    factor = nn.Parameter(torch.ones(()))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), factor], lr=1e-2)
    for _ in range(episodes):
        obs, done, logs, values, rewards = env.reset(), False, [], [], []
        for _ in range(20):
            choice = Categorical(logits=actor(obs))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            values.append(critic(obs).squeeze())
            obs, reward, done = env.step(int(action))
            rewards.append(reward)
            if done:
                break
        returns: list[float] = []
        total = 0.0
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        advantage = torch.tensor(returns) - torch.stack(values)
        weight = advantage.detach() if cut else advantage
        weight = weight * factor if scale else weight
        loss = -(torch.stack(logs) * weight).mean() + advantage.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(joined, cut=False), "carries_gradient"),
        (partial(joined, cut=True), "detached"),
        (partial(joined, cut=True, scale=True), "detached"),
    ],
)
def test_what_weighs_a_joined_list(tmp_path: Path, loop: partial[None], outcome: str) -> None:
    found = answers(tmp_path, loop, AdvantageDetached)["advantage_detached"]
    assert found["outcome"] == outcome, found


# --- log-probabilities that are written out


class Paid:
    """A walk whose steps pay for where they lead."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def reset(self) -> torch.Tensor:
        self.at, self.time = torch.rand(2, generator=self.generator), 0
        return self.at.clone()

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        self.at = self.at + 0.1 * (action - 1) + 0.05 * torch.randn(2, generator=self.generator)
        self.time += 1
        return self.at.clone(), float(self.at.sum()), self.time >= 12


def written(way: str, sign: float = -1.0, constant: bool = False, actions: int = 3, episodes: int = 12) -> None:
    env, draw = Paid(), torch.Generator().manual_seed(1)
    layers: list[nn.Module] = [nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, actions)]
    if way in ("log of softmax", "log-softmax at the end"):
        layers.append(nn.Softmax(-1) if way == "log of softmax" else nn.LogSoftmax(-1))
    policy = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(episodes):
        obs, done, seen, acted, rewards = env.reset(), False, [], [], []
        while not done:
            action = int(torch.randint(0, actions, (1,), generator=draw))
            seen.append(obs)
            acted.append(action)
            obs, reward, done = env.step(action)
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        weight = torch.ones(len(rewards)) if constant else returns - returns.mean()
        given, index = policy(torch.stack(seen)), torch.tensor(acted)[:, None]
        if way == "cross-entropy":
            logs = -nn.functional.cross_entropy(given, index[:, 0], reduction="none")
        elif way == "log of softmax":
            logs = given.gather(1, index)[:, 0].log()
        elif way == "log-softmax at the end":
            logs = given.gather(1, index)[:, 0]
        elif way == "values":
            logs = -(given.gather(1, index)[:, 0] - returns).square()
        else:
            logs = nn.functional.log_softmax(given, -1).gather(1, index)[:, 0]
        loss = sign * (logs * weight).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


WAYS = ["log-softmax and columns", "cross-entropy", "log of softmax", "log-softmax at the end"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("actions", [2, 3])
def test_the_direction_of_a_policy_that_is_written_out(tmp_path: Path, way: str, actions: int) -> None:
    found = answers(tmp_path / "along", partial(written, way, actions=actions), PolicyDirection)["policy_direction"]
    assert found["outcome"] == "along", found
    loop = partial(written, way, sign=1.0, actions=actions)
    found = answers(tmp_path / "against", loop, PolicyDirection)["policy_direction"]
    assert found["outcome"] == "against", found


@pytest.mark.parametrize(
    "loop",
    [
        partial(written, "values"),
        partial(written, "values", sign=1.0),
        partial(written, "cross-entropy", constant=True),  # imitation
        partial(written, "cross-entropy", sign=1.0, constant=True),
    ],
)
def test_what_is_no_policy_has_no_direction(tmp_path: Path, loop: partial[None]) -> None:
    assert answers(tmp_path, loop, PolicyDirection)["policy_direction"]["outcome"] == "unclear"


class Cells:
    """A row of cells that are known by their number."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def reset(self) -> int:
        self.at, self.time = int(torch.randint(0, 20, (1,), generator=self.generator)), 0
        return self.at

    def step(self, action: int) -> tuple[int, float, bool]:
        self.at, self.time = min(24, max(0, self.at + (1, -1, 5)[action])), self.time + 1
        return self.at, 0.1 * self.at - 0.01 * self.time, self.time >= 16


def numbered(sign: float, episodes: int = 12) -> None:
    env, draw = Cells(), torch.Generator().manual_seed(1)
    policy = nn.Sequential(nn.Embedding(25, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(episodes):
        cell, done, seen, acted, rewards = env.reset(), False, [], [], []
        while not done:
            action = int(torch.randint(0, 3, (1,), generator=draw))
            seen.append(cell)
            acted.append(action)
            cell, reward, done = env.step(action)
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        choice = Categorical(logits=policy(torch.tensor(seen)))
        loss = sign * (choice.log_prob(torch.tensor(acted)) * (returns - 5)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(("sign", "outcome"), [(-1.0, "along"), (1.0, "against")])
def test_states_that_are_numbers_are_known_again(tmp_path: Path, sign: float, outcome: str) -> None:
    found = answers(tmp_path, partial(numbered, sign), PolicyDirection, ObservationScale)
    assert found["policy_direction"]["outcome"] == outcome, found
    assert found["observation_scale"]["outcome"] == "unclear", found  # a number of a state has no scale


def test_other_terms_on_the_logits_say_nothing() -> None:
    draw = np.random.default_rng(0)
    outputs = draw.normal(size=(32, 4))
    shares = np.exp(outputs) / np.exp(outputs).sum(1, keepdims=True)
    actions = draw.integers(0, 4, 32).tolist()
    weights = draw.normal(size=32)
    gradient = weights[:, None] * (shares - np.eye(4)[actions])
    found = pulls(outputs, gradient, actions)
    assert found is not None
    assert np.allclose(found, weights)
    noise = draw.normal(size=(32, 4))
    assert pulls(outputs, gradient + noise - noise.mean(1, keepdims=True), actions) is None
    assert pulls(outputs, noise, actions) is None
