"""Fit a smooth curve to noisy measurements with L-BFGS on the full batch."""

import argparse

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=120)
parser.add_argument("--points", type=int, default=400)
args = parser.parse_args()

torch.manual_seed(args.seed)
torch.set_default_dtype(torch.float64)

rng = np.random.default_rng(args.seed)
x = rng.uniform(-8, 8, size=args.points)
y = np.sinc(x / 2) + 0.05 * rng.normal(size=args.points)
x = torch.from_numpy(x).unsqueeze(1)
y = torch.from_numpy(y).unsqueeze(1)
held_out = args.points // 4
x_val, y_val, x_train, y_train = x[:held_out], y[:held_out], x[held_out:], y[held_out:]

mean, std = x_train.mean(), x_train.std()
x_train, x_val = (x_train - mean) / std, (x_val - mean) / std

net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
mse = nn.MSELoss()
optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=4, history_size=20, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    penalty = sum((p**2).sum() for p in net.parameters())
    loss = mse(net(x_train), y_train) + 1e-6 * penalty
    loss.backward()
    return loss


for step in range(args.steps):
    net.train()
    loss = optimizer.step(closure)
    if (step + 1) % 10 == 0:
        net.eval()
        with torch.no_grad():
            val_mse = mse(net(x_val), y_val)
        print(f"step {step + 1:4d}  loss {loss.item():.6f}  val_mse {val_mse.item():.6f}")

r2 = 1 - val_mse.item() / y_val.var(unbiased=False).item()
print(f"final val_r2={r2:.4f}")
