"""Trains a regressor and prints how far each step moves the weights."""

import torch
import torch.nn as nn

torch.manual_seed(0)
generator = torch.Generator().manual_seed(5)
x = torch.randn(1024, 12, generator=generator)
y = torch.sin(x[:, :3]).sum(1, keepdim=True) + 0.1 * torch.randn(1024, 1, generator=generator)
model = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


def update_ratio(before):
    del before
    lr = optimizer.param_groups[0]["lr"]
    moved = sum((lr * p.grad).pow(2).sum() for p in model.parameters())
    size = sum(p.pow(2).sum() for p in model.parameters())
    return (moved / size).sqrt().item()


for step in range(200):
    rows = torch.randint(0, 1024, (64,), generator=generator)
    loss = nn.functional.mse_loss(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} update_ratio {update_ratio(before):.2e}")
