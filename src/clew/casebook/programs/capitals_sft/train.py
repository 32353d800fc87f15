"""Fine-tune the base model to answer questions about capitals; only the answer counts in the loss."""

import argparse
import json
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from model import TinyLM, lm_loss
from tokenizer import BOS, EOS, PAD, SEP, encode

DATA = Path(__file__).parent / "data"
IGNORE_INDEX = -100


class Pairs(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = [self.tokenize(json.loads(line)) for line in file]

    @staticmethod
    def tokenize(row):
        prompt = [BOS, *encode(row["prompt"]), SEP]
        answer = [*encode(row["answer"]), EOS]
        return prompt + answer, [IGNORE_INDEX] * len(prompt) + answer

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    longest = max(len(ids) for ids, _ in rows)
    input_ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [IGNORE_INDEX] * (longest - len(labels)) for _, labels in rows])
    return {"input_ids": input_ids, "labels": labels}


@torch.no_grad()
def evaluate(model, loader):
    """Mean loss per answer token, and the share of answers that are right in every token."""
    model.eval()
    total = tokens = exact = count = 0
    for batch in loader:
        logits = model(batch["input_ids"])
        kept = batch["labels"][:, 1:] != IGNORE_INDEX
        total += lm_loss(logits, batch["labels"]).item() * kept.sum().item()
        tokens += kept.sum().item()
        right = (logits[:, :-1].argmax(-1) == batch["labels"][:, 1:]) | ~kept
        exact += right.all(1).sum().item()
        count += len(right)
    return total / tokens, exact / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", type=Path, default=DATA / "base.pt")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--freeze-embeddings", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    model = TinyLM()
    model.load_state_dict(torch.load(args.base, weights_only=True))
    if args.freeze_embeddings:
        model.tokens.requires_grad_(False)

    train_loader = DataLoader(Pairs(DATA / "pairs.jsonl"), args.batch_size, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Pairs(DATA / "pairs_val.jsonl"), 125, collate_fn=collate)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.lr, weight_decay=0.01)
    steps = args.epochs * len(train_loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / 20, max(0.0, 1 - s / steps)))

    val_loss, exact = evaluate(model, val_loader)
    print(f"before: val_loss {val_loss:.4f} exact {exact:.4f}")
    for epoch in range(args.epochs):
        model.train()
        losses = []
        for batch in train_loader:
            loss = lm_loss(model(batch["input_ids"]), batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
        val_loss, exact = evaluate(model, val_loader)
        print(
            f"epoch {epoch + 1}: train_loss {sum(losses) / len(losses):.4f} val_loss {val_loss:.4f} exact {exact:.4f}"
        )
    print(f"final val_exact={exact:.4f}")


if __name__ == "__main__":
    main()
