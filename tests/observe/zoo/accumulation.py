"""Gradient accumulation over micro-batches with a partly frozen backbone, two groups, and a checkpoint reload."""

import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest, seed_all
from torch.utils.data import DataLoader, TensorDataset

seed_all(5)
accumulation_steps = 4

backbone = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
head = nn.Linear(32, 3)
model = nn.Sequential(backbone, head)
for name, parameter in backbone.named_parameters():
    parameter.requires_grad_(not name.startswith("0."))

x = torch.randn(512, 20)
y = (x[:, :3] + 0.1 * torch.randn(512, 3)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True, drop_last=True)
optimizer = torch.optim.AdamW(
    [
        {"params": [p for p in backbone.parameters() if p.requires_grad], "lr": 1e-3},
        {"params": head.parameters(), "lr": 1e-2},
    ]
)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)

step = 0
optimizer.zero_grad()
for _ in range(5):
    for i, (inputs, labels) in enumerate(loader):
        loss = F.cross_entropy(model(inputs), labels) / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                print(f"step={step} loss={loss.item() * accumulation_steps:.4f} lr={scheduler.get_last_lr()[1]:.5f}")

file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file)
file.seek(0)
checkpoint = torch.load(file)
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
print("resumed at", checkpoint["step"])
print_digest(model, optimizer, scheduler.state_dict())
