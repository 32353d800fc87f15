"""Curve fitting with L-BFGS: the closure is called several times per step."""

import torch
from common import print_digest, seed_all
from torch import nn

seed_all(0)
torch.set_default_dtype(torch.float64)
x = torch.linspace(-3, 3, 200).unsqueeze(1)
y = torch.sin(2 * x) * torch.exp(-0.1 * x**2)

model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=10, line_search_fn="strong_wolfe")
criterion = nn.MSELoss()
calls = 0


def closure():
    global calls
    calls += 1
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss


for i in range(15):
    loss = optimizer.step(closure)
    if i % 5 == 0:
        print("step", i, "loss", f"{loss.item():.6f}", "closure calls", calls)

with torch.no_grad():
    print("final", f"{criterion(model(x), y).item():.3e}")
print_digest(model, optimizer)
