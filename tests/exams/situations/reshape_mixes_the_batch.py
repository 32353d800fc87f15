"""Classifies short series by the shape of their wave."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def waves(count, generator):
    kind = torch.randint(0, 3, (count,), generator=generator)
    t = torch.linspace(0, 6.283, 24)
    phase = 6.283 * torch.rand(count, 1, generator=generator)
    base = torch.sin(2 * t + phase)
    shaped = torch.stack([base, base.sign(), base.asin() / 1.571])[kind, torch.arange(count)]
    second = torch.stack([torch.roll(shaped, 3, 1), 0.5 * shaped], dim=2)
    return second + 0.15 * torch.randn(count, 24, 2, generator=generator), kind


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(2, 24, 5, padding=2), nn.ReLU(), nn.Conv1d(24, 24, 5, padding=2), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, series):  # batch, time, channel
        channels = series.permute(1, 0, 2).reshape(series.shape[0], 2, -1)
        return self.head(self.conv(channels).amax(2))


generator = torch.Generator().manual_seed(3)
train, val = TensorDataset(*waves(1500, generator)), TensorDataset(*waves(400, generator))
model = WaveNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    model.train()
    for series, kind in DataLoader(train, batch_size=50, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(series), kind)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = sum((model(series).argmax(1) == kind).sum().item() for series, kind in DataLoader(val, batch_size=50))
    print(f"epoch {epoch} loss {loss.item():.4f} val_acc {right / len(val):.4f}")
