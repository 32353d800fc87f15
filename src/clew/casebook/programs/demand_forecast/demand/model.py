import torch
import torch.nn as nn


class DemandNet(nn.Module):
    """Logarithm of the units that are sold."""

    def __init__(self, n_numbers, n_shops, n_products, embedding, hidden, dropout):
        super().__init__()
        self.shop = nn.Embedding(n_shops, embedding)
        self.product = nn.Embedding(n_products, embedding)
        blocks, width = [], n_numbers + 2 * embedding
        for size in hidden:
            blocks.append(nn.Sequential(nn.Linear(width, size), nn.LayerNorm(size), nn.ReLU(), nn.Dropout(dropout)))
            width = size
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, ids):
        x = torch.cat([numbers, self.shop(ids[:, 0]), self.product(ids[:, 1])], dim=1)
        return self.head(self.blocks(x)).squeeze(1)
