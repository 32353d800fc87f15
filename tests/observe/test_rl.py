"""The watches on agents: each fires on its fault, in several kinds of agents, and all are silent on sound ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import loops_rl as loops
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loops_rl import (
    Corridor,
    actor_critic,
    dqn,
    gaussian,
    ppo,
    reinforce,
    reward_model,
    side_by_side,
    supervised,
    with_baseline,
)
from loops_training import Loop, answers, text_at
from weighed import first_finding

from clew.knowledge import load
from clew.observe.envs import Transition
from clew.observe.hooks import watching
from clew.observe.paid import Paid
from clew.observe.registry import all_watches
from clew.observe.told import told_by
from clew.observe.watch import Watch
from clew.observe.watches import _rl_lines, exploration_rate, target_network_lag
from clew.observe.watches._rl_lines import computing
from clew.observe.watches._rl_pairs import Tally
from clew.observe.watches._rl_policy import Favoured
from clew.observe.watches._rl_study import Aimed, Row
from clew.observe.watches._rl_targets import fit, parts
from clew.observe.watches.advantage_detached import AdvantageDetached
from clew.observe.watches.advantage_statistics import AdvantageStatistics
from clew.observe.watches.clip_activity import ClipActivity
from clew.observe.watches.critic_in_loss import CriticInLoss
from clew.observe.watches.discount_in_targets import DiscountInTargets
from clew.observe.watches.entropy_pull import EntropyPull
from clew.observe.watches.entropy_trend import EntropyTrend
from clew.observe.watches.explained_variance import ExplainedVariance
from clew.observe.watches.exploration_rate import ExplorationRate
from clew.observe.watches.kl_per_update import KlPerUpdate
from clew.observe.watches.observation_scale import ObservationScale
from clew.observe.watches.policy_direction import PolicyDirection
from clew.observe.watches.returns_course import ReturnsCourse
from clew.observe.watches.reward_in_targets import RewardInTargets
from clew.observe.watches.reward_of_own_step import RewardOfOwnStep
from clew.observe.watches.reward_shift import RewardShift
from clew.observe.watches.target_network_lag import TargetNetworkLag
from clew.observe.watches.terminal_handling import TerminalHandling
from clew.observe.watches.transition_pairs import TransitionPairs
from clew.observe.watches.value_target_range import ValueTargetRange
from clew.records.place import Place

WATCHES: list[type[Watch]] = [
    AdvantageDetached,
    AdvantageStatistics,
    CriticInLoss,
    DiscountInTargets,
    EntropyPull,
    EntropyTrend,
    ExplainedVariance,
    ExplorationRate,
    KlPerUpdate,
    ObservationScale,
    PolicyDirection,
    ReturnsCourse,
    RewardInTargets,
    RewardOfOwnStep,
    RewardShift,
    TargetNetworkLag,
    TerminalHandling,
    TransitionPairs,
    ValueTargetRange,
]

SOUND: dict[str, Loop] = {
    "actor-critic": actor_critic,
    "actor-critic, loss written out": partial(actor_critic, written_out=True),
    "actor-critic, negated and maximised": partial(actor_critic, maximize=True),
    "actor-critic, time limit told as an end": partial(actor_critic, mask=False, fixed=12),
    "Q-learning": dqn,
    "Q-learning, frequent limits": partial(dqn, limit=6),
    "Q-learning, limits as ends, rarely reached": partial(dqn, limit_ends=True, limit=200),
    "lambda returns": ppo,
    "lambda returns, scaled reward": partial(ppo, scale=0.1),
    "lambda returns, one environment after the other": partial(
        ppo, by_lane=("obs", "actions", "logs", "targets", "advantages")
    ),
    "lambda returns, scaled observations": partial(ppo, scaled=True),
    "Q-learning, actions chosen by the trained network": partial(dqn, double=True),
    "Q-learning, always the best, with noise": partial(dqn, play="greedy", noise=True, updates=110),
    "Q-learning, without a discount": partial(dqn, gamma=1.0),
    "Q-learning, ever less random": partial(dqn, play="decays", every=10, updates=110),
    "actor-critic, strong bonus for a moment": partial(actor_critic, bonus=3.0, updates=8),
    "policy gradient": reinforce,
    "policy gradient, several environments": side_by_side,
    "policy gradient, several environments that pay at the end": partial(side_by_side, paid="at the end"),
    "policy gradient, only the next reward meant": partial(side_by_side, sums="none"),
    "Q-learning, observations written over and copied": partial(dqn, overwrites=True, copied=True),
    "policy gradient with a baseline": with_baseline,
    "policy gradient with a baseline of another scale": partial(with_baseline, unit=0.03),
    "a model of the reward": reward_model,
    "no agent": supervised,
}

FAULTY: list[tuple[Loop, type[Watch], str]] = [
    (partial(actor_critic, mask=False), TerminalHandling, "bootstraps_over_terminal"),
    (partial(actor_critic, mask=False, written_out=True), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, mask=False), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, mask=False, begun=True), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, mask=False, begun=True, double=True), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, begun=True, double=True), TerminalHandling, "right"),
    (partial(ppo, mask=False), TerminalHandling, "bootstraps_over_terminal"),
    (partial(ppo, mask=False, scale=0.1), TerminalHandling, "bootstraps_over_terminal"),
    (partial(ppo, mask="value"), TerminalHandling, "bootstraps_over_terminal"),
    (partial(ppo, mask="advantages"), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, limit_ends=True, limit=6), TerminalHandling, "truncation_as_terminal"),
    (partial(actor_critic, sign=1.0), PolicyDirection, "against"),
    (partial(ppo, sign=-1.0), PolicyDirection, "against"),
    (partial(reinforce, sign=1.0), PolicyDirection, "against"),
    (partial(actor_critic, detach=False), AdvantageDetached, "carries_gradient"),
    (partial(actor_critic, detach=False), AdvantageStatistics, "carries_gradient"),
    (partial(dqn, reward_of="previous"), RewardOfOwnStep, "neighbour"),
    (partial(dqn, reward_of="previous", double=True), RewardOfOwnStep, "neighbour"),
    (partial(actor_critic, paid_late=1, updates=80), RewardOfOwnStep, "neighbour"),
    (partial(ppo, front=True), DiscountInTargets, "backwards"),
    (partial(dqn, target="same"), TargetNetworkLag, "same_network"),
    (partial(dqn, target="every"), TargetNetworkLag, "same_network"),
    (partial(ppo, past_the_end=True), TerminalHandling, "bootstraps_over_terminal"),
    (partial(dqn, target="itself"), TargetNetworkLag, "never_updated"),
    (partial(dqn, factor=-1.0), RewardInTargets, "negated"),
    (partial(ppo, scale=-0.1), RewardInTargets, "negated"),
    (partial(dqn, factor=1000.0), RewardInTargets, "enlarged"),
    (partial(dqn, gamma=0.0), DiscountInTargets, "nothing_later"),
    (partial(actor_critic, gamma=0.0), DiscountInTargets, "nothing_later"),
    (partial(dqn, gamma=1.05), DiscountInTargets, "above_one"),
    (partial(with_baseline, backwards=True), DiscountInTargets, "backwards"),
    (partial(side_by_side, sums="past"), DiscountInTargets, "backwards"),
    (partial(reinforce, steady=True, past=True, updates=24), DiscountInTargets, "backwards"),
    (partial(reinforce, steady=True, sign=1.0, updates=24), PolicyDirection, "against"),
    (partial(side_by_side, sums="past", paid="at the end"), DiscountInTargets, "nothing_later"),
    (partial(dqn, slipped=True), TransitionPairs, "neighbour"),
    (partial(dqn, overwrites=True), TransitionPairs, "neighbour"),
    (partial(actor_critic, followed=True), TransitionPairs, "neighbour"),
    (partial(dqn, late=1), TransitionPairs, "neighbour"),
    (partial(ppo, late=1), TransitionPairs, "neighbour"),
    (partial(ppo, by_lane=("targets", "advantages")), TransitionPairs, "neighbour"),
    (partial(ppo, by_lane=("obs", "actions", "logs"), scale=0.1), TransitionPairs, "neighbour"),
    (partial(ppo, by_lane=("actions", "logs")), TransitionPairs, "neighbour"),
    (partial(ppo, turned=True), TransitionPairs, "neighbour"),
    (partial(actor_critic, late=1), TransitionPairs, "neighbour"),
    (partial(actor_critic, bonus=10.0), EntropyPull, "overrides"),
    (partial(actor_critic, bonus=-2.0), EntropyPull, "punishes"),
    (partial(actor_critic, subtract=False), AdvantageStatistics, "no_baseline"),
    (partial(dqn, play="greedy", updates=110), ExplorationRate, "none"),
    (partial(actor_critic, cut=True), CriticInLoss, "left_out"),
    (partial(actor_critic, cut=True, written_out=True), CriticInLoss, "left_out"),
    (partial(actor_critic, weight=0.0), CriticInLoss, "left_out"),
    (partial(actor_critic, weight=0.0, written_out=True), CriticInLoss, "left_out"),
    (partial(actor_critic, greedy=True), ExplorationRate, "none"),
    (partial(actor_critic, rate=2.0), KlPerUpdate, "spike"),
    (partial(with_baseline, shift=-0.5), RewardShift, "shifted"),
    (partial(with_baseline, unit=0.0), RewardShift, "shifted"),
    (partial(ppo, scale=0.0), RewardShift, "shifted"),
    (partial(ppo, scale=1000.0), ValueTargetRange, "far_outside"),
    (partial(dqn, unit=1000.0), ObservationScale, "raw"),
    (partial(ppo, rate=0.1), KlPerUpdate, "spike"),
    (partial(actor_critic, rate=1e-7, updates=210), EntropyTrend, "flat"),
    (partial(actor_critic, rate=0.1, updates=210), EntropyTrend, "collapsed"),
    (partial(gaussian, 0.005), EntropyTrend, "collapsed"),
    (partial(ppo, rate=1e-7, updates=20), ExplainedVariance, "low"),
]


SAID: dict[str, dict[str, str]] = {
    "policy gradient, several environments": {"discount_in_targets": "usual", "policy_direction": "along"},
    "policy gradient, several environments that pay at the end": {"discount_in_targets": "usual"},
    "policy gradient, only the next reward meant": {"discount_in_targets": "unclear"},
    "Q-learning, observations written over and copied": {"transition_pairs": "own"},
    "actor-critic": {
        "advantage_detached": "detached",
        "entropy_pull": "usual",
        "exploration_rate": "unclear",
        "observation_scale": "normalised",
        "policy_direction": "along",
        "terminal_handling": "right",
        "transition_pairs": "own",
    },
    "Q-learning": {
        "critic_in_loss": "unclear",
        "discount_in_targets": "usual",
        "entropy_pull": "unclear",
        "reward_in_targets": "as_given",
        "reward_of_own_step": "own",
        "target_network_lag": "lags",
        "terminal_handling": "right",
        "transition_pairs": "own",
        "value_target_range": "inside",
    },
    "Q-learning, ever less random": {"exploration_rate": "decays"},
    "Q-learning, always the best, with noise": {"exploration_rate": "unclear"},
    "lambda returns": {
        "discount_in_targets": "usual",
        "policy_direction": "along",
        "terminal_handling": "right",
        "transition_pairs": "own",
    },
    "lambda returns, one environment after the other": {"terminal_handling": "right", "transition_pairs": "own"},
    "lambda returns, scaled observations": {"terminal_handling": "right", "discount_in_targets": "usual"},
    "Q-learning, actions chosen by the trained network": {"terminal_handling": "right", "reward_of_own_step": "own"},
    "lambda returns, scaled reward": {"reward_in_targets": "as_given", "reward_shift": "scaled_or_raw"},
    "policy gradient": {
        "discount_in_targets": "usual",
        "policy_direction": "along",
        "reward_in_targets": "unclear",
        "transition_pairs": "unclear",
    },
    "policy gradient with a baseline": {"critic_in_loss": "reached", "discount_in_targets": "usual"},
}
"""What is said of them where something must be: that it is in order, or that nothing can be said."""


@pytest.mark.parametrize(("limit", "outcome"), [(0.5, "unclear"), (1e-3, "always")])
def test_a_limit_that_binds_is_usual_for_an_agent_and_a_tiny_one_is_not(
    tmp_path: Path, limit: float, outcome: str
) -> None:
    loop = partial(loops.ppo, scale=1000.0, updates=8, limit=limit)
    assert answers(tmp_path, loop, ClipActivity)["clip_activity"]["outcome"] == outcome


@pytest.mark.parametrize(("loop", "watch", "outcome"), FAULTY)
def test_faults_are_seen(tmp_path: Path, loop: Loop, watch: type[Watch], outcome: str) -> None:
    answer = answers(tmp_path, loop, watch)[watch.test]
    assert answer["outcome"] == outcome, answer
    assert answer["where"] or watch in (KlPerUpdate, EntropyTrend)


@pytest.mark.parametrize("name", SOUND)
def test_sound_agents_raise_no_alarm(tmp_path: Path, name: str) -> None:
    kinds = {test: {each.name: each.kind for each in held.outcomes} for test, held in load().tests.items()}
    found = answers(tmp_path, SOUND[name], *WATCHES)
    for test, answer in found.items():
        assert kinds[test].get(answer["outcome"], "unclear") != "seen", (test, answer)
    said = {test: found[test]["outcome"] for test in SAID.get(name, {})}
    assert said == SAID.get(name, {}), found


def test_a_deviation_that_stays_may_be_meant_so(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(gaussian, 0.4), EntropyTrend)["entropy_trend"]
    assert answer["outcome"] == "declining", answer


def test_without_an_environment_nothing_is_said(tmp_path: Path) -> None:
    found = answers(tmp_path, supervised, *WATCHES)
    assert {answer["outcome"] for answer in found.values()} == {"unclear"}
    assert "no environment" in found["terminal_handling"]["unclear"]


def test_a_flag_that_always_comes_after_as_many_steps_may_be_a_time_limit(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(actor_critic, mask=False, fixed=12), TerminalHandling)["terminal_handling"]
    assert answer["outcome"] == "unclear"


def test_a_constant_changes_nothing_where_all_episodes_are_of_one_length(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(with_baseline, shift=-0.5, limit=5, updates=20), RewardShift)["reward_shift"]
    assert "one length" in answer["unclear"]


class Wrapping:
    def step(self, action: int) -> int:
        return action


@pytest.mark.parametrize(
    ("make", "centred"),
    [
        (lambda reward, mean, _: (reward - mean) / 2, True),
        (lambda reward, _, step: reward / (1 + 0.001 * step), False),  # scaled by something that moves
        (lambda reward, *_: reward - 0.1, False),  # a charge for every step
        (lambda reward, _, step: reward + np.sin(step), False),  # a potential
        (lambda reward, *_: np.clip(reward, -1.0, 1.0), False),
        (lambda reward, *_: np.sign(reward), False),
    ],
    ids=["mean off", "scaled", "charged", "shaped", "clipped", "signs"],
)
def test_rewards_whose_mean_a_wrapper_takes_off(make: Callable[[float, float, int], float], centred: bool) -> None:
    paid, source, total = Paid(), np.random.default_rng(0), 0.0
    for step in range(600):
        reward = -1.0 - 2.0 * (source.random() < 0.2)
        total += reward
        paid.note(Wrapping(), np.array([reward]), np.array([make(reward, total / (step + 1), step)]))
    assert (paid.centred is not None) == centred


@pytest.mark.parametrize(
    ("make", "turned"),
    [
        (lambda step, lanes: -0.9 - 0.001 * step + 0 * lanes, True),
        (lambda step, lanes: 1 / (1 + 0.01 * step) + 0 * lanes, False),  # scaled by something that moves
        (lambda _, lanes: -1.0 + 0 * lanes, False),  # a cost
        (lambda step, lanes: -np.abs(np.sin(step + lanes)), False),  # another reward altogether
    ],
)
def test_a_reward_that_a_wrapper_turns_round(make: Callable[[int, Any], Any], turned: bool) -> None:
    paid = Paid()
    for step in range(400):
        paid.note(object(), np.ones(4), make(step, np.arange(4.0)))
    assert paid.turned == turned
    paid.note(object(), np.zeros(4), np.zeros(4))
    assert not paid.turned


class Scaled(gymnasium.RewardWrapper):
    def __init__(self, env: Any, by: float) -> None:
        super().__init__(env)
        self.by = by

    def reward(self, reward: Any) -> float:
        return self.by * float(reward)


class Own(gymnasium.Env):
    """What one's own environment pays may be a cost."""


@pytest.mark.parametrize(
    ("make", "turned"),
    [
        (
            lambda: gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: -float(reward)),
            True,
        ),
        (lambda: Scaled(gymnasium.make("CartPole-v1"), -0.1), True),
        (lambda: Scaled(gymnasium.make("CartPole-v1"), 0.1), False),
        (lambda: gymnasium.make("CartPole-v1"), False),
        (lambda: Scaled(Own(), -1.0), False),
    ],
    ids=["a function", "a wrapper", "scaled", "as it is", "an environment of one's own"],
)
def test_a_reward_of_a_library_that_a_line_of_the_script_turns_round(make: Callable[[], Any], turned: bool) -> None:
    env, paid = make(), Paid()
    by = env.func(1.0) if hasattr(env, "func") else getattr(env, "by", 1.0)
    for step in range(300):
        inner = np.array([float(step % 3)])
        paid.note(env, inner, by * inner)
    assert paid.negated == turned
    paid.note(env, np.array([1.0]), np.array([1.0]))
    assert not paid.negated


def test_a_target_that_is_never_refreshed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = partial(dqn, target="frozen", updates=160)
    assert answers(tmp_path / "a", loop, TargetNetworkLag)["target_network_lag"]["outcome"] == "unclear"
    monkeypatch.setattr(target_network_lag, "LONG", 100)
    answer = answers(tmp_path / "b", loop, TargetNetworkLag)["target_network_lag"]
    assert answer["outcome"] == "never_updated"
    assert "target_network(b_next)" in text_at(answer)


def test_a_target_that_hardly_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_network_lag, "LONG", 100)
    for target, outcome in (("slow", "never_updated"), ("copy", "lags")):
        loop = partial(dqn, target=target, updates=160)
        answer = answers(tmp_path / target, loop, TargetNetworkLag)["target_network_lag"]
        assert answer["outcome"] == outcome, answer


def test_weights_that_are_targets_less_a_constant(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with watching(tmp_path, [AdvantageStatistics]) as recorder:
        (watch,) = recorder.watches
        assert isinstance(watch, AdvantageStatistics)
        for subtract, place in ((False, Place("agent.py", 1)), (True, None)):
            watch.study.policy.favoured.clear()
            watch.study.aimed.clear()
            for step in range(6):
                targets, ratios = random.normal(size=64), random.uniform(0.9, 1.1, 64)
                values = targets + 0.3 * random.normal(size=64)
                weights = ratios * (targets - values if subtract else targets - targets.mean()) / 64
                weights[:6] = 0.0  # clipped
                keys = list(range(64))
                watch.study.policy.favoured.append(Favoured(step, keys, weights, Place("agent.py", 1), ratios))
                watch.study.aimed.append(Aimed(step, values, targets, keys, 1, None, None))
            assert watch._targets_less_a_constant() == place


def test_a_target_may_hold_the_lower_of_two_values() -> None:
    random = np.random.default_rng(0)
    step = Transition(0, 0, None, None, None, 0.0, None, False, False, True, False)
    rows = []
    for reward, one, other in random.normal(size=(40, 3)):
        held = {(False, 1, 0): np.array([one]), (False, 1, 1): np.array([other])}
        rows.append(Row(reward + 0.9 * min(one, other), step._replace(reward=reward), held, {}))
    (found,) = (fitted for part in parts(rows) if (fitted := fit(part, rows, {})) is not None)
    assert found.part.pick == "min"
    assert found.slopes == pytest.approx([0.9])


def test_lines_that_compute_something_are_found_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_rl_lines, "users_files", list)
    Path("agent.py").write_text(AGENT)
    for what, text in COMPUTED.items():
        found = computing(what, Place("agent.py", 1))
        assert [AGENT.splitlines()[(place.line or 0) - 1].strip() for place in found][:1] == [text], what


COLLECTOR = """
def act(rewards, obs, i):
    rewards[i] = reward(i)
    obs[i] = view(i)

def collect(store, t):
    store["obs"][t] = torch.from_numpy(self.obs)
    store["act"][t], store["logp"][t] = action, logp
    store["rew"][t] = torch.from_numpy(reward)
"""


def test_what_is_stored_side_by_side_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_rl_lines, "users_files", list)
    Path("collector.py").write_text(COLLECTOR)
    assert [place.line for place in computing("stored", Place("collector.py", 1))][:2] == [7, 8]


AGENT = """
def learn(batch, options):
    gamma, tau = options["gamma"], options["tau"]
    delta = batch.rewards + gamma * batch.next_values - batch.values
    advantages = delta - batch.returns.mean()
    pg_loss = -(advantages * batch.log_probs).mean()
    loss = pg_loss - options["ent_coef"] * batch.entropy
    target.lerp_(online, tau)
    batch.rewards[0] = reward
"""
COMPUTED = {
    "targets": "delta = batch.rewards + gamma * batch.next_values - batch.values",
    "advantages": "advantages = delta - batch.returns.mean()",
    "policy loss": "pg_loss = -(advantages * batch.log_probs).mean()",
    "entropy": 'loss = pg_loss - options["ent_coef"] * batch.entropy',
    "target network": "target.lerp_(online, tau)",
    "stored": "batch.rewards[0] = reward",
}


def test_play_that_stays_random_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exploration_rate, "LONG", 100)
    for name, final in (("a", False), ("b", True)):
        (tmp_path / name).mkdir()
        with watching(tmp_path / name, [ExplorationRate]) as recorder:
            dqn(every=10, updates=110)
            recorder.checkpoint(final=final)
            (answer,) = recorder.answers()
        assert answer.get("outcome", "unclear") == ("never_ends" if final else "unclear"), answer


def test_a_choice_among_two_that_is_numbered_the_other_way_is_no_slip() -> None:
    tally = Tally()
    for own, other in [(0, 1), (1, 0), (0, 0), (1, 1)] * 40:
        tally.add(1 - own, own, other)
    assert tally.says() == ""


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=200))
def test_actions_say_own_or_other_only_when_nearly_all_do(rows: list[tuple[int, int, int]]) -> None:
    tally = Tally()
    for used, own, other in rows:
        tally.add(used, own, other)
    apart = [(used, own, other) for used, own, other in rows if own != other]
    if tally.says() == "other":
        assert sum(used == other for used, _, other in apart) >= 0.85 * len(apart) >= 0.85 * 30
    if tally.says() == "own":
        assert sum(used == own for used, own, _ in apart) >= 0.85 * len(apart) >= 0.85 * 30


@pytest.mark.parametrize("loop", [actor_critic, dqn, ppo])
def test_nothing_changes(tmp_path: Path, loop: Loop) -> None:
    """Parameters, optimiser and all random states, to the bit."""
    bare = loop()
    with watching(tmp_path, all_watches()[0]):
        seen = loop()
    assert seen == bare


def test_environments_are_left_as_they_were(tmp_path: Path) -> None:
    step, log_prob = Corridor.step, torch.distributions.Categorical.log_prob
    with watching(tmp_path, WATCHES):
        actor_critic(updates=2)
        assert Corridor.step is not step
    assert Corridor.step is step
    assert torch.distributions.Categorical.log_prob is log_prob


class Counter:
    """Has a step that takes something, and is no environment."""

    def __init__(self) -> None:
        self.count = 0

    def step(self, amount: int) -> int:
        self.count += amount
        return self.count


def test_what_only_looks_like_an_environment(tmp_path: Path) -> None:
    def loop() -> None:
        counter = Counter()
        supervised()
        assert [counter.step(1) for _ in range(5)] == [1, 2, 3, 4, 5]
        supervised()
        assert counter.step(1) == 6

    assert answers(tmp_path, loop, TerminalHandling)["terminal_handling"]["outcome"] == "unclear"


@pytest.mark.parametrize(
    "result",
    [None, 3, (1, 2), ([1.0], True, False), ([1.0], 1.0, "no"), (None, 1.0, True), ([1.0], float("nan"), True)],
)
def test_no_step_of_an_environment(result: Any) -> None:
    assert told_by(result) is None


def test_an_exception_of_an_environment_passes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(env: Corridor, action: int) -> Any:
        raise ValueError(f"no such action: {action} at {env.position}")

    monkeypatch.setattr(loops.Corridor, "step", broken)
    with watching(tmp_path, WATCHES), pytest.raises(ValueError, match="no such action"):
        actor_critic(updates=1)


CAUSES: list[tuple[Loop, str]] = [
    (partial(actor_critic, mask=False), "rl.terminal_bootstrap"),
    (partial(dqn, mask=False), "rl.terminal_bootstrap"),
    (partial(ppo, mask=False), "rl.terminal_bootstrap"),
    (partial(dqn, limit_ends=True, limit=6), "rl.truncation_as_terminal"),
    (partial(ppo, sign=-1.0), "rl.policy_gradient_sign"),
    (partial(actor_critic, detach=False), "rl.advantage_wrong"),
    (partial(dqn, target="same"), "rl.target_network"),
    (partial(dqn, reward_of="previous"), "rl.misaligned_transition"),
    (partial(dqn, slipped=True), "rl.misaligned_transition"),
    (partial(ppo, by_lane=("targets", "advantages")), "rl.misaligned_transition"),
    (partial(ppo, following_kept=True, updates=6), "rl.misaligned_transition"),
    (partial(dqn, factor=-1.0), "rl.reward_sign"),
    (actor_critic, ""),
    (dqn, ""),
    (ppo, ""),
]


@pytest.mark.parametrize(("loop", "cause"), CAUSES)
def test_the_first_finding_is_the_cause(tmp_path: Path, loop: Loop, cause: str) -> None:
    assert first_finding(tmp_path, loop) == ("rl", [cause] if cause else [])
