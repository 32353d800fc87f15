import torch.nn as nn

from pricing.models.base import Regressor


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 2 * width)
        self.fc2 = nn.Linear(2 * width, width)
        self.act = nn.GELU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.fc2(self.act(self.fc1(self.norm(x)))))


class ResidualMLP(Regressor):
    def __init__(self, inputs, width, blocks, dropout):
        super().__init__(width)
        self.stem = nn.Linear(inputs, width)
        self.blocks = nn.ModuleList([Block(width, dropout) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)

    def features(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)
