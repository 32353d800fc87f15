"""Learn digit features without labels; judge them by nearest neighbours."""

import argparse

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch.utils.data import DataLoader, TensorDataset

from augment import place, view
from losses import NTXent


class Encoder(nn.Module):
    def __init__(self, features=64, projection=32):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, features, 3, padding=1),
            nn.BatchNorm2d(features),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )
        self.projector = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, projection))

    def forward(self, x):
        return self.projector(self.backbone(x))


@torch.no_grad()
def knn_accuracy(model, x_train, y_train, x_test, y_test):
    model.eval()
    knn = KNeighborsClassifier(5, metric="cosine")
    knn.fit(model.backbone(x_train).numpy(), y_train)
    return knn.score(model.backbone(x_test).numpy(), y_test)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--temperature", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    images = place(images, size=12, generator=torch.Generator().manual_seed(0))
    # A few labelled neighbours, many unlabelled images.
    x_train, x_test, y_train, y_test = train_test_split(images, labels, test_size=0.25, stratify=labels, random_state=1)
    labelled = torch.randperm(len(x_train), generator=torch.Generator().manual_seed(0))[:200]
    judge = (x_train[labelled], y_train[labelled.numpy()], x_test, y_test)

    loader = DataLoader(TensorDataset(x_train), args.batch_size, shuffle=True, drop_last=True)
    model = Encoder()
    criterion = NTXent(args.temperature)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    print(f"untrained: knn_acc {knn_accuracy(model, *judge):.4f}")
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for (batch,) in loader:
            loss = criterion(model(view(batch)), model(view(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        accuracy = knn_accuracy(model, *judge)
        print(f"epoch {epoch + 1:2d} nt_xent {total / len(loader):.4f} knn_acc {accuracy:.4f}")
    print(f"final knn_acc={accuracy:.4f}")


if __name__ == "__main__":
    main()
