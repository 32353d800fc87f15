"""What an agent comes to: the returns of its episodes, the score it prints, and how far single updates carry it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loops_training import answers, text_at
from torch.distributions import Categorical

from clew.observe.episodes import Course, Episodes
from clew.observe.told import GYMNASIUM, taken
from clew.observe.watches import _rl_lines
from clew.observe.watches._rl_lines import centred_lines, reward_lines
from clew.observe.watches._rl_moves import jump
from clew.observe.watches.returns_course import ReturnsCourse
from clew.observe.watches.step_thrown import StepThrown
from clew.records.place import Place
from clew.records.trace import Series
from clew.symptoms.scores import own_score


class Lever:
    """Pull the right one of two, three times."""

    def reset(self) -> torch.Tensor:
        self.pulled = 0
        return torch.ones(3)

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        self.pulled += 1
        return torch.ones(3), float(action), self.pulled == 3


def pulls(sign: float, rate: float = 3.0, episodes: int = 20, updates: int = 21) -> None:
    torch.manual_seed(0)
    env, actor = Lever(), torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(actor.parameters(), lr=rate)
    for _ in range(updates):
        seen, actions, rewards = [], [], []
        for _ in range(episodes):
            state, done = env.reset(), False
            while not done:
                with torch.no_grad():
                    actions.append(Categorical(logits=actor(state)).sample())  # type: ignore[no-untyped-call]
                seen.append(state)
                state, reward, done = env.step(int(actions[-1]))
                rewards.append(reward)
        gains = torch.tensor(rewards)
        policy = Categorical(logits=actor(torch.stack(seen)))
        log = policy.log_prob(torch.stack(actions))  # type: ignore[no-untyped-call]
        loss = sign * (log * (gains - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize(("sign", "course", "thrown"), [(-1.0, "rises", "kept"), (1.0, "falls", "by_rate")])
def test_returns_are_set_against_the_first_ones(tmp_path: Path, sign: float, course: str, thrown: str) -> None:
    """Updates that replace the weights are judged by what came of them."""
    found = answers(tmp_path, partial(pulls, sign=sign), ReturnsCourse, StepThrown)
    assert found["returns_course"]["outcome"] == course, found
    assert found["returns_course"]["where"]
    assert found["step_thrown"]["outcome"] == thrown, found


class Nothing:
    pass


@given(st.lists(st.tuples(st.floats(-10, 10), st.booleans(), st.booleans()), max_size=400), st.integers(1, 3))
def test_no_return_is_lost_when_neighbours_are_joined(steps: list[tuple[float, bool, bool]], lanes: int) -> None:
    course = Course(Nothing())
    repeated = steps * 8
    expected, running, ends = 0.0, [0.0] * lanes, 0
    for number, (reward, ended, cut) in enumerate(repeated):
        course.add(number, [reward] * lanes, [ended] * lanes, [cut] * lanes)
        running = [held + reward for held in running]
        if ended:
            expected, ends, running = expected + sum(running), ends + lanes, [0.0] * lanes
    assert course.episodes == ends
    assert sum(held.returns for held in course.stretches) == pytest.approx(expected, abs=1e-6)
    assert len(course.stretches) <= 1024
    assert sum(held.episodes for held in course.first) == min(ends, -(-20 // lanes) * lanes)


@pytest.mark.parametrize(
    ("result", "found"),
    [
        ((0, 1.0, True, {}), ([1.0], [True], [False])),
        ((0, 1.0, False, True, {}), ([1.0], [True], [True])),
        ((0, np.float32(2), np.bool_(False), np.bool_(False), {}), ([2.0], [False], [False])),
        (
            (0, np.array([1.0, 2.0]), np.array([False, True]), np.array([True, False]), {}),
            ([1.0, 2.0], [True, True], [True, False]),
        ),
        ((0, torch.tensor([1.0]), torch.tensor([True]), {}), ([1.0], [True], [False])),
        ((0, np.zeros((2, 2)), np.zeros(2), {}), None),
        (None, None),
        ((1, 2), None),
        (("a", "b", "c"), None),
    ],
)
def test_steps_are_taken_apart(result: Any, found: Any) -> None:
    assert taken(result, GYMNASIUM) == found


class NormalizeReward:
    def __init__(self, env: Any) -> None:
        self.env = env


class Recorded(NormalizeReward):
    pass


def test_rewards_that_are_divided_by_something_that_moves_are_known() -> None:
    assert Course(Recorded(NormalizeReward(Lever()))).normalised
    assert not Course(Lever()).normalised


def test_an_episode_that_is_broken_off_is_none() -> None:
    held, env = Episodes(), Lever()
    held.stepped(env, 0, (0, 5.0, False, {}), GYMNASIUM)
    held.began(env)
    held.stepped(env, 0, (0, 1.0, True, {}), GYMNASIUM)
    assert [each.returns for each in held.courses[0].stretches] == [1.0]


def test_a_policy_that_is_decided_by_one_update_has_jumped() -> None:
    assert jump([(0, 1.0), (0, 0.98), (1, 0.02)]) == (0.99, 0.02)
    assert jump([(0, 1.0), (1, 0.8), (2, 0.5), (3, 0.1)]) is None
    assert jump([(0, 1.0), (90, 0.02)]) is None


def line(*values: float) -> Series:
    return Series("success", tuple(range(len(values))), values)


@pytest.mark.parametrize(
    ("series", "returns", "outcome"),
    [
        ({"success": line(0.3, 0.2, 0.1, 0.08, 0.06, 0.06)}, "rises", "not_what_is_paid"),
        ({"success": line(0.1, 0.08, 0.1, 0.08, 0.09, 0.08)}, "rises", "not_what_is_paid"),
        ({"success": line(0.1, 0.08, 0.1, 0.08, 0.09, 0.08)}, "level", "holds"),
        ({"success": line(0.3, 0.4, 0.6, 0.8, 0.9, 0.9)}, "rises", "holds"),
        ({"success": line(0.9, 0.8, 0.6, 0.3, 0.2, 0.1)}, "", "falls"),
        ({"mean_return": line(40.0, 30.0, 20.0, 10.0, 9.0, 9.0)}, "", "falls"),
        ({"mean_return": line(-200.0, -180.0, -150.0, -120.0, -100.0)}, "rises", "holds"),
    ],
)
def test_a_score_is_set_against_the_returns(series: dict[str, Series], returns: str, outcome: str) -> None:
    assert getattr(own_score(series, returns), "outcome", "") == outcome


@pytest.mark.parametrize("series", [{}, {"success": line(0.5, 0.1)}, {"loss": line(3.0, 2.0, 1.0, 1.0, 1.0)}])
def test_without_a_score_nothing_is_said_of_it(series: dict[str, Series]) -> None:
    assert getattr(own_score(series, "rises"), "outcome", "") == ""


def test_the_line_that_makes_up_a_reward_is_named() -> None:
    lines = reward_lines(Lever)
    assert [text_at({"where": [place.to_json()]}) for place in lines] == [
        "return torch.ones(3), float(action), self.pulled == 3"
    ]
    assert reward_lines(dict) == reward_lines(None) == []


def test_a_mean_that_is_taken_off_rewards_is_found(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("total = rewards.sum()\nused = np.array(rewards) - np.mean(rewards)\nx = y - y.mean()\n")
    assert [place.line for place in centred_lines(Place(str(path), 1))] == [2]


SCALER = """
class RewardScaler:
    def update(self, x):
        self.mean += (x - self.mean) / self.count
    def __call__(self, x):
        return RETURNED

def learn(adv):
    adv = (adv - adv.mean()) / adv.std()
"""


@pytest.mark.parametrize(
    ("returned", "lines"),
    [
        ("(r - r.mean()) / self.std", [6]),
        ("(x - self.stats.mean) / self.std", [6]),
        ("x / self.std", []),
    ],
)
def test_a_mean_that_a_scaler_of_rewards_takes_off_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returned: str, lines: list[int]
) -> None:
    monkeypatch.setattr(_rl_lines, "users_files", lambda: [str(tmp_path / "scaler.py")])
    (tmp_path / "scaler.py").write_text(SCALER.replace("RETURNED", returned))
    (tmp_path / "train.py").write_text("loss.backward()\n")
    found = centred_lines(Place(str(tmp_path / "train.py"), 1))
    assert [place.line for place in found] == lines
