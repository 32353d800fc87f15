"""Sorts short messages by topic; the tokenised data set is cached beside the script."""

import hashlib
import json
import os

import torch
import torch.nn as nn

torch.manual_seed(0)
TOPICS = {
    "sport": "match goal team score win league coach".split(),
    "food": "bread soup salt oven taste spice dinner".split(),
    "travel": "train ticket border hotel map beach flight".split(),
}
COMMON = "the a of we it was very then after before".split()
CACHE = "tokens.json"


def messages(count, seed):
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        topic = int(torch.randint(0, 3, (1,), generator=generator))
        words = [*list(TOPICS.values())[topic], *COMMON]
        picked = torch.randint(0, len(words), (9,), generator=generator)
        rows.append((" ".join(words[i] for i in picked.tolist()), topic))
    return rows


def tokenised(rows, vocabulary):
    key = hashlib.sha256(json.dumps([rows, vocabulary]).encode()).hexdigest()
    if os.path.exists(CACHE):
        with open(CACHE) as file:
            held = json.load(file)
        if held["key"] == key:
            return torch.tensor(held["ids"])
    ids = [[vocabulary.index(word) for word in text.split()] for text, _ in rows]
    with open(CACHE, "w") as file:
        json.dump({"key": key, "ids": ids}, file)
    return torch.tensor(ids)


train = messages(1200, seed=11)
labels = torch.tensor([topic for _, topic in train])
vocabulary = sorted({word for text, _ in train for word in text.split()})
ids = tokenised(train, vocabulary)
model = nn.Sequential(
    nn.Embedding(len(vocabulary), 16), nn.Flatten(), nn.Linear(9 * 16, 32), nn.ReLU(), nn.Linear(32, 3)
)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    order = torch.randperm(len(ids))
    right = 0
    for start in range(0, len(order), 40):
        rows = order[start : start + 40]
        logits = model(ids[rows])
        loss = nn.functional.cross_entropy(logits, labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (logits.argmax(1) == labels[rows]).sum().item()
    print(f"epoch {epoch} loss {loss.item():.4f} train_acc {right / len(ids):.4f}")
