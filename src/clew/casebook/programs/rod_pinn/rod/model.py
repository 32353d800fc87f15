import torch
import torch.nn as nn


class Temperature(nn.Module):
    """The field, and the diffusivity that is learned beside it."""

    def __init__(self, width=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        self.log_diffusivity = nn.Parameter(torch.zeros(()))

    @property
    def diffusivity(self):
        return self.log_diffusivity.exp()

    def forward(self, x, t):
        return self.net(torch.cat([2 * x - 1, 2 * t - 1], dim=1))
