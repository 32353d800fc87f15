"""Two-column files: a word and its tag per line, sentences parted by empty lines."""

import torch
from torch.nn.utils.rnn import pad_sequence

PAD, UNKNOWN = 0, 1
IGNORE = -100


def read_conll(path):
    sentences, words, tags = [], [], []
    with open(path) as file:
        for line in file:
            if line.strip():
                word, tag = line.split()
                words.append(word)
                tags.append(tag)
            elif words:
                sentences.append((words, tags))
                words, tags = [], []
    if words:
        sentences.append((words, tags))
    return sentences


class Encoder:
    def __init__(self, sentences):
        self.words = {w: i + 2 for i, w in enumerate(sorted({w for words, _ in sentences for w in words}))}
        self.tags = sorted({tag for _, tags in sentences for tag in tags})

    def encode(self, sentences):
        return [
            (
                torch.tensor([self.words.get(word, UNKNOWN) for word in words]),
                torch.tensor([self.tags.index(tag) for tag in tags]),
            )
            for words, tags in sentences
        ]


def collate(batch):
    words, tags = zip(*batch)
    return (
        pad_sequence(list(words), batch_first=True, padding_value=PAD),
        pad_sequence(list(tags), batch_first=True, padding_value=IGNORE),
    )
