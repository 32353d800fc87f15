"""Tell six birds apart by features of their song."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn

from features import load_features

ROOT = Path(__file__).parent


@dataclass
class Options:
    recordings: Path = ROOT / "data" / "recordings.npz"
    table: Path = ROOT / "data" / "clips.csv"
    cache: Path = ROOT / "cache" / "features.npz"
    hidden: int = 64
    lr: float = 0.1
    momentum: float = 0.9
    batch_size: int = 50
    epochs: int = 20
    seed: int = 0


def load(options):
    features = load_features(options.recordings, options.cache)
    table = pd.read_csv(options.table)
    names = sorted(table["species"].unique())
    labels = table["species"].map(names.index).to_numpy()
    train = (table["split"] == "train").to_numpy()
    mean, std = features[train].mean(0), features[train].std(0)
    scaled = (features - mean) / std

    def tensors(rows):
        return torch.from_numpy(scaled[rows]), torch.from_numpy(labels[rows])

    return tensors(train), tensors(~train), names


def accuracy_by_class(model, x, y, n_classes):
    model.eval()
    with torch.no_grad():
        predicted = model(x).argmax(1)
    return [(predicted[y == k] == k).float().mean().item() for k in range(n_classes)]


def train(options):
    torch.manual_seed(options.seed)
    (x_train, y_train), (x_test, y_test), names = load(options)
    model = nn.Sequential(
        nn.Linear(x_train.shape[1], options.hidden),
        nn.BatchNorm1d(options.hidden),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(options.hidden, len(names)),
    )
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=options.momentum, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=options.epochs, power=0.9)
    for epoch in range(options.epochs):
        model.train()
        total = 0.0
        for rows in torch.randperm(len(x_train)).split(options.batch_size):
            optimizer.zero_grad()
            loss = loss_fn(model(x_train[rows]), y_train[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        scheduler.step()
        per_class = accuracy_by_class(model, x_test, y_test, len(names))
        print(f"epoch {epoch + 1:2d}: loss {total / len(x_train):.4f}, test balanced accuracy {np.mean(per_class):.4f}")
    print("  ".join(f"{name} {value:.2f}" for name, value in zip(names, per_class)))
    return float(np.mean(per_class))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=Options.epochs)
    given = parser.parse_args()
    score = train(Options(seed=given.seed, epochs=given.epochs))
    print(f"final balanced_acc={score:.4f}")
