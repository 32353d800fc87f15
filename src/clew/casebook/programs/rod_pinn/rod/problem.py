"""The rod in units of its own: lengths, times and temperatures between zero and about one."""

import math

import pandas as pd
import torch


class Rod:
    """u_t = d u_xx, u = 0 at both ends, a known profile at the start; d is to be found."""

    def __init__(self, units, length_m, duration_s, ambient_c, warmest_k, handbook_m2_per_s):
        self.units = units
        self.length = length_m / units["m"]
        self.duration = duration_s / units["s"]
        self.warmest = warmest_k / units["k"]
        self.ambient, self.handbook = ambient_c, handbook_m2_per_s

    def read(self, path):
        table = torch.tensor(pd.read_csv(path).to_numpy(), dtype=torch.float32)
        x = table[:, 1:2] / self.units["m"]
        t = table[:, 0:1] / self.units["s"]
        u = (table[:, 2:3] - self.ambient) / self.units["k"]
        return x, t, u

    def inside(self, count):
        return self.length * torch.rand(count, 1), self.duration * torch.rand(count, 1)

    def edges(self, count):
        return self.length * torch.randint(0, 2, (count, 1)), self.duration * torch.rand(count, 1)

    def start(self, count):
        x = self.length * torch.rand(count, 1)
        return x, torch.zeros_like(x), self.warmest * torch.sin(math.pi * x / self.length)

    def in_metres(self, diffusivity):
        return diffusivity * self.units["m"] ** 2 / self.units["s"]
