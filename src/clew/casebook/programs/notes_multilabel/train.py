"""Tag support notes: several tags per note, or none."""

import argparse
import json
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

from text import Vocabulary, collate, read

HERE = Path(__file__).parent


class Tagger(nn.Module):
    def __init__(self, n_words, n_tags, dim, hidden, dropout):
        super().__init__()
        self.bag = nn.EmbeddingBag(n_words, dim, mode="sum")
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, n_tags)
        )

    def forward(self, tokens, offsets):
        return self.mlp(self.bag(tokens, offsets))


def f1(hits, predicted, actual):
    return 2 * hits / max(1, predicted + actual)


def evaluate(model, loader, loss_fn, threshold):
    model.eval()
    hits = predicted = actual = 0
    total = 0.0
    with torch.no_grad():
        for tokens, offsets, target in loader:
            logits = model(tokens, offsets)
            total += loss_fn(logits, target).item() * len(target)
            guess = logits.sigmoid() > threshold
            hits += (guess & target.bool()).sum().item()
            predicted += guess.sum().item()
            actual += target.sum().item()
    return total / len(loader.dataset), f1(hits, predicted, actual)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", default=HERE / "config.json")
    args = parser.parse_args()
    config = json.loads(Path(args.config).read_text())
    torch.manual_seed(args.seed)

    train_records, val_records = read(HERE / "data/train.jsonl"), read(HERE / "data/val.jsonl")
    vocabulary = Vocabulary(train_records, config["min_count"])
    train_set = [vocabulary.encode(record) for record in train_records]
    val_set = [vocabulary.encode(record) for record in val_records]
    train_loader = DataLoader(train_set, config["batch_size"], shuffle=True, collate_fn=collate)
    val_loader = DataLoader(val_set, 250, collate_fn=collate)

    model = Tagger(len(vocabulary), len(vocabulary.tags), config["dim"], config["hidden"], config["dropout"])
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
    print(f"{len(vocabulary)} words, tags: {', '.join(vocabulary.tags)}")

    for epoch in range(config["epochs"]):
        model.train()
        total = 0.0
        for tokens, offsets, target in train_loader:
            loss = loss_fn(model(tokens, offsets), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(target)
        val_loss, val_f1 = evaluate(model, val_loader, loss_fn, config["threshold"])
        print(f"epoch {epoch + 1}: train {total / len(train_set):.4f}  val {val_loss:.4f}  micro-f1 {val_f1:.4f}")

    print(f"final val_f1={val_f1:.4f}")


if __name__ == "__main__":
    main()
