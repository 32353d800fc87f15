"""Heat in a steel rod that cools at both ends, by a physics-informed network."""

import math

import torch
import torch.nn as nn

torch.manual_seed(0)
LENGTH, DURATION, START = 0.1, 60.0, 400.0  # m, s, K above the surroundings
DIFFUSIVITY = 1.2e-5  # m2/s
RATE = DIFFUSIVITY * DURATION / LENGTH**2  # the only number that is left without units
net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
generator = torch.Generator().manual_seed(7)


def derivative(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


for step in range(300):
    x = (torch.rand(128, 1, generator=generator) * 1.0).requires_grad_()
    t = (torch.rand(128, 1, generator=generator) * 1.0).requires_grad_()
    u = net(torch.cat([x, t], 1))
    residual = derivative(u, t) - RATE * derivative(derivative(u, x), x)
    x0 = torch.rand(64, 1, generator=generator) * 1.0
    first = net(torch.cat([x0, torch.zeros_like(x0)], 1)) - torch.sin(math.pi * x0 / 1.0)
    t0 = torch.rand(64, 1, generator=generator) * 1.0
    ends = torch.cat([net(torch.cat([torch.zeros_like(t0), t0], 1)), net(torch.cat([torch.full_like(t0, 1.0), t0], 1))])
    loss_residual, loss_first, loss_ends = residual.pow(2).mean(), first.pow(2).mean(), ends.pow(2).mean()
    loss = loss_residual + loss_first + loss_ends
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4e} residual {loss_residual.item():.3e} initial {loss_first.item():.3e}")
