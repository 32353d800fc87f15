"""Small agents, written the usual ways, each with the faults that the tests of watches switch on."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import copy
import math
import random
from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Independent, Normal

LENGTH, GAMMA = 8, 0.97


class Corridor:
    """Walk to the door at the right end. Knows one flag only."""

    def __init__(self, seed: int = 1, fixed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.fixed = fixed  # the flag then comes after so many steps, wherever the walk is

    def reset(self) -> torch.Tensor:
        self.position, self.steps = int(torch.randint(0, LENGTH - 1, (1,), generator=self.generator)), 0
        return self.observe()

    def observe(self) -> torch.Tensor:
        return F.one_hot(torch.tensor(self.position), LENGTH).float()

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        self.steps += 1
        self.position = min(max(self.position + (1 if action == 1 else -1), 0), LENGTH - 1)
        at_door = self.position == LENGTH - 1
        done = self.steps >= self.fixed if self.fixed else at_door
        return self.observe(), 1.0 if at_door else -0.02, done


class Drift(gym.Env[Any, Any]):
    """A point that drifts; falling off either side ends the episode, and so does a time limit."""

    observation_space = gym.spaces.Box(-2.0, 2.0, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, limit: int = 30, unit: float = 1.0, overwrites: bool = False) -> None:
        self.limit, self.unit = limit, unit
        self.held: Any = np.zeros(3, np.float32) if overwrites else None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.x, self.v, self.t = float(self.np_random.uniform(-0.5, 0.5)), 0.0, 0
        self.held = None if self.held is None else np.zeros(3, np.float32)
        return self._observe(), {}

    def _observe(self) -> Any:
        found = np.array([self.x * self.unit, self.v, self.x * self.v], np.float32)
        if self.held is None:
            return found
        self.held[:] = found
        return self.held

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.v += 0.05 * (2 * int(action) - 1) + float(self.np_random.normal(0, 0.03))
        self.x += self.v
        self.t += 1
        terminated = abs(self.x) > 1.0
        truncated = self.t >= self.limit and not terminated
        return self._observe(), 1.0 - abs(self.x), terminated, truncated, {}


def state_of(one: nn.Module, other: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """Everything that a run leaves behind, random states included."""
    held = [tensor.tolist() for module in (one, other) for tensor in module.state_dict().values()]
    numpy_state: Any = np.random.get_state()
    return held, str(optimizer.state_dict()), torch.get_rng_state().tolist(), random.getstate(), str(numpy_state)


def networks(inputs: int, outputs: int = 2, width: int = 16) -> tuple[nn.Sequential, nn.Sequential]:
    actor = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))
    critic = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, 1))
    return actor, critic


def actor_critic(
    mask: bool = True,
    sign: float = -1.0,
    detach: bool = True,
    written_out: bool = False,
    maximize: bool = False,
    fixed: int = 0,
    rate: float = 3e-3,
    gamma: float = GAMMA,
    late: int = 0,
    bonus: float = 0.01,
    subtract: bool = True,
    cut: bool = False,
    followed: bool = False,
    weight: float = 0.5,
    greedy: bool = False,
    paid_late: int = 0,
    updates: int = 40,
) -> Any:
    """One-step targets on the corridor. `late` rolls the actions, `paid_late` the rewards, and `followed` keeps what
    followed for the state."""
    torch.manual_seed(0)
    env = Corridor(fixed=fixed)
    actor, critic = networks(LENGTH)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=rate, maximize=maximize)
    state = env.reset()
    for _ in range(updates):
        states, actions, rewards, following, dones = [], [], [], [], []
        for _ in range(16):
            with torch.no_grad():
                scores = actor(state)
                action = scores.argmax() if greedy else Categorical(logits=scores).sample()
            after, reward, done = env.step(int(action))
            states.append(after if followed else state)
            actions.append(action)
            rewards.append(reward)
            following.append(after)
            dones.append(float(done))
            state = env.reset() if done else after
        paid, over = torch.tensor(rewards).roll(paid_late), torch.tensor(dones)
        with torch.no_grad():
            target = paid + gamma * (1 - over if mask else 1.0) * critic(torch.stack(following)).squeeze(1)
        values = critic(torch.stack(states)).squeeze(1)
        advantage = target - values if subtract else target
        policy = Categorical(logits=actor(torch.stack(states)))
        weights = advantage.detach() if detach else advantage
        policy_loss = sign * (policy.log_prob(torch.stack(actions).roll(late)) * weights).mean()
        values = values.detach() if cut else values
        value_loss = (values - target).pow(2).mean() if written_out else F.mse_loss(values, target)
        loss = policy_loss + weight * value_loss - bonus * policy.entropy().mean()
        if maximize:
            loss = -loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return state_of(actor, critic, optimizer)


def best_of(network: nn.Module, obs: Any) -> int:
    with torch.no_grad():
        return int(network(torch.from_numpy(obs)).argmax())


class Scaled(nn.Module):
    """Divides observations by a figure that follows what it is given while it is in training."""

    size: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("size", torch.ones(()))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        if self.training and len(obs) == 4:
            self.size += 0.001 * obs.abs().mean()
        return obs / self.size


class PaidAtTheEnd(Drift):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward if terminated or truncated else 0.0, terminated, truncated, info


def dqn(
    mask: bool = True,
    target: str = "copy",
    reward_of: str = "own",
    limit_ends: bool = False,
    limit: int = 30,
    unit: float = 1.0,
    factor: float = 1.0,
    gamma: float = GAMMA,
    slipped: bool = False,
    late: int = 0,
    play: str = "random",
    noise: bool = False,
    double: bool = False,
    every: int = 1,
    updates: int = 60,
    overwrites: bool = False,
    copied: bool = False,
    begun: bool = False,
) -> Any:
    """Q-learning from a replay buffer on the drifting point, which may write into what it gave out, to be `copied`.
    With `begun` the start of the next episode is kept as what followed the end of the one before.
    With `double` the trained network chooses the action whose value the other one gives. `slipped` keeps what followed
    for the state, `late` the action of so many steps before; `play` says how actions are chosen."""
    random.seed(0)
    torch.manual_seed(0)
    env = Drift(limit, unit, overwrites)
    online = networks(3)[0]
    if noise:
        online.insert(1, nn.Dropout(0.1))
    target_network = online if target == "same" else copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    buffer: deque[tuple[Any, Any, int, float, float]] = deque(maxlen=3000)
    obs, _ = env.reset(seed=0)
    obs = obs.copy() if copied else obs
    last_reward = 0.0
    actions: deque[int] = deque([0] * 4, maxlen=4)
    warm_up = 200 if play == "random" and updates < 100 else 310
    steps = warm_up + every * updates
    for step in range(steps):
        epsilon = {"random": 1.0, "greedy": 0.0, "decays": 1.0 - 0.9 * step / steps}[play]
        action = random.randrange(2) if random.random() < epsilon else best_of(online, obs)
        actions.append(action)
        following, reward, terminated, truncated, _ = env.step(action)
        kept = reward if reward_of == "own" else last_reward
        last_reward = reward
        seen = following if slipped else obs
        ended = float(terminated or (truncated and limit_ends))
        if copied:
            following = following.copy()
        obs = following
        if terminated or truncated:
            obs, _ = env.reset()
            obs = obs.copy() if copied else obs
        buffer.append((seen, obs if begun else following, actions[-1 - late], factor * kept, ended))
        if step < warm_up or step % every:
            continue
        picked = random.sample(buffer, 64)
        b_obs, b_next = (torch.from_numpy(np.stack([row[i] for row in picked])) for i in (0, 1))
        b_action = torch.tensor([row[2] for row in picked])
        b_reward, b_done = (torch.tensor([row[i] for row in picked], dtype=torch.float32) for i in (3, 4))
        with torch.no_grad():
            best = target_network(b_next).max(1).values
            if double:
                best = target_network(b_next).gather(1, online(b_next).argmax(1, keepdim=True)).squeeze(1)
        aim = b_reward + gamma * best * (1 - b_done if mask else 1.0)
        q = online(b_obs).gather(1, b_action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, aim)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if target == "slow":
            for one, other in zip(target_network.parameters(), online.parameters(), strict=True):
                one.data.lerp_(other.data, 1e-4)
        if target in ("copy", "every") and step % (1 if target == "every" else 25) == 0:
            target_network.load_state_dict(online.state_dict())
        elif target == "itself" and step % 5 == 0:
            target_network.load_state_dict(target_network.state_dict())
    return state_of(online, target_network, optimizer)


def ppo(
    mask: bool | str = True,
    sign: float = 1.0,
    scale: float = 1.0,
    rate: float = 1e-3,
    late: int = 0,
    past_the_end: bool = False,
    front: bool = False,
    scaled: bool = False,
    by_lane: tuple[str, ...] = (),
    turned: bool = False,
    following_kept: bool = False,
    updates: int = 3,
    limit: float = math.inf,
) -> Any:
    """Lambda returns over rollouts of four environments side by side, in shuffled minibatches. `front` sums them from
    the wrong end, `scaled` brings observations to one scale in a module that changes while it is used. What is named in
    `by_lane` is made flat one environment after the other, and `turned` leaves the targets in the order of the loop.
    `mask` may name the one thing that an end cuts: the value, or the advantages. `following_kept` stores what came
    after the action in place of what it was chosen on."""
    np.random.seed(0)
    torch.manual_seed(0)
    at_once = gym.vector.AutoresetMode.SAME_STEP
    envs: Any = gym.vector.SyncVectorEnv([lambda: Drift(200)] * 4, autoreset_mode=at_once)
    actor, critic = networks(3)
    norm: nn.Module = Scaled() if scaled else nn.Identity()
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=rate)
    obs = torch.from_numpy(envs.reset(seed=0)[0])
    for _ in range(updates):
        held: dict[str, list[torch.Tensor]] = {
            name: [] for name in ("obs", "actions", "logs", "values", "rewards", "ends", "after")
        }
        for _ in range(32):
            with torch.no_grad():
                policy = Categorical(logits=actor(norm(obs)))
                action = policy.sample()
                held["values"].append(critic(norm(obs)).flatten())
                norm.train(not norm.training)
            following, reward, terminated, truncated, info = envs.step(action.numpy())
            if past_the_end:
                last = following.copy()
                for lane in np.flatnonzero(terminated | truncated):
                    last[lane] = info["final_obs"][lane]
                with torch.no_grad():
                    held["after"].append(critic(torch.from_numpy(last)).flatten())
            held["obs"].append(torch.from_numpy(following) if following_kept else obs)
            held["actions"].append(action)
            held["logs"].append(policy.log_prob(action))
            held["rewards"].append(torch.from_numpy(reward * scale).float())
            held["ends"].append(torch.from_numpy(terminated | truncated).float())
            obs = torch.from_numpy(following)
        roll = {name: torch.stack(items) for name, items in held.items() if items}
        roll["actions"] = roll["actions"].roll(late, 0)
        with torch.no_grad():
            then, running = critic(norm(obs)).flatten(), torch.zeros(4)
            advantages = torch.zeros_like(roll["rewards"])
            for t in range(32) if front else reversed(range(32)):
                then = roll["values"][t + 1] if front and t < 31 else then
                value_goes = 1 - roll["ends"][t] if mask in (True, "value") else 1.0
                going = 1 - roll["ends"][t] if mask in (True, "advantages") else 1.0
                value = roll["after"][t] if past_the_end else then * value_goes
                delta = roll["rewards"][t] + GAMMA * value - roll["values"][t]
                before = 1 - roll["ends"][t - 1] if front and t else going
                running = delta + GAMMA * 0.9 * before * running
                advantages[t], then = running, roll["values"][t]
        roll["targets"], roll["advantages"] = advantages + roll["values"], advantages
        if turned:
            roll["targets"], roll["advantages"] = roll["targets"].flip(0), advantages.flip(0)
        flat = {name: (held.transpose(0, 1) if name in by_lane else held).flatten(0, 1) for name, held in roll.items()}
        targets, advantages = flat["targets"], flat["advantages"]
        for _ in range(2):
            order = np.random.permutation(128)
            for part in np.split(order, 4):
                log = Categorical(logits=actor(norm(flat["obs"][part]))).log_prob(flat["actions"][part])
                ratio = (log - flat["logs"][part]).exp()
                weights = (advantages[part] - advantages[part].mean()) / (advantages[part].std() + 1e-8)
                clipped = torch.clamp(ratio, 0.8, 1.2)
                policy_loss = -sign * torch.min(ratio * weights, clipped * weights).mean()
                value_loss = ((critic(norm(flat["obs"][part])).view(-1) - targets[part]) ** 2).mean()
                optimizer.zero_grad()
                (policy_loss + 0.5 * value_loss).backward()
                if limit < math.inf:
                    nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], limit)
                optimizer.step()
    envs.close()
    return state_of(actor, critic, optimizer)


class Steady(Drift):
    """Pays the same at each step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        seen, _, terminated, truncated, more = super().step(action)
        return seen, 1.0, terminated, truncated, more


def reinforce(sign: float = -1.0, updates: int = 12, steady: bool = False, past: bool = False) -> None:
    """Policy gradient on whole episodes, without a value function; `past` sums what an episode had paid before."""
    torch.manual_seed(0)
    env = Steady() if steady else Drift()
    actor, _ = networks(3)
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    for update in range(updates):
        obs, _ = env.reset(seed=update)
        logs: list[torch.Tensor] = []
        rewards: list[float] = []
        done = False
        while not done:
            policy = Categorical(logits=actor(torch.from_numpy(obs)))
            action = policy.sample()
            logs.append(policy.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.item())
            rewards.append(reward)
            done = terminated or truncated
        total = 0.0
        returns: list[float] = []
        for reward in rewards if past else reversed(rewards):
            total = reward + GAMMA * total
            returns.insert(len(returns) if past else 0, total)
        gains = torch.tensor(returns)
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        loss = sign * (torch.stack(logs) * gains).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Pushed(Drift):
    """The same point, pushed by as much as the action says."""

    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)  # type: ignore[assignment]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.v += 0.05 * float(np.clip(action, -1, 1)[0])
        return super().step(self.np_random.integers(2))


def gaussian(width: float, updates: int = 210) -> None:
    """Policy gradient with actions of some size, which vary by `width`."""
    torch.manual_seed(0)
    env = Pushed(limit=5)
    actor, _ = networks(3, outputs=1)
    scale = nn.Parameter(torch.tensor([width]).log())
    optimizer = torch.optim.Adam([*actor.parameters(), scale], lr=1e-4)
    for update in range(updates):
        obs, _ = env.reset(seed=update)
        logs, rewards, done = [], [], False
        while not done:
            policy = Independent(Normal(actor(torch.from_numpy(obs)), scale.exp()), 1)
            action = policy.sample()
            logs.append(policy.log_prob(action))
            obs, reward, terminated, truncated, _ = env.step(action.numpy())
            rewards.append(reward)
            done = terminated or truncated
        gains = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(logs) * (gains - gains.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def side_by_side(sums: str = "forward", paid: str = "always", updates: int = 6) -> None:
    """Policy gradient on episodes of several environments, which are joined one environment after the other."""
    torch.manual_seed(0)
    envs = [(Drift if paid == "always" else PaidAtTheEnd)(limit=9) for _ in range(6)]
    actor, _ = networks(3)
    optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    for update in range(updates):
        current = [env.reset(seed=6 * update + number)[0] for number, env in enumerate(envs)]
        kept: list[tuple[list[torch.Tensor], list[torch.Tensor], list[float]]] = [([], [], []) for _ in envs]
        over = [False] * len(envs)
        while not all(over):
            seen = torch.from_numpy(np.stack(current))
            with torch.no_grad():
                actions = Categorical(logits=actor(seen)).sample()
            for number, env in enumerate(envs):
                if over[number]:
                    continue
                current[number], reward, terminated, truncated, _ = env.step(int(actions[number]))
                over[number] = terminated or truncated
                for held, item in zip(kept[number], (seen[number], actions[number], reward), strict=True):
                    held.append(item)  # type: ignore[attr-defined]
        gains: list[float] = []
        for _, _, rewards in kept:
            total, found = 0.0, []
            for reward in reversed(rewards) if sums == "forward" else rewards:
                total = reward + (0.0 if sums == "none" else GAMMA) * total
                found.append(total)
            gains += found[::-1] if sums == "forward" else found
        weights = torch.tensor(gains)
        weights = (weights - weights.mean()) / weights.std()
        policy = Categorical(logits=actor(torch.stack([row for held, _, _ in kept for row in held])))
        log = policy.log_prob(torch.stack([action for _, held, _ in kept for action in held]))
        loss = -(log * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def with_baseline(
    backwards: bool = False,
    gamma: float = GAMMA,
    unit: float = 1.0,
    shift: float = 0.0,
    updates: int = 8,
    limit: int = 30,
) -> None:
    """Policy gradient on whole episodes, with a learned baseline."""
    torch.manual_seed(0)
    env = Drift(limit)
    actor, critic = networks(3)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    for update in range(updates):
        seen, actions, returns = [], [], []
        for episode in range(3):
            obs, _ = env.reset(seed=3 * update + episode)
            rewards: list[float] = []
            done = False
            while not done:
                seen.append(torch.from_numpy(obs))
                with torch.no_grad():
                    actions.append(Categorical(logits=actor(seen[-1])).sample())
                obs, reward, terminated, truncated, _ = env.step(actions[-1].item())
                rewards.append(reward)
                done = terminated or truncated
            total, found = 0.0, []
            for reward in reversed(rewards):
                total = reward + shift + gamma * total
                found.append(total)
            returns += found if backwards else found[::-1]
        states, gains = torch.stack(seen), unit * torch.tensor(returns)
        values = critic(states).squeeze(1)
        log = Categorical(logits=actor(states)).log_prob(torch.stack(actions))
        loss = F.mse_loss(values, gains) - (log * (gains - values.detach())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def reward_model(updates: int = 30) -> None:
    """Random play, and a network that learns what each step pays."""
    torch.manual_seed(0)
    env = Drift()
    model = networks(3)[1]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    obs, _ = env.reset(seed=0)
    for update in range(updates):
        seen, paid = [], []
        for step in range(16):
            seen.append(torch.from_numpy(obs))
            obs, reward, terminated, truncated, _ = env.step((update + step) % 2)
            paid.append(reward)
            if terminated or truncated:
                obs, _ = env.reset()
        loss = F.mse_loss(model(torch.stack(seen)).squeeze(1), torch.tensor(paid, dtype=torch.float32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def supervised(steps: int = 12) -> None:
    """No environment at all."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(16, 4)
        loss = F.mse_loss(model(x).squeeze(1), x.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
