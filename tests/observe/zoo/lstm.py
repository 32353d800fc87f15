"""Sequence labelling with packed, padded sequences; validation steers the learning rate; the best weights are kept."""

import copy
import random

import numpy as np
import torch
from common import print_digest, seed_all
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

PAD = -100


def make(n):
    """Tag every symbol by whether it is larger than the one before."""
    out = []
    for _ in range(n):
        x = np.random.randint(1, 10, size=random.randint(5, 15))
        out.append((torch.from_numpy(x).long(), torch.from_numpy(np.diff(x, prepend=0) > 0).long()))
    return out


def collate(batch):
    lengths = torch.tensor([len(x) for x, _ in batch])
    x = pad_sequence([x for x, _ in batch], batch_first=True)
    y = pad_sequence([y for _, y in batch], batch_first=True, padding_value=PAD)
    return x, y, lengths


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 16, padding_idx=0)
        self.lstm = nn.LSTM(16, 24, num_layers=2, dropout=0.1, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(out)


seed_all(3)
train_loader = torch.utils.data.DataLoader(make(256), batch_size=32, shuffle=True, collate_fn=collate)
val_loader = torch.utils.data.DataLoader(make(64), batch_size=64, collate_fn=collate)
model = Tagger()
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
best, best_state = float("inf"), None

for epoch in range(4):
    model.train()
    for x, y, lengths in train_loader:
        optimizer.zero_grad()
        logits = model(x, lengths)
        loss = criterion(logits.reshape(-1, 2), y.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
    model.eval()
    with torch.inference_mode():
        val = sum(criterion(model(x, n).transpose(1, 2), y).item() for x, y, n in val_loader) / len(val_loader)
    scheduler.step(val)
    if val < best:
        best, best_state = val, copy.deepcopy(model.state_dict())
    print(f"[{epoch}] loss={loss.item():.4f} val={val:.4f} lr={optimizer.param_groups[0]['lr']:g}")

model.load_state_dict(best_state)
print_digest(model, optimizer, scheduler.state_dict())
