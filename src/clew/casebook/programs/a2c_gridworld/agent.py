import torch.nn as nn
from torch.distributions import Categorical


def layer(n_in, n_out, gain):
    linear = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class ActorCritic(nn.Module):
    def __init__(self, observations, actions, hidden=96):
        super().__init__()
        self.body = nn.Sequential(
            layer(observations, hidden, 2**0.5), nn.ReLU(), layer(hidden, hidden, 2**0.5), nn.ReLU()
        )
        self.policy = layer(hidden, actions, 0.01)
        self.value = layer(hidden, 1, 1.0)

    def forward(self, x):
        features = self.body(x)
        return Categorical(logits=self.policy(features)), self.value(features).squeeze(-1)
