import torch
import torch.nn as nn


class Block(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.conv = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation)

    def forward(self, x):
        return x + self.conv(torch.relu(self.norm(x)))


class PulseNet(nn.Module):
    def __init__(self, samples, width):
        super().__init__()
        self.stem = nn.Conv1d(1, width, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*(Block(width, dilation) for dilation in (1, 2, 4)))
        self.squeeze = nn.Conv1d(width, 8, 1)
        self.head = nn.Sequential(nn.Linear(8 * (samples // 2), 64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, x):
        x = self.blocks(self.stem(x.unsqueeze(1)))
        return self.head(torch.relu(self.squeeze(x)).flatten(1))
