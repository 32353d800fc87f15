"""Do the numbers that stand for words mean the same in training and in evaluation?

Counts how often each number enters the model on either side. Words of one language come with frequencies that differ
widely and are alike on both sides. Where each number by itself has another frequency, and the frequencies in order of
size are the same, the words are the same and were numbered in another way.

Why it matters: a cache that an older vocabulary made, or a second vocabulary for the validation set, feeds the model
words it never learned under numbers that it did.
Cannot tell: which of the two sides is wrong; a vocabulary of which a few words changed places.
Silent when: inputs are not numbers of words, too few of them were seen for the size of the vocabulary, nearly all words
are equally frequent, or the frequencies themselves differ: another domain, or text that the model wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.hooks import tensors_in
from clew.observe.watch import Answer, Forward, Judged, Saw
from clew.observe.watches._data_feed import FedWatch
from clew.observe.watches._data_given import Verdicts
from clew.observe.watches._data_names import TRAINING, called_here
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

    Counts = np.ndarray[Any, np.dtype[np.int64]]
    Key = tuple[int, str]

LARGEST, EACH = 200_000, 20_000
"""The largest number that may stand for a word, and how many numbers of one call are counted."""
FEWEST, KINDS, NOISE = 400, 10, 0.15
"""How many numbers and how many different ones there must be on either side, and how far apart chance may bring it."""
APART, NOT_IN_ORDER = 0.5, 0.35
"""The part of all words that have another number, and how much of it must be gone once both sides are put in order."""
MOST_KEYS = 32


class Looked(NamedTuple):
    counts: Counts
    rows: int
    called: str | None
    digest: int


class TokenCoding(FedWatch):
    test = "token_coding"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.verdicts = Verdicts()
        self.training: dict[int, Counts] = {}
        self.evaluation: dict[Key, Counts] = {}
        self.places: dict[Key, Place | None] = {}
        self.known: set[tuple[Key, int]] = set()

    def forward(self, event: Forward) -> None:
        super().forward(event)
        tokens = next((held for held in tensors_in(event.inputs, torch) if numbers_of_words(held)), None)
        if tokens is None:
            return
        values = tokens.detach().reshape(-1)[:EACH].cpu().numpy()
        if values.min() >= 0 and values.max() <= LARGEST:
            looked = Looked(np.bincount(values), tokens.shape[0], called_here(), hash(values.tobytes()))
            self.verdicts.push(event, looked)

    def judged(self, event: Judged) -> None:
        super().judged(event)
        held: Looked | None = self.verdicts.pop(event)
        if held is None:
            return
        if event.backward:
            self.places.setdefault((event.model, TRAINING), event.place)
            self._add(self.training, event.model, (event.model, TRAINING), held)
            return
        if not self.evaluates(event, held.called):
            return
        apart = self.apart()
        # Sets that go through one function as wholes are told apart by their lengths.
        key = (event.model, str(self.feed.behind) if apart else f"{event.place} {held.rows}")
        if key in self.evaluation or len(self.evaluation) < MOST_KEYS:
            self.places.setdefault(key, event.place)
            self._add(self.evaluation, key, key, held)

    def _add(self, kept: dict[Any, Counts], name: Any, key: Key, looked: Looked) -> None:
        if (key, looked.digest) in self.known:
            return
        self.known.add((key, looked.digest))
        before = kept.get(name, np.zeros(0, np.int64))
        size = max(len(before), len(looked.counts))
        kept[name] = np.pad(before, (0, size - len(before))) + np.pad(looked.counts, (0, size - len(looked.counts)))

    def read(self) -> Answer:
        looked = False
        for key, counts in self.evaluation.items():
            trained = self.training.get(key[0])
            if trained is None or min(counts.sum(), trained.sum()) < FEWEST or by_chance(trained, counts) > NOISE:
                continue
            looked = True
            apart, ordered = distances(trained, counts)
            if apart > APART and apart - ordered > NOT_IN_ORDER:
                says = (
                    f"{100 * apart:.0f} % of the words evaluated have another number than in training, in order of "
                    f"frequency {100 * ordered:.0f} %: there are two vocabularies"
                )
                places = dict.fromkeys((self.places.get(key), self.places.get((key[0], TRAINING))))
                saw = Saw("recoded", another_number=apart, in_order=ordered, words=int(counts.sum()))
                return saw.at(*(place for place in places if place is not None)).saying(says)
        return Saw("same") if looked else Unclear("too few numbers of words were seen in training and in evaluation")


def numbers_of_words(tensor: torch.Tensor) -> bool:
    whole = tensor.dtype in (torch.int64, torch.int32, torch.int16)
    return whole and tensor.dim() >= 2 and tensor.shape[1] > 1 and tensor.numel() > 0


def by_chance(one: Counts, other: Counts) -> float:
    """How far apart two samples of these sizes are when both are drawn with the frequencies of the first."""
    share = one / one.sum()
    spread = np.sqrt(share * (1 - share) * (1 / one.sum() + 1 / other.sum()))
    return 0.5 * float(np.sqrt(2 / np.pi) * spread.sum())


def distances(one: Counts, other: Counts) -> tuple[float, float]:
    """How far apart two sets of frequencies are, from 0 to 1, as they stand and each in order of size. The commonest
    number, which fills up short rows, is left out."""
    size = max(len(one), len(other))
    first, second = (np.pad(held, (0, size - len(held))).astype(float) for held in (one, other))
    first[int(one.argmax())] = second[int(one.argmax())] = 0.0
    if min(int((first > 0).sum()), int((second > 0).sum())) < KINDS or not first.sum() or not second.sum():
        return 0.0, 0.0
    first, second = first / first.sum(), second / second.sum()
    apart = 0.5 * float(np.abs(first - second).sum())
    return apart, 0.5 * float(np.abs(np.sort(first) - np.sort(second)).sum())
