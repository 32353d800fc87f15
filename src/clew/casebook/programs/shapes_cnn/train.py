"""Classify small shape images with a convolutional network."""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

DATA = Path(__file__).parent / "data"


class Shapes(Dataset):
    def __init__(self, path, mean, std, augment=False):
        stored = np.load(path)
        pixels = torch.from_numpy(stored["images"]).float().unsqueeze(1) / 255.0
        self.images = (pixels - mean) / std
        self.labels = torch.from_numpy(stored["labels"])
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            padded = F.pad(image, (1, 1, 1, 1), mode="replicate")
            top, left = torch.randint(0, 3, (2,)).tolist()
            image = padded[:, top : top + 16, left : left + 16]
        return image, self.labels[index]


class ShapeNet(nn.Module):
    def __init__(self, num_classes=5, width=12):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(2 * width * 4 * 4, 64)
        self.fc2 = nn.Linear(64, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = self.dropout(x.flatten(1))
        return self.fc2(F.relu(self.fc1(x)))


def pixel_statistics(path):
    images = np.load(path)["images"] / 255.0
    return float(images.mean()), float(images.std())


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for images, labels in loader:
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(labels)
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total, correct = 0.0, 0
    for images, labels in loader:
        logits = model(images)
        total += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += (logits.argmax(1) == labels).sum().item()
    return total / len(loader.dataset), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    mean, std = pixel_statistics(DATA / "train.npz")
    train_set = Shapes(DATA / "train.npz", mean, std, augment=True)
    val_set = Shapes(DATA / "val.npz", mean, std)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=200)

    model = ShapeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    for epoch in range(args.epochs):
        train_loss = train_one_epoch(model, train_loader, optimizer)
        val_loss, val_acc = evaluate(model, val_loader)
        scheduler.step()
        print(
            f"[{epoch + 1}/{args.epochs}] train loss {train_loss:.4f} | val loss {val_loss:.4f} | val acc {val_acc:.3f}"
        )
    print(f"final val_acc={val_acc:.4f}")


if __name__ == "__main__":
    main()
