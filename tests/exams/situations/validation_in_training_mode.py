"""Digits with dropout and batch norm, validated after every epoch."""

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images / 16.0, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
train = TensorDataset(x[order[:1400]], y[order[:1400]])
val = TensorDataset(x[order[1400:]], y[order[1400:]])


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.criterion = nn.CrossEntropyLoss()

    def train_epoch(self, loader):
        self.model.train()
        for images, target in loader:
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(images), target)
            loss.backward()
            self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self, loader):
        right = total = 0
        for images, target in loader:
            right += (self.model(images).argmax(1) == target).sum().item()
            total += len(target)
        return right / total


net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Dropout(0.5),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Dropout(0.5),
    nn.Linear(64, 10),
)
trainer = Trainer(net)
for epoch in range(5):
    loss = trainer.train_epoch(DataLoader(train, batch_size=50, shuffle=True))
    print(f"epoch {epoch} loss {loss:.4f} val_acc {trainer.validate(DataLoader(val, batch_size=4)):.4f}")
