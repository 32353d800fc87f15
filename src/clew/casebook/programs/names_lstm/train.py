"""Guess the region of a place name from its letters."""

import argparse
import random
import string
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

ALPHABET = {letter: i + 1 for i, letter in enumerate(string.ascii_lowercase)}


def read_names(folder):
    files = sorted(Path(folder).glob("*.txt"))
    categories = [path.stem for path in files]
    pairs = [(line, label) for label, path in enumerate(files) for line in path.read_text().split()]
    return pairs, categories


def to_tensor(name):
    return torch.tensor([ALPHABET[letter] for letter in name])


def iterate(pairs, batch_size, shuffle):
    order = list(range(len(pairs)))
    if shuffle:
        random.shuffle(order)
    for start in range(0, len(order), batch_size):
        chosen = [pairs[i] for i in order[start : start + batch_size]]
        names = [to_tensor(name) for name, _ in chosen]
        lengths = torch.tensor([len(name) for name in names])
        labels = torch.tensor([label for _, label in chosen])
        yield pad_sequence(names, batch_first=True), lengths, labels


class NameLSTM(nn.Module):
    def __init__(self, n_letters, n_classes, embed=24, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(n_letters, embed, padding_idx=0)
        self.lstm = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(2 * hidden, n_classes)

    def forward(self, letters, lengths):
        packed = pack_padded_sequence(self.embedding(letters), lengths, batch_first=True, enforce_sorted=False)
        _, (hidden, _) = self.lstm(packed)
        return self.output(self.dropout(torch.cat([hidden[0], hidden[1]], dim=1)))


def evaluate(model, pairs):
    model.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for letters, lengths, labels in iterate(pairs, 128, shuffle=False):
            logits = model(letters, lengths)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += (logits.argmax(dim=-1) == labels).sum().item()
    return loss / len(pairs), correct / len(pairs)


def main(args):
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    pairs, categories = read_names(args.data)
    random.Random(0).shuffle(pairs)
    cut = int(0.8 * len(pairs))
    train_pairs, val_pairs = pairs[:cut], pairs[cut:]
    print(f"{len(train_pairs)} names for training, {len(val_pairs)} held out, categories {categories}")

    model = NameLSTM(len(ALPHABET) + 1, len(categories))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        total = 0.0
        for letters, lengths, labels in iterate(train_pairs, args.batch_size, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(letters, lengths), labels)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        val_loss, val_acc = evaluate(model, val_pairs)
        print(f"epoch {epoch} train_loss {total / len(train_pairs):.4f} val_loss {val_loss:.4f} val_acc {val_acc:.4f}")
    print(f"final val_acc={val_acc:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=Path(__file__).parent / "data")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
