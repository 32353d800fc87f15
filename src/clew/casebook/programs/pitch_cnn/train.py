"""Hear the pitch of a note from 64 ms of sound."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader

from tones import Notes, fixed_set, seed_worker


class PitchNet(nn.Module):
    def __init__(self, channels=24, dropout=0.05):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, channels, 32, stride=4),
            nn.BatchNorm1d(channels),
            nn.ReLU(),
            nn.Conv1d(channels, 2 * channels, 8, stride=2),
            nn.BatchNorm1d(2 * channels),
            nn.ReLU(),
            nn.Conv1d(2 * channels, 2 * channels, 4, stride=2),
            nn.BatchNorm1d(2 * channels),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.LazyLinear(64), nn.ReLU(), nn.Dropout(dropout), nn.Linear(64, 1))

    def forward(self, waves):
        return self.head(self.features(waves)).squeeze(-1)


def train_epoch(model, loader, optimizer, scheduler):
    model.train()
    losses = []
    for waves, pitches in loader:
        loss = nn.functional.smooth_l1_loss(model(waves), pitches)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(model, waves, pitches):
    """The share of the pitch's variance that is heard, and the median error in semitones."""
    model.eval()
    guess = model(waves)
    r2 = 1 - (guess - pitches).pow(2).mean() / pitches.var()
    return r2.item(), 12 * (guess - pitches).abs().median().item()


def main(args):
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Notes(args.notes, args.seed),
        batch_size=args.batch_size,
        num_workers=args.workers,
        worker_init_fn=seed_worker,
    )
    waves, pitches = fixed_set(1000, seed=12345)
    model = PitchNet()
    model(waves[:2])
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    for epoch in range(args.epochs):
        loss = train_epoch(model, loader, optimizer, scheduler)
        r2, semitones = evaluate(model, waves, pitches)
        print(f"epoch {epoch + 1:2d}: loss {loss:.4f}, r2 {r2:.4f}, median error {semitones:.2f} semitones")
    print(f"final r2={r2:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--notes", type=int, default=1280)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-3)
    main(parser.parse_args())
