import json
from collections import Counter

import torch

UNKNOWN = 0


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class Vocabulary:
    def __init__(self, records, min_count):
        counts = Counter(word for record in records for word in record["text"].split())
        kept = sorted(word for word, count in counts.items() if count >= min_count)
        self.index = {word: i + 1 for i, word in enumerate(kept)}
        self.tags = sorted({tag for record in records for tag in record["tags"]})

    def __len__(self):
        return len(self.index) + 1

    def encode(self, record):
        tokens = torch.tensor([self.index.get(word, UNKNOWN) for word in record["text"].split()])
        target = torch.tensor([float(tag in record["tags"]) for tag in self.tags])
        return tokens, target


def collate(batch):
    """Bags of words laid end to end, as EmbeddingBag takes them."""
    tokens, targets = zip(*batch)
    lengths = torch.tensor([len(t) for t in tokens])
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])
    return torch.cat(tokens), offsets, torch.stack(targets)
