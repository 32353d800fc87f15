"""Physics-informed network for the damped oscillator  u'' + 2 d u' + w0^2 u = 0,  u(0) = 1, u'(0) = 0."""

import argparse
import math

import torch
import torch.nn as nn

DAMPING = 1.0
OMEGA = 4.0
T_END = 1.5


def exact(t):
    omega = math.sqrt(OMEGA**2 - DAMPING**2)
    return torch.exp(-DAMPING * t) * (torch.cos(omega * t) + DAMPING / omega * torch.sin(omega * t))


class Solution(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        layers.append(nn.Linear(width, 1))
        self.net = nn.Sequential(*layers)

    def forward(self, t):
        return self.net(2 * t / T_END - 1)


def derivative(u, t):
    return torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), create_graph=True)[0]


def residual_loss(model, t):
    t = t.requires_grad_(True)
    u = model(t)
    du = derivative(u, t)
    ddu = derivative(du, t)
    residual = (ddu + 2 * DAMPING * du + OMEGA**2 * u) / OMEGA**2
    return residual.pow(2).mean()


def initial_loss(model):
    t0 = torch.zeros(1, 1, requires_grad=True)
    u0 = model(t0)
    du0 = derivative(u0, t0)
    return (u0 - 1).pow(2).mean() + (du0 / OMEGA).pow(2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--points", type=int, default=128)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    model = Solution()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, eta_min=1e-4)
    grid = torch.linspace(0, T_END, 200).unsqueeze(1)
    reference = exact(grid)

    for step in range(1, args.steps + 1):
        t = T_END * torch.rand(args.points, 1)
        physics = residual_loss(model, t)
        initial = initial_loss(model)
        loss = physics + initial
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 0:
            with torch.no_grad():
                error = (model(grid) - reference).norm() / reference.norm()
            print(
                f"step {step} loss {loss.item():.3e} physics {physics.item():.3e} initial "
                f"{initial.item():.3e} rel_error {error.item():.4f}"
            )

    print(f"final rel_error={error.item():.4f}")


if __name__ == "__main__":
    main()
