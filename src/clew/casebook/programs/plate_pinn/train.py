"""Temperature of a heated steel plate and its conductivity, from nine thermocouples and the heat equation."""

import argparse
import csv
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from geometry import Plate, Sampler


@dataclass
class Config:
    readings: Path = Path(__file__).parent / "data" / "thermocouples.csv"
    plate: Plate = field(default_factory=Plate)
    hidden: int = 32
    layers: int = 3
    interior_points: int = 128
    points_per_side: int = 16
    iterations: int = 900
    lr: float = 5e-3
    lr_parameter: float = 2e-2
    boundary_weight: float = 10.0
    sensor_weight: float = 10.0
    log_every: int = 100
    seed: int = 0


class PlateNet(nn.Module):
    def __init__(self, hidden, layers):
        super().__init__()
        sizes = [2] + [hidden] * layers
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(hidden, 1)
        self.raw_conductivity = nn.Parameter(torch.tensor(0.0))
        for layer in [*self.hidden, self.out]:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    @property
    def conductivity(self):
        return F.softplus(self.raw_conductivity)

    def forward(self, x, y):
        h = torch.cat([2 * x - 1, 2 * y - 1], dim=1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h)


def gradient(outputs, inputs):
    return torch.autograd.grad(outputs, inputs, torch.ones_like(outputs), create_graph=True)[0]


class Trainer:
    def __init__(self, config):
        self.config = config
        self.plate = config.plate
        self.sampler = Sampler(config.interior_points, config.points_per_side)
        self.model = PlateNet(config.hidden, config.layers)
        self.sensors = self.load_sensors(config.readings)
        network = [p for name, p in self.model.named_parameters() if name != "raw_conductivity"]
        self.optimizer = torch.optim.Adam(
            [
                {"params": network, "lr": config.lr},
                {"params": [self.model.raw_conductivity], "lr": config.lr_parameter},
            ]
        )
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, config.iterations)

    def load_sensors(self, path):
        with open(path) as file:
            rows = [[float(value) for value in row.values()] for row in csv.DictReader(file)]
        x, y, celsius = torch.tensor(rows).split(1, dim=1)
        return self.plate.to_unit(x, y, celsius)

    def pde_loss(self):
        x, y = self.sampler.interior()
        x.requires_grad_(True)
        y.requires_grad_(True)
        u = self.model(x, y)
        u_xx = gradient(gradient(u, x), x)
        u_yy = gradient(gradient(u, y), y)
        aspect = (self.plate.width / self.plate.height) ** 2
        conducted = self.plate.conduction * self.model.conductivity * (u_xx + aspect * u_yy)
        residual = conducted + self.plate.heat(x, y)
        return F.mse_loss(residual, torch.zeros_like(residual))

    def boundary_loss(self):
        u = self.model(*self.sampler.boundary())
        return F.mse_loss(u, torch.zeros_like(u))

    def sensor_loss(self):
        x, y, measured = self.sensors
        return F.mse_loss(self.model(x, y), measured)

    def step(self):
        self.optimizer.zero_grad()
        losses = {"pde": self.pde_loss(), "boundary": self.boundary_loss(), "sensors": self.sensor_loss()}
        total = losses["pde"]
        total = total + self.config.boundary_weight * losses["boundary"]
        total = total + self.config.sensor_weight * losses["sensors"]
        total.backward()
        self.optimizer.step()
        self.scheduler.step()
        return total.item(), {name: value.item() for name, value in losses.items()}

    @torch.no_grad()
    def field_error(self):
        axis = torch.linspace(0, 1, 41)
        x, y = (grid.reshape(-1, 1) for grid in torch.meshgrid(axis, axis, indexing="ij"))
        reference = self.plate.exact(x, y, self.plate.conductivity)
        return ((self.model(x, y) - reference).norm() / reference.norm()).item()

    def fit(self):
        for iteration in range(1, self.config.iterations + 1):
            total, losses = self.step()
            if iteration % self.config.log_every == 0:
                shown = " ".join(f"{name}={value:.2e}" for name, value in losses.items())
                conductivity = self.model.conductivity.item() * self.plate.unit
                print(f"[{iteration:5d}] loss={total:.3e} {shown} k={conductivity:.2f} W/(m K)")
        return self.field_error()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--iterations", type=int, default=Config.iterations)
    config = Config(**vars(parser.parse_args()))
    torch.manual_seed(config.seed)
    print(f"final field_error={Trainer(config).fit():.4f}")
