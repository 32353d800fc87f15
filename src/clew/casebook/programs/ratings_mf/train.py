"""Matrix factorisation of film ratings; the latest ratings are held out."""

import argparse
import os

import pandas as pd
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from recommender import Factorization

HERE = os.path.dirname(os.path.abspath(__file__))


def load(path, held_out):
    table = pd.read_csv(path).sort_values("day", kind="stable")
    users = sorted(table["user"].unique())
    films = sorted(table["film"].unique())
    table["u"] = table["user"].map({name: i for i, name in enumerate(users)})
    table["f"] = table["film"].map({name: i for i, name in enumerate(films)})
    cut = int(len(table) * (1 - held_out))
    return table.iloc[:cut], table.iloc[cut:], len(users), len(films)


def to_dataset(table):
    return TensorDataset(
        torch.tensor(table["u"].to_numpy()),
        torch.tensor(table["f"].to_numpy()),
        torch.tensor(table["stars"].to_numpy(), dtype=torch.float32),
    )


parser = argparse.ArgumentParser()
parser.add_argument("--ratings", default=os.path.join(HERE, "data", "ratings.csv"))
parser.add_argument("--rank", type=int, default=4)
parser.add_argument("--epochs", type=int, default=14)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--weight-decay", type=float, default=1e-4)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)

train_table, val_table, n_users, n_films = load(args.ratings, held_out=0.15)
average = float(train_table["stars"].mean())
train_loader = DataLoader(to_dataset(train_table), batch_size=128, shuffle=True)
val_loader = DataLoader(to_dataset(val_table), batch_size=1000)
baseline = float(((val_table["stars"] - average) ** 2).mean() ** 0.5)
print(f"{n_users} users, {n_films} films, {len(train_table)} ratings; predicting the average gives rmse {baseline:.4f}")

model = Factorization(n_users, n_films, args.rank, average)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 11], gamma=0.3)

for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for users, films, stars in train_loader:
        loss = F.mse_loss(model(users, films), stars)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(stars)
    scheduler.step()

    model.eval()
    squared = 0.0
    with torch.no_grad():
        for users, films, stars in val_loader:
            squared += F.mse_loss(model(users, films), stars, reduction="sum").item()
    val_rmse = (squared / len(val_table)) ** 0.5
    print(f"epoch {epoch + 1:2d}  train rmse {(total / len(train_table)) ** 0.5:.4f}  val rmse {val_rmse:.4f}")

print(f"final val_rmse={val_rmse:.4f}")
