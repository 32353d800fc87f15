import argparse
import random
import tomllib
from types import SimpleNamespace

import numpy as np
import torch

from agent import TD3
from replay import ReplayBuffer
from world import PuckWorld


class Trainer:
    def __init__(self, config, seed):
        self.config = config
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        self.env = PuckWorld(seed)
        self.agent = TD3(self.env.obs_dim, self.env.act_dim, self.env.max_action, config)
        self.buffer = ReplayBuffer(self.env.obs_dim, self.env.act_dim, config.buffer_size)

    def explore(self, obs, step):
        if step < self.config.start_steps:
            return np.random.uniform(-self.env.max_action, self.env.max_action, self.env.act_dim)
        return self.agent.act(obs, noise=self.config.exploration_noise)

    def fit(self):
        obs, episode_return, returns, losses = self.env.reset(), 0.0, [], []
        for step in range(self.config.total_steps):
            action = self.explore(obs, step)
            next_obs, reward, terminated, truncated = self.env.step(action)
            self.buffer.add(obs, action, reward, next_obs, terminated)
            episode_return += reward
            obs = next_obs
            if terminated or truncated:
                returns.append(episode_return)
                obs, episode_return = self.env.reset(), 0.0
            if step >= self.config.start_steps:
                losses.append(self.agent.update(self.buffer.sample(self.config.batch_size)))
            if (step + 1) % 500 == 0:
                recent = np.mean(losses[-300:]) if losses else float("nan")
                print(f"step {step + 1:5d}  return {np.mean(returns[-10:]):8.2f}  critic loss {recent:.4f}")

    def evaluate(self):
        env, total = PuckWorld(seed=10_000), 0.0
        for _ in range(self.config.eval_episodes):
            obs, done = env.reset(), False
            while not done:
                obs, reward, terminated, truncated = env.step(self.agent.act(obs))
                total += reward
                done = terminated or truncated
        return total / self.config.eval_episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.toml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with open(args.config, "rb") as file:
        config = SimpleNamespace(**tomllib.load(file))
    trainer = Trainer(config, args.seed)
    trainer.fit()
    print(f"final eval_return={trainer.evaluate():.3f}")


if __name__ == "__main__":
    main()
