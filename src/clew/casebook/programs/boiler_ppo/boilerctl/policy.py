import torch
import torch.nn as nn
from torch.distributions import Normal

from boilerctl.running import RunningNorm


def orthogonal(layer, gain):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def tower(n_in, hidden, n_out, gain):
    return nn.Sequential(
        orthogonal(nn.Linear(n_in, hidden), 2**0.5),
        nn.Tanh(),
        orthogonal(nn.Linear(hidden, hidden), 2**0.5),
        nn.Tanh(),
        orthogonal(nn.Linear(hidden, n_out), gain),
    )


class GaussianActorCritic(nn.Module):
    def __init__(self, observation_size, action_size, hidden, initial_log_std, normalize_observations):
        super().__init__()
        self.norm = RunningNorm(observation_size) if normalize_observations else nn.Identity()
        self.actor = tower(observation_size, hidden, action_size, 0.01)
        self.critic = tower(observation_size, hidden, 1, 1.0)
        self.log_std = nn.Parameter(torch.full((action_size,), initial_log_std))

    def observe(self, observation):
        if isinstance(self.norm, RunningNorm):
            self.norm.update(observation)

    def value(self, observation):
        return self.critic(self.norm(observation)).squeeze(-1)

    def distribution(self, observation):
        return Normal(self.actor(self.norm(observation)), self.log_std.exp())

    def log_prob(self, dist, action):
        return dist.log_prob(action).sum(-1)
