"""Forecast daily sales per shop and product one week ahead."""

import argparse
import math
import tomllib
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from demand.features import build
from demand.model import DemandNet
from demand.split import Standardizer, by_date, to_dataset

ROOT = Path(__file__).parent


def make_scheduler(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train_one_epoch(model, loader, criterion, optimizer, scheduler):
    model.train()
    total = 0.0
    for numbers, ids, target in loader:
        loss = criterion(model(numbers, ids), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item() * len(target)
    return total / len(loader.dataset)


@torch.no_grad()
def predict(model, loader):
    model.eval()
    return torch.cat([model(numbers, ids) for numbers, ids, _ in loader]).expm1().numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=ROOT / "config.toml")
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    config = tomllib.loads(args.config.read_text())
    data, training = config["data"], config["training"]
    torch.manual_seed(config["seed"] if args.seed is None else args.seed)

    frame, columns = build(ROOT / data["path"], data["lags"], data["windows"], data["horizon"])
    train, test = by_date(frame, data["train_until"])
    standardizer = Standardizer(columns).fit(train)
    train_set = to_dataset(train, standardizer, "log_units")
    test_set = to_dataset(test, standardizer, "log_units")
    train_loader = DataLoader(train_set, batch_size=training["batch_size"], shuffle=True)
    test_loader = DataLoader(test_set, batch_size=1024)
    print(f"{len(train)} days for training, {len(test)} for testing, {len(columns)} columns")

    model = DemandNet(len(columns), frame["shop_id"].nunique(), frame["product_id"].nunique(), **config["model"])
    criterion = nn.MSELoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=training["lr"], weight_decay=training["weight_decay"])
    steps = training["epochs"] * len(train_loader)
    scheduler = make_scheduler(optimizer, training["warmup_steps"], steps)
    naive = (frame.loc[test.index, "lag_7"].map(math.expm1) - test["units"]).abs().mean()

    for epoch in range(training["epochs"]):
        loss = train_one_epoch(model, train_loader, criterion, optimizer, scheduler)
        error = (predict(model, test_loader) - test["units"]).abs().mean()
        print(f"epoch {epoch + 1:2d}  train loss {loss:.4f}  test mae {error:.3f} units (last week {naive:.3f})")

    print(f"final skill={1 - error / naive:.4f}")


if __name__ == "__main__":
    main()
