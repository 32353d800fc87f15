"""Find people, streets and towns in sentences."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from tagger.corpus import IGNORE, Encoder, collate, read_conll
from tagger.metrics import EntityF1
from tagger.model import TransformerTagger

DATA = Path(__file__).parent / "data"


def token_loss(logits, tags):
    return F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=IGNORE)


@torch.no_grad()
def evaluate(model, loader, names):
    model.eval()
    score, losses = EntityF1(), []
    for words, tags in loader:
        logits = model(words)
        losses.append(token_loss(logits, tags).item())
        for predicted, actual in zip(logits.argmax(-1), tags):
            kept = actual != IGNORE
            score.add([names[i] for i in predicted[kept]], [names[i] for i in actual[kept]])
    return sum(losses) / len(losses), score.value()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_sentences, dev_sentences = read_conll(DATA / "train.conll"), read_conll(DATA / "dev.conll")
    encoder = Encoder(train_sentences)
    train_loader = DataLoader(encoder.encode(train_sentences), args.batch_size, shuffle=True, collate_fn=collate)
    dev_loader = DataLoader(encoder.encode(dev_sentences), 125, collate_fn=collate)

    model = TransformerTagger(len(encoder.words) + 2, len(encoder.tags))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(1, args.epochs + 1):
        model.train()
        losses = []
        for words, tags in train_loader:
            loss = token_loss(model(words), tags)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        dev_loss, dev_f1 = evaluate(model, dev_loader, encoder.tags)
        print(f"epoch {epoch}: train_loss {sum(losses) / len(losses):.4f} dev_loss {dev_loss:.4f} dev_f1 {dev_f1:.4f}")
    print(f"final dev_f1={dev_f1:.4f}")


if __name__ == "__main__":
    main()
