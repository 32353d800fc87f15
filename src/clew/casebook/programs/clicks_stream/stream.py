"""The log as a stream of mini-batches, and what is kept of the recent past."""

import csv
import math
import zlib
from collections import deque

import torch

FIELDS = ("user", "ad", "site", "hour")


def bucket(text, buckets):
    return zlib.crc32(text.encode()) % buckets


def encode(row, buckets):
    """One of `buckets` rows of the embedding table for each field, and the time on the page."""
    ids = [bucket(f"{field}={row[field]}", buckets) for field in FIELDS]
    return torch.tensor(ids), torch.tensor([(math.log(float(row["seconds_on_page"])) - 3.0) / 0.8])


def batches(path, size, buckets):
    with open(path, newline="") as file:
        rows = []
        for row in csv.DictReader(file):
            rows.append(row)
            if len(rows) == size:
                yield collate(rows, buckets)
                rows = []


def collate(rows, buckets):
    ids, numbers = zip(*(encode(row, buckets) for row in rows))
    clicked = torch.tensor([float(row["clicked"]) for row in rows])
    return torch.stack(ids), torch.stack(numbers), clicked


class RecentScores:
    """Scores and outcomes of the last mini-batches."""

    def __init__(self, length):
        self.scores, self.outcomes = deque(maxlen=length), deque(maxlen=length)

    def add(self, scores, outcomes):
        self.scores.append(scores)
        self.outcomes.append(outcomes)

    def auc(self):
        scores, outcomes = torch.cat(list(self.scores)), torch.cat(list(self.outcomes))
        ranks = scores.argsort().argsort().float() + 1
        positive = outcomes > 0.5
        n, m = positive.sum(), (~positive).sum()
        return ((ranks[positive].sum() - n * (n + 1) / 2) / (n * m)).item()


class Reservoir:
    """A fixed number of past examples, each as likely to be in it as any other."""

    def __init__(self, capacity):
        self.capacity, self.seen, self.items = capacity, 0, []

    def add(self, batch):
        for item in zip(*batch):
            self.seen += 1
            if len(self.items) < self.capacity:
                self.items.append(item)
            else:
                at = int(torch.randint(self.seen, ()))
                if at < self.capacity:
                    self.items[at] = item

    def draw(self, count):
        picked = torch.randint(len(self.items), (count,)).tolist()
        return tuple(torch.stack(part) for part in zip(*(self.items[i] for i in picked)))
