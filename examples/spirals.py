"""Three spiral arms, told apart by a small network. It runs, the loss falls, and it learns worse than it should."""

import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def spirals(count: int, arms: int = 3) -> TensorDataset:
    labels = torch.arange(count) % arms
    radius = torch.rand(count) * 2
    angle = radius * 2.2 + labels * (2 * math.pi / arms) + 0.12 * torch.randn(count)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), labels)


class Classifier(nn.Module):
    def __init__(self, hidden: int = 64, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(hidden, classes), nn.Softmax(dim=1))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(points))


def main(epochs: int = 8) -> None:
    torch.manual_seed(0)
    train, held_out = random_split(spirals(1500), [1200, 300])
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        for points, labels in DataLoader(train, batch_size=50, shuffle=True):
            optimizer.zero_grad()
            loss = criterion(model(points), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            points, labels = next(iter(DataLoader(held_out, batch_size=300)))
            accuracy = (model(points).argmax(dim=1) == labels).float().mean().item()
        print(f"epoch {epoch}  loss {loss.item():.3f}  accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
