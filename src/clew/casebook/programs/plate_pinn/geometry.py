"""A heated plate, clamped to cooling bars on all four sides."""

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Plate:
    width: float = 0.30  # m
    height: float = 0.20  # m
    ambient: float = 25.0  # deg C at the bars
    heating: float = 2.0e6  # W/m^3 at the centre
    conductivity: float = 45.0  # W/(m K), what the supplier says
    rise: float = 120.0  # K at the centre, roughly
    unit: float = 100.0  # W/(m K), in which the conductivity is learned

    def heat(self, x, y):
        """Heating by the coil underneath, as a share of that at the centre; x and y run from 0 to 1."""
        return torch.sin(torch.pi * x) * torch.sin(torch.pi * y)

    @property
    def conduction(self):
        """What the unit of conductivity carries away, against what the coil gives."""
        return self.unit * self.rise / (self.heating * self.width**2)

    def to_unit(self, x, y, celsius):
        return x / self.width, y / self.height, (celsius - self.ambient) / self.rise

    def exact(self, x, y, conductivity):
        waves = (np.pi / self.width) ** 2 + (np.pi / self.height) ** 2
        return self.heating / (conductivity * waves) * self.heat(x, y) / self.rise


class Sampler:
    def __init__(self, inside, per_side):
        self.inside, self.per_side = inside, per_side

    def interior(self):
        points = torch.rand(self.inside, 2)
        return points[:, :1], points[:, 1:]

    def boundary(self):
        s = torch.rand(4, self.per_side, 1)
        zero, one = torch.zeros(self.per_side, 1), torch.ones(self.per_side, 1)
        x = torch.cat([s[0], s[1], zero, one])
        y = torch.cat([zero, one, s[2], s[3]])
        return x, y
