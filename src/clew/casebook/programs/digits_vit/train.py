"""A small vision transformer on digits with bfloat16 autocast."""

import argparse
import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, TensorDataset


class PatchEmbedding(nn.Module):
    def __init__(self, patch, dim, tokens):
        super().__init__()
        self.project = nn.Conv2d(1, dim, kernel_size=patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, tokens + 1, dim) * 0.02)

    def forward(self, x):
        x = self.project(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        return x + self.positions


class Layer(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=40, depth=2, heads=4, dropout=0.1):
        super().__init__()
        self.embed = PatchEmbedding(2, dim, 16)
        self.layers = nn.Sequential(*[Layer(dim, heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.layers(self.embed(x))
        return self.head(self.norm(x[:, 0]))


class Trainer:
    def __init__(self, model, train_loader, val_loader, args):
        self.model, self.train_loader, self.val_loader, self.args = model, train_loader, val_loader, args
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, args.lr, epochs=args.epochs, steps_per_epoch=len(train_loader), pct_start=0.2
        )

    def autocast(self):
        if self.args.precision == "bf16":
            return torch.autocast("cpu", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def train_epoch(self):
        self.model.train()
        seen = total = 0.0
        for images, labels in self.train_loader:
            self.optimizer.zero_grad()
            with self.autocast():
                loss = F.cross_entropy(self.model(images), labels, label_smoothing=0.05)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.scheduler.step()
            total += loss.item() * len(labels)
            seen += len(labels)
        return total / seen

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        hits = seen = 0
        for images, labels in self.val_loader:
            with self.autocast():
                logits = self.model(images)
            hits += (logits.argmax(1) == labels).sum().item()
            seen += len(labels)
        return hits / seen

    def fit(self):
        for epoch in range(1, self.args.epochs + 1):
            train_loss = self.train_epoch()
            val_acc = self.evaluate()
            print(
                f"epoch {epoch:2d} loss {train_loss:.4f} val_acc {val_acc:.4f} lr {self.scheduler.get_last_lr()[0]:.2e}"
            )
        return val_acc


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    digits = load_digits()
    x_train, x_val, y_train, y_val = train_test_split(
        digits.images, digits.target, test_size=0.2, stratify=digits.target, random_state=7
    )
    x_train, x_val = (torch.tensor(x, dtype=torch.float32).unsqueeze(1) for x in (x_train, x_val))
    mean, std = x_train.mean(), x_train.std()
    train_set = TensorDataset((x_train - mean) / std, torch.tensor(y_train))
    val_set = TensorDataset((x_val - mean) / std, torch.tensor(y_val))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 180)

    val_acc = Trainer(ViT(), train_loader, val_loader, args).fit()
    print(f"final val_acc={val_acc:.4f}")


if __name__ == "__main__":
    main()
