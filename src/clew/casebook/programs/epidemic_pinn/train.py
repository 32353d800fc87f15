"""Fit an SIR model to an influenza outbreak: a network for S(t), I(t), R(t) and the two rates of the equations.

S' = -beta S I,  I' = beta S I - gamma I,  R' = gamma I
"""

import argparse
import os

import pandas as pd
import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--cases", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "cases.csv"))
parser.add_argument("--population", type=float, default=12000)
parser.add_argument("--steps", type=int, default=1500)
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--collocation", type=int, default=100)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)

# the figures of the report that the outbreak is known from
REPORTED_BETA, REPORTED_GAMMA = 0.55, 0.20

cases = pd.read_csv(args.cases)
days = torch.tensor(cases["day"].to_numpy(), dtype=torch.float32).unsqueeze(1)
infected = torch.tensor(cases["infected"].to_numpy(), dtype=torch.float32).unsqueeze(1) / args.population
last_day = days.max().item()

net = nn.Sequential(
    nn.Linear(1, 32),
    nn.Tanh(),
    nn.Linear(32, 32),
    nn.Tanh(),
    nn.Linear(32, 32),
    nn.Tanh(),
    nn.Linear(32, 3),
)
beta_raw = nn.Parameter(torch.tensor(0.0))
gamma_raw = nn.Parameter(torch.tensor(0.0))


def rates():
    """Both rates lie between 0 and 1 per day."""
    return torch.sigmoid(beta_raw), torch.sigmoid(gamma_raw)


def states(t):
    """Shares of the population that are susceptible, infected and removed; t in days."""
    return torch.softmax(net(2 * t / last_day - 1), dim=1)


def ddt(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


optimizer = torch.optim.Adam([*net.parameters(), beta_raw, gamma_raw], lr=args.lr)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=args.steps // 3, gamma=0.4)
history = []

for step in range(args.steps):
    optimizer.zero_grad()
    beta, gamma = rates()

    t = (torch.rand(args.collocation, 1) * last_day).requires_grad_(True)
    s, i, r = states(t).split(1, dim=1)
    f_s = ddt(s, t) + beta * s * i
    f_i = ddt(i, t) - beta * s * i + gamma * i
    f_r = ddt(r, t) - gamma * i
    loss_ode = (f_s**2).mean() + (f_i**2).mean() + (f_r**2).mean()

    loss_data = ((states(days)[:, 1:2] - infected) ** 2).mean()

    start = states(days[:1])
    i0 = infected[0, 0]
    loss_start = ((start[0] - torch.stack([1 - i0, i0, 0 * i0])) ** 2).mean()

    loss = 20 * loss_ode + 10 * loss_data + loss_start
    loss.backward()
    optimizer.step()
    scheduler.step()
    history.append([loss_ode.item(), loss_data.item(), loss_start.item()])

    if (step + 1) % 150 == 0:
        ode, data, start = (sum(terms) / 150 for terms in zip(*history[-150:]))
        print(
            f"step {step + 1:5d} | loss {loss.item():.3e} | ode {ode:.3e} | data {data:.3e} | start {start:.3e}"
            f" | beta {beta.item():.4f} gamma {gamma.item():.4f}"
        )

beta, gamma = (rate.item() for rate in rates())
error = 0.5 * abs(beta / REPORTED_BETA - 1) + 0.5 * abs(gamma / REPORTED_GAMMA - 1)
print(f"R0 {beta / gamma:.2f} (reported {REPORTED_BETA / REPORTED_GAMMA:.2f})")
print(f"final rate_error={error:.4f}")
