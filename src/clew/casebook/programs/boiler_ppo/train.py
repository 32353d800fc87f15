"""Train a boiler controller with PPO: python train.py --config config.toml"""

import argparse
import tomllib

import numpy as np
import torch

from boilerctl.plant import Boilers
from boilerctl.policy import GaussianActorCritic
from boilerctl.ppo import PPO
from boilerctl.rollout import Collector


@torch.no_grad()
def evaluate(model, time_limit):
    """The share of time, after warming up, that the water is within one degree of its set point."""
    envs = Boilers(50, time_limit, seed=777)
    tripped_ever = np.zeros(50, bool)
    held = []
    for step in range(time_limit - 1):
        action = model.distribution(torch.from_numpy(envs.observe())).mean
        _, _, tripped, _, _ = envs.step(action.numpy())
        tripped_ever |= tripped
        if step >= time_limit // 2:
            held.append((envs.error() < 1.0) & ~tripped_ever)
    return float(np.mean(held))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.toml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with open(args.config, "rb") as file:
        config = tomllib.load(file)

    torch.manual_seed(args.seed)
    envs = Boilers(**config["env"], seed=args.seed)
    model = GaussianActorCritic(envs.observation_size, envs.action_size, **config["model"])
    collector = Collector(envs, model, config["ppo"])
    learner = PPO(model, config["ppo"])

    for update in range(1, config["ppo"]["updates"] + 1):
        batch, reward = collector.collect()
        policy_loss, value_loss, entropy = learner.update(batch)
        if update % 10 == 0:
            print(
                f"update {update:3d} | reward {reward:7.3f} | policy {policy_loss:+.4f} | value {value_loss:.4f}"
                f" | entropy {entropy:.3f}"
            )

    print(f"final in_band={evaluate(model, config['env']['time_limit']):.4f}")


if __name__ == "__main__":
    main()
