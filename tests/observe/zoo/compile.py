"""torch.compile around a model and around a training step's loss, with a backend that needs no compiler."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest, seed_all

seed_all(0)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(12, 48)
        self.norm = nn.LayerNorm(48)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(48, 4)

    def forward(self, x):
        h = F.gelu(self.norm(self.inp(x)))
        return self.out(self.drop(h) * torch.sigmoid(h))


def objective(logits, y):
    return F.cross_entropy(logits, y) + 1e-3 * logits.pow(2).mean()


net = Mixer()
model = torch.compile(net, backend="aot_eager")
loss_fn = torch.compile(objective, backend="eager")
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
x = torch.randn(256, 12)
y = x[:, :4].argmax(1)
for step in range(40):
    pick = torch.randint(0, 256, (64,))
    loss = loss_fn(model(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print("step", step, "loss", f"{loss.item():.5f}")
model.eval()
with torch.no_grad():
    print("accuracy", (model(x).argmax(1) == y).float().mean().item())
print_digest(net, optimizer)
