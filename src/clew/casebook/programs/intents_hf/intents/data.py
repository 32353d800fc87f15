import csv

import torch
from torch.utils.data import Dataset


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class WordTokenizer:
    pad, unknown, cls = 0, 1, 2

    def __init__(self, texts):
        self.vocabulary = {word: i + 3 for i, word in enumerate(sorted({w for text in texts for w in text.split()}))}

    def __len__(self):
        return len(self.vocabulary) + 3

    def __call__(self, text):
        return [self.cls] + [self.vocabulary.get(word, self.unknown) for word in text.split()]


class Utterances(Dataset):
    def __init__(self, rows, tokenizer, labels):
        self.items = [{"input_ids": tokenizer(row["text"]), "labels": labels.index(row["intent"])} for row in rows]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    longest = max(len(item["input_ids"]) for item in items)
    ids = torch.full((len(items), longest), WordTokenizer.pad)
    mask = torch.zeros(len(items), longest, dtype=torch.long)
    for row, item in enumerate(items):
        length = len(item["input_ids"])
        ids[row, :length] = torch.tensor(item["input_ids"])
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([item["labels"] for item in items])}
