"""Do the numbers that stand for words mean the same in training and in evaluation?

Counts how often each number enters the model on either side. Words of one language come with frequencies that differ
widely and are alike on both sides. Where each number by itself has another frequency, and the frequencies in order of
size are the same, the words are the same and were numbered in another way. A model that was loaded from what the
trained one saved counts as that one.

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
from clew.observe.watches._training_values import real
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder
    from clew.records.place import Place

    Counts = np.ndarray[Any, np.dtype[np.int64]]
    Shares = np.ndarray[Any, np.dtype[np.float64]]
    Key = tuple[int, str]

LARGEST, EACH = 200_000, 20_000
"""The largest number that may stand for a word, and how many numbers of one call are counted."""
FEWEST, KINDS, NOISE = 400, 10, 0.15
"""How many numbers and how many different ones there must be on either side, and how far apart chance may bring it."""
APART, NOT_IN_ORDER = 0.5, 0.35
"""The part of all words that have another number, and how much of it must be gone once both sides are put in order."""
MOST_KEYS = 32
TENSORS, VALUES, IN_COMMON = 2, 4096, 0.5
"""How many of the largest weights are held against those of a trained model, and how much of their direction must be
the same."""


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
        self.stands_for: dict[int, int] = {}  # a model only evaluated -> the trained one that it was loaded from

    def forward(self, event: Forward) -> None:
        super().forward(event)
        tokens = next((held for held in tensors_in(event.inputs, torch) if numbers_of_words(held)), None)
        if tokens is None:
            return
        self._loaded(event)
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
        model = self.stands_for.get(event.model, event.model)
        # Sets that go through one function as wholes are told apart by their lengths.
        key = (model, str(self.feed.behind) if apart else f"{event.place} {held.rows}")
        if key in self.evaluation or len(self.evaluation) < MOST_KEYS:
            self.places.setdefault(key, event.place)
            self._add(self.evaluation, key, key, held)

    def _loaded(self, event: Forward) -> None:
        """Which trained model this one was made from: asked once, while both are there."""
        if event.grad or event.model in self.training or event.model in self.stands_for:
            return
        trained = ((number, held) for number, held in self.recorder.live_models() if number in self.training)
        found = (number for number, held in trained if made_from(event.module, held))
        self.stands_for[event.model] = next(found, event.model)

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
                    f"{100 * apart:.0f} % of the evaluated words have another number than in training, in "
                    f"order of frequency {100 * ordered:.0f} %: two vocabularies are in use"
                )
                places = dict.fromkeys((self.places.get(key), self.places.get((key[0], TRAINING))))
                saw = Saw("recoded", another_number=apart, in_order=ordered, words=int(counts.sum()))
                return saw.at(*(place for place in places if place is not None)).saying(says)
        return Saw("same") if looked else Unclear("too few word ids were seen in training and in evaluation")


def numbers_of_words(tensor: torch.Tensor) -> bool:
    whole = tensor.dtype in (torch.int64, torch.int32, torch.int16)
    return whole and tensor.dim() >= 2 and tensor.shape[1] > 1 and tensor.numel() > 0


def made_from(module: torch.nn.Module, trained: torch.nn.Module) -> bool:
    """Whether the weights began as those of the other: a checkpoint of it, an average, a copy. Two networks that were
    drawn apart have nothing in common, however alike they are built."""
    weights, others = (list(held.parameters()) for held in (module, trained))
    if type(module) is not type(trained) or [held.shape for held in weights] != [held.shape for held in others]:
        return False
    pairs = sorted(zip(weights, others, strict=True), key=lambda pair: -pair[0].numel())[:TENSORS]
    for one, other in pairs:
        first, second = real(one, VALUES), real(other, VALUES)
        if first is None or second is None:
            return False
        if float(torch.nn.functional.cosine_similarity(first.cpu().double(), second.cpu().double(), dim=0)) < IN_COMMON:
            return False
    return bool(pairs)


def by_chance(one: Counts, other: Counts) -> float:
    """How far apart two samples of these sizes are when both are drawn with the frequencies of the first."""
    share = one / one.sum()
    spread = np.sqrt(share * (1 - share) * (1 / one.sum() + 1 / other.sum()))
    return 0.5 * float(np.sqrt(2 / np.pi) * spread.sum())


def distances(one: Counts, other: Counts) -> tuple[float, float]:
    """How far apart two sets of frequencies are, from 0 to 1, as they stand and each in order of size. The commonest
    number, which fills up short rows, is left out: in order that of either side, as they stand whichever brings the
    sides nearest, since rows of one length need none."""
    size = max(len(one), len(other))
    first, second = (np.pad(held, (0, size - len(held))).astype(float) for held in (one, other))
    fillers = int(one.argmax()), int(other.argmax())
    own = _without(first, fillers[0]), _without(second, fillers[1])
    if any(held is None or int((held > 0).sum()) < KINDS for held in own):
        return 0.0, 0.0
    pairs = [own, *((_without(first, filler), _without(second, filler)) for filler in fillers)]
    apart = min(_half(one, other) for one, other in pairs if one is not None and other is not None)
    in_order = [np.sort(held) for held in own if held is not None]
    return apart, _half(*in_order)


def _without(counts: Shares, number: int) -> Shares | None:
    """The shares of all other numbers."""
    kept = counts.copy()
    kept[number] = 0.0
    return kept / kept.sum() if kept.sum() else None


def _half(one: Shares, other: Shares) -> float:
    return 0.5 * float(np.abs(one - other).sum())
