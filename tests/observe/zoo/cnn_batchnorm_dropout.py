"""A small image classifier: batch norm, dropout, SGD with momentum, step schedule, evaluation per epoch."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import print_digest, seed_all
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.dropout = nn.Dropout(0.25)
        self.fc = nn.Linear(16 * 4 * 4, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(self.dropout(x.flatten(1)))


def shapes(n, generator):
    """Bright bars at four angles on a noisy ground."""
    y = torch.randint(0, 4, (n,), generator=generator)
    x = 0.3 * torch.randn(n, 1, 16, 16, generator=generator)
    for i, label in enumerate(y.tolist()):
        k = int(torch.randint(3, 12, (1,), generator=generator))
        if label == 0:
            x[i, 0, k, :] += 1.5
        elif label == 1:
            x[i, 0, :, k] += 1.5
        elif label == 2:
            x[i, 0] += 1.5 * torch.eye(16)
        else:
            x[i, 0] += 1.5 * torch.eye(16).flip(0)
    return TensorDataset(x, y)


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(dim=1) == y).sum().item()
    return correct / len(loader.dataset)


def main():
    seed_all(0)
    data = torch.Generator().manual_seed(1)
    train_loader = DataLoader(shapes(512, data), batch_size=64, shuffle=True)
    test_loader = DataLoader(shapes(128, data), batch_size=128)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    for epoch in range(4):
        loss = train(model, train_loader, optimizer)
        scheduler.step()
        print(f"epoch {epoch}: train loss {loss:.4f}, test accuracy {evaluate(model, test_loader):.3f}")
    print_digest(model, optimizer, scheduler.state_dict())


if __name__ == "__main__":
    main()
