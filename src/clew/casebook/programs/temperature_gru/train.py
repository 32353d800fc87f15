"""Forecast tomorrow's temperature from the last two weeks with a GRU."""

import argparse
import tomllib
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from windows import load

ROOT = Path(__file__).parent


class Forecaster(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.gru = nn.GRU(inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        states, _ = self.gru(x)
        return self.head(states[:, -1]).squeeze(-1)


@torch.no_grad()
def rmse(model, loader):
    model.eval()
    squared = persistence = 0.0
    for x, y in loader:
        squared += (model(x) - y).pow(2).sum().item()
        persistence += (x[:, -1, 0] - y).pow(2).sum().item()
    n = len(loader.dataset)
    return (squared / n) ** 0.5, (persistence / n) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, default=ROOT / "config.toml")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    config = tomllib.loads(args.config.read_text())
    torch.manual_seed(args.seed)

    train_set, val_set, degrees = load(ROOT, config)
    train_loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=256)
    model = Forecaster(train_set.values.shape[1], config["hidden"])
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.85)

    for epoch in range(config["epochs"]):
        model.train()
        losses = []
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        error, naive = rmse(model, val_loader)
        print(
            f"epoch {epoch + 1:2d}: train mse {sum(losses) / len(losses):.4f}"
            f", val rmse {error * degrees:.3f} degrees (persistence {naive * degrees:.3f})"
        )

    print(f"final skill={1 - error / naive:.4f}")


if __name__ == "__main__":
    main()
