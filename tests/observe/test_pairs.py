"""Few states that come again all the time: the action of a row is told by the two observations around it."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loops_training import answers
from torch import nn

from clew.observe.watches._rl_pairs import Tally
from clew.observe.watches.transition_pairs import TransitionPairs

SIDE = 8


class Grid:
    """A field of a few cells with a goal in the corner; now and then a move slips."""

    def __init__(self, seed: int = 0) -> None:
        self.draw = np.random.default_rng(seed)

    def seen(self) -> Any:
        cell = np.zeros(SIDE * SIDE, np.float32)
        cell[SIDE * self.at[0] + self.at[1]] = 1
        return cell

    def reset(self) -> Any:
        self.at, self.time = (0, int(self.draw.integers(SIDE))), 0
        return self.seen()

    def step(self, action: int) -> Any:
        if self.draw.random() < 0.05:
            action = int(self.draw.integers(4))
        row, column = np.add(self.at, [(-1, 0), (1, 0), (0, -1), (0, 1)][action]).clip(0, SIDE - 1)
        self.at, self.time = (int(row), int(column)), self.time + 1
        there = self.at == (SIDE - 1, SIDE - 1)
        return self.seen(), 1.0 if there else -0.01, there, self.time >= 30 and not there, {}


def learning(shift: int = 0, relabelled: bool = False, updates: int = 60) -> None:
    env, draw = Grid(), np.random.default_rng(1)
    network, target = nn.Linear(SIDE * SIDE, 4), nn.Linear(SIDE * SIDE, 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    stored: list[Any] = []
    obs = env.reset()
    for _ in range(400):
        action = int(draw.integers(4))
        then, reward, ended, cut, _ = env.step(3 - action if relabelled else action)
        stored.append((obs, action, reward, then, float(ended)))
        obs = env.reset() if ended or cut else then
    for _ in range(updates):
        rows = draw.integers(1, len(stored) - 1, 32)
        old, reward, then, end = (
            torch.from_numpy(np.array([stored[row][part] for row in rows], np.float32)) for part in (0, 2, 3, 4)
        )
        used = torch.tensor([stored[row + shift][1] for row in rows])
        with torch.no_grad():
            aim = reward + 0.9 * (1 - end) * target(then).amax(1)
        loss = nn.functional.smooth_l1_loss(network(old).gather(1, used[:, None])[:, 0], aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_action_of_a_neighbour_among_states_that_come_again(tmp_path: Path, shift: int) -> None:
    found = answers(tmp_path, partial(learning, shift), TransitionPairs)["transition_pairs"]
    assert found["outcome"] == "neighbour", found
    assert found["measured"]["shift"] == shift


@pytest.mark.parametrize("relabelled", [False, True])
def test_sound_rows_among_states_that_come_again(tmp_path: Path, relabelled: bool) -> None:
    found = answers(tmp_path, partial(learning, relabelled=relabelled), TransitionPairs)["transition_pairs"]
    assert found["outcome"] in ("own", "unclear"), found


def test_only_what_tells_two_steps_apart_counts() -> None:
    tally = Tally()
    for _ in range(40):
        tally.add_any(0, {0, 1}, {0, 2})  # may be either
    assert tally.says() == ""
    for _ in range(40):
        tally.add_any(2, {0, 1}, {2})
        tally.add_any(3, {3}, {3})
    assert tally.says() == "other"
    for _ in range(40):
        tally.add_any(1, {1}, {2})
    assert tally.says() == ""
