"""Less common parts of torch in one training loop: scripted, traced, vectorised, checkpointed and counted code."""

import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest, seed_all
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

seed_all(21)


@torch.jit.script
def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


@torch.jit.script
def smooth_loss(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, y) - 0.01 * F.log_softmax(logits, dim=-1).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(8, 32)
        self.mid = nn.Sequential(nn.Linear(32, 32), nn.Dropout(0.2), nn.Tanh())
        self.out = nn.Linear(32, 3)
        self.gate = torch.sigmoid

    def forward(self, x):
        h = swish(self.inp(x))
        h = h + checkpoint(self.mid, h, use_reentrant=False)
        return self.out(h * self.gate(h))


net = Net()
traced = torch.jit.trace(nn.Sequential(nn.Linear(8, 4), nn.Softmax(dim=-1)), torch.randn(2, 8))
symbolic = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
print(symbolic.code.strip().splitlines()[-1])
optimizer = torch.optim.NAdam(net.parameters(), lr=5e-3)
x = torch.randn(256, 8)
y = x[:, :3].argmax(1)


def one_loss(params, buffers, xi, yi):
    logits = torch.func.functional_call(net.out, (params, buffers), (xi.unsqueeze(0),))
    return F.cross_entropy(logits, yi.unsqueeze(0))


with FlopCounterMode(display=False) as counter:
    net(x[:4])
print("flops", counter.get_total_flops())

for step in range(30):
    pick = torch.randperm(256)[:64]
    net.train()
    try:
        net(x[pick][:, :5])
    except RuntimeError as error:
        if step == 0:
            print("caught:", str(error)[:40])
    loss = smooth_loss(net(symbolic(x[pick]) + x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        params = {name: p.detach() for name, p in net.out.named_parameters()}
        hidden = torch.tanh(net.inp(x[:16])).detach()
        each = torch.func.vmap(torch.func.grad(one_loss), in_dims=(None, None, 0, 0))(params, {}, hidden, y[:16])
        spread = each["weight"].flatten(1).norm(dim=1).std().item()
        print(step, f"{loss.item():.5f} {spread:.5f} {traced(x[:2]).sum().item():.4f}")

file = io.BytesIO()
torch.save(net, file)
file.seek(0)
again = torch.load(file, weights_only=False)
again.eval()
print("same", bool((again(x) == net.eval()(x)).all()))
print_digest(net, again, optimizer)
