"""Learn click-through rates online: every mini-batch of the log is scored first and learned from afterwards."""

import argparse
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

from stream import FIELDS, RecentScores, Reservoir, batches


class ClickModel(nn.Module):
    def __init__(self, buckets, size=8, hidden=32):
        super().__init__()
        self.bias = nn.Embedding(buckets, 1)
        self.table = nn.Embedding(buckets, size)
        self.mlp = nn.Sequential(
            nn.Linear(len(FIELDS) * size + 1, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )
        nn.init.zeros_(self.bias.weight)
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, ids, numbers):
        vectors = self.table(ids)
        pairs = 0.5 * (vectors.sum(1).pow(2) - vectors.pow(2).sum(1)).sum(1)
        deep = self.mlp(torch.cat([vectors.flatten(1), numbers], dim=1)).squeeze(1)
        return self.bias(ids).sum((1, 2)) + pairs + deep


class OnlineLearner:
    def __init__(self, model, lr, replay):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        self.reservoir = Reservoir(capacity=4000)
        self.replay = replay

    @torch.no_grad()
    def score(self, ids, numbers):
        self.model.eval()
        return self.model(ids, numbers).sigmoid()

    def learn(self, ids, numbers, clicked):
        self.model.train()
        self.reservoir.add((ids, numbers, clicked))
        old_ids, old_numbers, old_clicked = self.reservoir.draw(self.replay)
        logits = self.model(torch.cat([ids, old_ids]), torch.cat([numbers, old_numbers]))
        loss = F.binary_cross_entropy_with_logits(logits, torch.cat([clicked, old_clicked]))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--log", type=Path, default=Path(__file__).parent / "data" / "log.csv")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--replay", type=int, default=64)
    parser.add_argument("--buckets", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--recent", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    learner = OnlineLearner(ClickModel(args.buckets), args.lr, args.replay)
    recent = RecentScores(args.recent)
    for step, (ids, numbers, clicked) in enumerate(batches(args.log, args.batch_size, args.buckets), 1):
        recent.add(learner.score(ids, numbers), clicked)
        loss = learner.learn(ids, numbers, clicked)
        auc = recent.auc()
        if step % 75 == 0:
            print(f"step {step:4d}  loss {loss:.4f}  auc of the last {args.recent} batches {auc:.4f}")

    print(f"final auc={auc:.4f}")


if __name__ == "__main__":
    main()
