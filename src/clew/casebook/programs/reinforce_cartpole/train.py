"""REINFORCE with a learned baseline on CartPole."""

import argparse

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self, observations=4, actions=2, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh())
        self.action_head = nn.Linear(hidden, actions)

    def forward(self, x):
        return Categorical(logits=self.action_head(self.body(x)))


class Baseline(nn.Module):
    def __init__(self, observations=4, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(observations, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def play(env, policy, seed=None):
    observations, actions, rewards = [], [], []
    observation, _ = env.reset(seed=seed)
    done = False
    while not done:
        observations.append(observation)
        with torch.no_grad():
            action = policy(torch.as_tensor(observation)).sample().item()
        observation, reward, terminated, truncated, _ = env.step(action)
        actions.append(action)
        rewards.append(reward)
        done = terminated or truncated
    return np.array(observations), np.array(actions), rewards, observation if truncated else None


def discounted(rewards, gamma, total=0.0):
    returns = []
    for reward in reversed(rewards):
        total = reward + gamma * total
        returns.append(total)
    return returns[::-1]


@torch.no_grad()
def evaluate(policy, episodes, seed):
    env = gym.make("CartPole-v1", max_episode_steps=200)
    scores = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        score, done = 0.0, False
        while not done:
            action = policy(torch.as_tensor(observation)).probs.argmax().item()
            observation, reward, terminated, truncated, _ = env.step(action)
            score += reward
            done = terminated or truncated
        scores.append(score)
    env.close()
    return float(np.mean(scores))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--episodes-per-update", type=int, default=4)
    parser.add_argument("--gamma", type=float, default=0.98)
    parser.add_argument("--lr", type=float, default=1e-2)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    env = gym.make("CartPole-v1", max_episode_steps=200)
    policy, baseline = Policy(), Baseline()
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=args.lr)
    baseline_optimizer = torch.optim.Adam(baseline.parameters(), lr=args.lr)
    recent = []

    for update in range(args.updates):
        observations, actions, returns = [], [], []
        for episode in range(args.episodes_per_update):
            first = update == 0 and episode == 0
            obs, acts, rewards, cut_off = play(env, policy, seed=args.seed if first else None)
            still_to_come = 0.0
            if cut_off is not None:
                with torch.no_grad():
                    still_to_come = baseline(torch.as_tensor(cut_off)).item() / (1 - args.gamma)
            observations.append(obs)
            actions.append(acts)
            returns += discounted(rewards, args.gamma, still_to_come)
            recent.append(sum(rewards))
        obs = torch.as_tensor(np.concatenate(observations), dtype=torch.float32)
        acts = torch.as_tensor(np.concatenate(actions))
        # Returns reach 1 / (1 - gamma); the baseline predicts them on a scale of one.
        targets = torch.tensor(returns, dtype=torch.float32) * (1 - args.gamma)

        advantages = targets - baseline(obs).detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        dist = policy(obs)
        policy_loss = -(dist.log_prob(acts) * advantages).mean() - 0.01 * dist.entropy().mean()
        policy_optimizer.zero_grad()
        policy_loss.backward()
        policy_optimizer.step()

        for _ in range(3):
            value_loss = nn.functional.mse_loss(baseline(obs), targets)
            baseline_optimizer.zero_grad()
            value_loss.backward()
            baseline_optimizer.step()

        if (update + 1) % 10 == 0:
            print(
                f"update {update + 1:3d}  mean return {np.mean(recent[-20:]):6.1f}"
                f"  policy loss {policy_loss.item():+.3f}  value loss {value_loss.item():.4f}"
            )

    env.close()
    print(f"final eval_return={evaluate(policy, 20, seed=10_000):.1f}")


if __name__ == "__main__":
    main()
