"""Digits with a group-normalised CNN, trained with micro-batches to an effective batch of 128."""

import argparse
import math

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GroupNorm(8, 32),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def lr_at(step, total, peak, warmup):
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    return 0.5 * peak * (1 + math.cos(math.pi * progress))


def accuracy(model, x, y):
    model.eval()
    with torch.inference_mode():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--epochs", type=int, default=16)
    p.add_argument("--micro-batch", type=int, default=32)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--lr", type=float, default=3e-3)
    opt = p.parse_args()

    torch.manual_seed(opt.seed)
    rng = np.random.default_rng(opt.seed)

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    images = torch.tensor(digits.images[order], dtype=torch.float32).unsqueeze(1)
    target = torch.tensor(digits.target[order])
    n_val = 400
    x_val, y_val = images[:n_val], target[:n_val]
    x_train, y_train = images[n_val:], target[n_val:]
    mean, std = x_train.mean(), x_train.std()
    x_train, x_val = (x_train - mean) / std, (x_val - mean) / std

    model = build_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt.lr, weight_decay=0.01)
    effective = opt.micro_batch * opt.accumulate
    updates_per_epoch = len(x_train) // effective
    total_updates = updates_per_epoch * opt.epochs
    update = 0

    for epoch in range(opt.epochs):
        model.train()
        shuffled = torch.from_numpy(rng.permutation(len(x_train)))
        epoch_loss = 0.0
        for i in range(updates_per_epoch):
            for group in optimizer.param_groups:
                group["lr"] = lr_at(update, total_updates, opt.lr, warmup=10)
            optimizer.zero_grad(set_to_none=True)
            for j in range(opt.accumulate):
                start = i * effective + j * opt.micro_batch
                pick = shuffled[start : start + opt.micro_batch]
                loss = nn.functional.cross_entropy(model(x_train[pick]), y_train[pick])
                (loss / opt.accumulate).backward()
                epoch_loss += loss.item() / opt.accumulate
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            update += 1
        val_acc = accuracy(model, x_val, y_val)
        print(f"epoch={epoch} updates={update} train_loss={epoch_loss / updates_per_epoch:.4f} val_acc={val_acc:.4f}")

    print(f"final val_acc={val_acc:.4f}")


if __name__ == "__main__":
    main()
