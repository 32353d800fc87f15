"""Mixed precision: autocast to bfloat16, and a gradient scaler that is in place but switched off, as on a CPU."""

import torch
import torch.nn as nn
from common import print_digest, seed_all

seed_all(11)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        return x + self.body(x)


teacher = nn.Linear(32, 5)
for p in teacher.parameters():
    p.requires_grad = False
model = nn.Sequential(nn.Linear(32, 64), Residual(64), Residual(64), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=50)
scaler = torch.amp.GradScaler("cpu", enabled=False)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

for step in range(50):
    x = torch.randn(64, 32)
    target = teacher(x).argmax(dim=-1)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(x)
        loss = loss_fn(logits, target)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    if step % 10 == 0:
        print(f"step {step:3d} | loss {loss.item():.4f} | {logits.dtype}")

model.eval()
with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
    x = torch.randn(256, 32)
    print("accuracy", (model(x).argmax(-1) == teacher(x).argmax(-1)).float().mean().item())
print_digest(model, teacher, optimizer, scheduler.state_dict())
