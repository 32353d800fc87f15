import torch
import torch.nn as nn


class TabularMLP(nn.Module):
    """Embeddings for categories, joined with the numbers."""

    def __init__(self, n_numeric, cardinalities, embedding=4, hidden=(64, 32), dropout=0.1):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(levels, embedding) for levels in cardinalities])
        width = n_numeric + embedding * len(cardinalities)
        blocks = []
        for size in hidden:
            blocks += [nn.Linear(width, size), nn.ReLU(), nn.Dropout(dropout)]
            width = size
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, codes):
        embedded = [table(codes[:, i]) for i, table in enumerate(self.embeddings)]
        return self.head(self.blocks(torch.cat([numbers, *embedded], dim=1))).squeeze(1)
