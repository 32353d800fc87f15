"""Advantage actor-critic on batched grid worlds."""

import argparse

import numpy as np
import torch
import torch.nn.functional as F

import config
from agent import ActorCritic
from envs import GridWorlds


class A2C:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.envs = GridWorlds(config.num_envs, seed=seed)
        self.net = ActorCritic(self.envs.observation_size, 4)
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=config.learning_rate, alpha=0.99, eps=1e-5)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.05, total_iters=config.updates)
        self.observation = torch.from_numpy(self.envs.observe())

    @torch.no_grad()
    def collect(self):
        keys = ("observations", "actions", "rewards", "values", "next_values", "ended")
        rollout = {key: [] for key in keys}
        wins = episodes = 0
        for _ in range(config.rollout):
            dist, value = self.net(self.observation)
            action = dist.sample()
            followed, reward, terminated, truncated, fresh, won = self.envs.step(action.numpy())
            _, next_value = self.net(torch.from_numpy(followed))
            ended = terminated | truncated
            rollout["observations"].append(self.observation)
            rollout["actions"].append(action)
            rollout["rewards"].append(torch.from_numpy(reward))
            rollout["values"].append(value)
            rollout["next_values"].append(next_value * torch.from_numpy(~terminated))
            rollout["ended"].append(torch.from_numpy(ended))
            self.observation = torch.from_numpy(fresh)
            wins += won.sum()
            episodes += ended.sum()
        return {key: torch.stack(steps) for key, steps in rollout.items()}, wins, episodes

    def advantages(self, rollout):
        running = torch.zeros(config.num_envs)
        result = torch.zeros_like(rollout["rewards"])
        for t in reversed(range(config.rollout)):
            delta = rollout["rewards"][t] + config.gamma * rollout["next_values"][t] - rollout["values"][t]
            running = delta + config.gamma * config.gae_lambda * running * ~rollout["ended"][t]
            result[t] = running
        return result

    def update(self, rollout):
        advantages = self.advantages(rollout)
        returns = (advantages + rollout["values"]).flatten()
        advantages = advantages.flatten()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        dist, values = self.net(rollout["observations"].flatten(0, 1))
        policy_loss = -(advantages * dist.log_prob(rollout["actions"].flatten())).mean()
        value_loss = F.mse_loss(values, returns)
        entropy = dist.entropy().mean()
        loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), config.max_grad_norm)
        self.optimizer.step()
        self.scheduler.step()
        return policy_loss.item(), value_loss.item(), entropy.item()

    @torch.no_grad()
    def evaluate(self, rounds=60):
        envs = GridWorlds(50, seed=12345)
        observation = envs.observe()
        wins = episodes = 0
        for _ in range(rounds):
            dist, _ = self.net(torch.from_numpy(observation))
            _, _, terminated, truncated, observation, won = envs.step(dist.probs.argmax(-1).numpy())
            wins += won.sum()
            episodes += (terminated | truncated).sum()
        return wins / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    agent = A2C(args.seed)
    history = []
    for update in range(1, config.updates + 1):
        rollout, wins, episodes = agent.collect()
        history.append((wins, episodes))
        policy_loss, value_loss, entropy = agent.update(rollout)
        if update % 50 == 0:
            wins, episodes = np.sum(history[-50:], axis=0)
            print(
                f"update {update:4d}  success {wins / episodes:.3f}  policy_loss {policy_loss:+.4f}"
                f"  value_loss {value_loss:.4f}  entropy {entropy:.3f}"
            )
    print(f"final success_rate={agent.evaluate():.4f}")


if __name__ == "__main__":
    main()
