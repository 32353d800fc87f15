"""A transformer of two blocks."""

import torch
import torch.nn.functional as F
from torch import nn

from numerals.data import LENGTH, LETTERS

WIDTH, HEADS = 32, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm(x))
        return x + self.narrow(F.gelu(self.wide(self.second_norm(x))))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.project(x).view(rows, length, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ value
        return self.merge(mixed.transpose(1, 2).reshape(rows, length, WIDTH))


class Writer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS))
        for table in (self.letters, self.places, self.head):
            nn.init.normal_(table.weight, std=0.1)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        hidden = self.letters(letters) + self.places.weight[: letters.shape[1]]
        return self.head(self.norm(self.blocks(hidden)))


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=-100)
