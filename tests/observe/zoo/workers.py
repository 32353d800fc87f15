"""A DataLoader with two worker processes that augment with the generators of numpy, torch and the standard library."""

import random

import numpy as np
import torch
import torch.nn as nn
from common import print_digest, seed_all
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __init__(self, n, augment):
        rng = np.random.default_rng(0 if augment else 1)
        self.labels = rng.integers(0, 3, size=n)
        self.centres = np.array([[-2, 0], [2, 0], [0, 2]], dtype=np.float32)
        self.points = self.centres[self.labels] + rng.normal(0, 0.6, size=(n, 2)).astype(np.float32)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        point = self.points[i]
        if self.augment:
            point = point + np.random.normal(0, 0.1, size=2).astype(np.float32)
            if random.random() < 0.5:
                point = point * np.float32(1.05)
            return torch.from_numpy(point) + 0.05 * torch.randn(2), int(self.labels[i])
        return torch.from_numpy(point), int(self.labels[i])


def seed_worker(_worker_id):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


def main():
    seed_all(42)
    options = {"batch_size": 32, "num_workers": 2, "worker_init_fn": seed_worker, "persistent_workers": True}
    train = DataLoader(Blobs(512, augment=True), shuffle=True, **options)
    test = DataLoader(Blobs(128, augment=False), batch_size=64)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(3):
        model.train()
        total = 0.0
        for x, y in train:
            loss = loss_fn(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        model.eval()
        with torch.no_grad():
            hits = sum((model(x).argmax(1) == y).sum().item() for x, y in test)
        print(f"Epoch: {epoch} Loss: {total / len(train.dataset):.5f} Acc: {hits / len(test.dataset):.4f}")
    print_digest(model, optimizer)


if __name__ == "__main__":
    main()
