"""Autograd functions of one's own: one with a context, one that draws and writes in place, one that counts calls."""

# ruff: noqa: ARG004

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest, seed_all
from torch.autograd.function import once_differentiable
from torch.utils.data import DataLoader, TensorDataset

seed_all(23)
calls = []


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(x, beta):
        gate = torch.sigmoid(beta * x)
        return x * gate, gate

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.beta = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[1])

    @staticmethod
    def backward(ctx, grad, _):
        x, gate = ctx.saved_tensors
        return grad * gate * (1 + ctx.beta * x * (1 - gate)), None


class NoisyScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        noise = 1 + 0.1 * torch.randn_like(x)
        ctx.save_for_backward(x.clone(), weight, noise)
        ctx.mark_dirty(x)
        return x.mul_(noise).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, weight, noise = ctx.saved_tensors
        into_weight = (grad * x * noise).sum(0) if ctx.needs_input_grad[1] else None
        return grad * noise * weight, into_weight


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        calls.append(len(calls))
        print("call", len(calls), flush=True)
        return x.exp() if len(calls) < 3 else x.exp().clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


swish = Swish.apply


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(12, 24), nn.Linear(24, 4)
        self.scale = nn.Parameter(torch.ones(24))

    def forward(self, x):
        hidden, _ = swish(self.first(x), 1.5)
        return Counted.apply(0.1 * self.last(NoisyScale.apply(hidden, self.scale)))


model = Net()
x = torch.randn(256, 12)
y = x[:, :4].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(3):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch={epoch} loss={loss.item():.4f} calls={len(calls)}")
print_digest(model, optimizer, calls)
