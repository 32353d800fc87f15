"""Sentiment of short reviews with a transformer encoder."""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, UNK = 0, 1


@dataclass
class Config:
    dim: int = 32
    heads: int = 4
    layers: int = 2
    max_len: int = 64
    dropout: float = 0.1
    batch_size: int = 40
    epochs: int = 6
    lr: float = 3e-3
    warmup: int = 30
    seed: int = 0


class Reviews(Dataset):
    def __init__(self, path, vocab=None):
        records = [json.loads(line) for line in Path(path).read_text().splitlines()]
        if vocab is None:
            words = sorted({word for record in records for word in record["text"].split()})
            vocab = {word: i + 2 for i, word in enumerate(words)}
        self.vocab = vocab
        self.items = [
            (torch.tensor([vocab.get(word, UNK) for word in record["text"].split()]), record["label"])
            for record in records
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    tokens, labels = zip(*batch)
    return pad_sequence(tokens, batch_first=True, padding_value=PAD), torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, vocab_size, cfg):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, cfg.dim, padding_idx=PAD)
        self.positions = nn.Parameter(0.02 * torch.randn(cfg.max_len, cfg.dim))
        layer = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, 2 * cfg.dim, cfg.dropout, batch_first=True, norm_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.dim)
        self.head = nn.Linear(cfg.dim, 2)

    def forward(self, tokens):
        padding = tokens == PAD
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        x = self.norm(self.encoder(x, src_key_padding_mask=padding))
        kept = (~padding).unsqueeze(-1)
        return self.head((x * kept).sum(1) / kept.sum(1))


def evaluate(model, loader, criterion):
    model.eval()
    loss = hits = 0.0
    with torch.no_grad():
        for tokens, labels in loader:
            logits = model(tokens)
            loss += criterion(logits, labels).item() * len(labels)
            hits += (logits.argmax(-1) == labels).sum().item()
    return loss / len(loader.dataset), hits / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    for name, value in asdict(Config()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    cfg = Config(**vars(parser.parse_args()))
    torch.manual_seed(cfg.seed)

    folder = Path(__file__).parent / "data"
    train_set = Reviews(folder / "train.jsonl")
    val_set = Reviews(folder / "val.jsonl", vocab=train_set.vocab)
    train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(val_set, 100, collate_fn=collate)

    model = Classifier(len(train_set.vocab) + 2, cfg)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    total_steps = cfg.epochs * len(train_loader)

    def schedule(step):
        if step < cfg.warmup:
            return (step + 1) / cfg.warmup
        return max(0.05, (total_steps - step) / (total_steps - cfg.warmup))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)

    for epoch in range(cfg.epochs):
        model.train()
        running = 0.0
        for tokens, labels in train_loader:
            loss = criterion(model(tokens), labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            running += loss.item() * len(labels)
        val_loss, val_acc = evaluate(model, val_loader, criterion)
        print(
            f"epoch {epoch + 1} train_loss {running / len(train_set):.4f} val_loss {val_loss:.4f} val_acc {val_acc:.4f}"
        )
    print(f"final val_acc={val_acc:.4f}")


if __name__ == "__main__":
    main()
