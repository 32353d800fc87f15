from typing import NamedTuple

import torch


class Batch(NamedTuple):
    observations: torch.Tensor
    actions: torch.Tensor
    log_probs: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor

    def flat(self):
        return Batch(*(tensor.flatten(0, 1) for tensor in self))

    def pick(self, index):
        return Batch(*(tensor[index] for tensor in self))


class Collector:
    def __init__(self, envs, model, options):
        self.envs, self.model, self.options = envs, model, options
        self.observation = torch.from_numpy(envs.observe())

    @torch.no_grad()
    def collect(self):
        steps = []
        for _ in range(self.options["rollout_steps"]):
            self.model.observe(self.observation)
            dist = self.model.distribution(self.observation)
            action = dist.sample()
            following, reward, tripped, timed_out, last = self.envs.step(action.numpy())
            steps.append(
                {
                    "observation": self.observation,
                    "action": action,
                    "log_prob": self.model.log_prob(dist, action),
                    "value": self.model.value(self.observation),
                    "next_value": self.model.value(torch.from_numpy(last)),
                    "reward": self.options["reward_scale"] * torch.from_numpy(reward),
                    "terminal": torch.from_numpy(tripped).float(),
                    "ended": torch.from_numpy(tripped | timed_out).float(),
                }
            )
            self.observation = torch.from_numpy(following)
        data = {key: torch.stack([step[key] for step in steps]) for key in steps[0]}
        advantages = self.advantages(data)
        returns = advantages + data["value"]
        reward = data["reward"].mean().item() / self.options["reward_scale"]
        return Batch(data["observation"], data["action"], data["log_prob"], advantages, returns), reward

    def advantages(self, data):
        gamma, lam = self.options["gamma"], self.options["gae_lambda"]
        deltas = data["reward"] + gamma * (1 - data["terminal"]) * data["next_value"] - data["value"]
        advantages, running = torch.zeros_like(deltas), torch.zeros(deltas.shape[1])
        for t in reversed(range(len(deltas))):
            running = deltas[t] + gamma * lam * (1 - data["ended"][t]) * running
            advantages[t] = running
        return advantages
