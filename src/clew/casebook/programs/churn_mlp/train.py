"""Predict which customers leave. Settings are in config.toml."""

import argparse
import tomllib
from pathlib import Path

import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from churn.data import load
from churn.model import TabularMLP

ROOT = Path(__file__).parent
OPTIMIZERS = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def run_epoch(model, loader, optimizer=None):
    model.train(optimizer is not None)
    total, scores, targets = 0.0, [], []
    with torch.set_grad_enabled(optimizer is not None):
        for numbers, codes, target in loader:
            logits = model(numbers, codes)
            loss = F.binary_cross_entropy_with_logits(logits, target)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item() * len(target)
            scores.append(logits.detach())
            targets.append(target)
    scores, targets = torch.cat(scores), torch.cat(targets)
    return total / len(targets), roc_auc_score(targets.numpy(), scores.numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=ROOT / "config.toml")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    with open(args.config, "rb") as file:
        config = tomllib.load(file)
    seed = config["seed"] if args.seed is None else args.seed
    torch.manual_seed(seed)

    train_loader, val_loader, features = load(config, ROOT)
    model = TabularMLP(len(features.numeric), features.cardinalities, **config["model"])
    optim = config["optim"]
    optimizer = OPTIMIZERS[optim["name"]](model.parameters(), lr=optim["lr"], weight_decay=optim["weight_decay"])

    for epoch in range(1, optim["epochs"] + 1):
        train_loss, train_auc = run_epoch(model, train_loader, optimizer)
        val_loss, val_auc = run_epoch(model, val_loader)
        print(
            f"epoch {epoch:2d} | train loss {train_loss:.4f} auc {train_auc:.4f}"
            f" | val loss {val_loss:.4f} auc {val_auc:.4f}"
        )
    print(f"final val_auc={val_auc:.4f}")


if __name__ == "__main__":
    main()
