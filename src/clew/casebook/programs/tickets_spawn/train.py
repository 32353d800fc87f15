"""Route support tickets to departments. Trains with one process per worker on this machine."""

import argparse
import csv
import os
import random
from collections import Counter

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

DEPARTMENTS = ["account", "billing", "device", "network", "orders", "staff"]
PAD, UNK = 0, 1


def read_rows(path):
    with open(path, newline="") as f:
        return [(row["text"].split(), DEPARTMENTS.index(row["department"])) for row in csv.DictReader(f)]


def build_vocab(rows):
    counts = Counter(word for words, _ in rows for word in words)
    return {word: i + 2 for i, (word, _) in enumerate(sorted(counts.items()))}


class Tickets(Dataset):
    def __init__(self, rows, vocab, drop_words=0.0):
        self.rows, self.vocab, self.drop_words = rows, vocab, drop_words

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        words, label = self.rows[i]
        ids = [self.vocab.get(word, UNK) for word in words if random.random() >= self.drop_words]
        return torch.tensor(ids or [UNK]), label


def pad_batch(items):
    texts, labels = zip(*items)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD), torch.tensor(labels)


class Router(nn.Module):
    def __init__(self, vocab_size, dim=48, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim, padding_idx=PAD)
        self.score = nn.Linear(dim, 1)
        self.head = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(hidden, len(DEPARTMENTS)),
        )

    def forward(self, tokens):
        x = self.embed(tokens)
        weights = self.score(torch.tanh(x)).squeeze(-1).masked_fill(tokens == PAD, float("-inf")).softmax(1)
        return self.head((weights.unsqueeze(-1) * x).sum(1))


def init_weights(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def make_loaders(args, rank, world_size):
    train_rows, val_rows = read_rows("data/train.csv"), read_rows("data/val.csv")
    vocab = build_vocab(train_rows)
    train_set = Tickets(train_rows, vocab, drop_words=args.drop_words)
    val_set = Tickets(val_rows, vocab)
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True, seed=args.seed)
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size // world_size, sampler=sampler, collate_fn=pad_batch, drop_last=True
    )
    val_loader = DataLoader(val_set, batch_size=200, collate_fn=pad_batch)
    return train_loader, val_loader, sampler, len(vocab) + 2


def train_epoch(ddp_model, loader, criterion, optimizer):
    ddp_model.train()
    running = 0.0
    for tokens, labels in loader:
        optimizer.zero_grad()
        loss = criterion(ddp_model(tokens), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(ddp_model.parameters(), 5.0)
        optimizer.step()
        running += loss.item()
    return running / len(loader)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = total = 0
    for tokens, labels in loader:
        hits += (model(tokens).argmax(1) == labels).sum().item()
        total += len(labels)
    return hits / total


def worker(rank, world_size, args):
    dist.init_process_group("gloo", init_method=f"file://{args.rendezvous}", rank=rank, world_size=world_size)
    torch.set_num_threads(1)
    seed_everything(args.seed)

    train_loader, val_loader, sampler, vocab_size = make_loaders(args, rank, world_size)
    model = Router(vocab_size)
    init_weights(model)
    ddp_model = DistributedDataParallel(model)
    seed_everything(args.seed + 1000 * rank)
    optimizer = torch.optim.AdamW(ddp_model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=6, gamma=0.5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(ddp_model, train_loader, criterion, optimizer)
        scheduler.step()
        if rank == 0:
            val_acc = validate(model, val_loader)
            print(f"epoch {epoch:2d}: loss {loss:.4f}, val_acc {val_acc:.4f}", flush=True)
        dist.barrier()

    if rank == 0:
        print(f"final val_acc={val_acc:.4f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world-size", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--batch-size", type=int, default=32, help="over all processes")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--drop-words", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.rendezvous = os.path.abspath(f".rendezvous-{os.getpid()}")
    try:
        mp.spawn(worker, args=(args.world_size, args), nprocs=args.world_size)
    finally:
        if os.path.exists(args.rendezvous):
            os.remove(args.rendezvous)


if __name__ == "__main__":
    main()
