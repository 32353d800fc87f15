"""Are the words of the inputs looked up in the vocabulary, or do nearly all of them become one and the same number?

Counts what goes into each large table of embeddings during training, row by row. What fills up short rows stands at
their beginning or their end and is left out.

Why it matters: a vocabulary that spells words in another way than the text does (capitals, prefixes, whole words
against pieces) answers "unknown" to nearly every word. Rows still differ in length and punctuation, so that the loss
falls a little and nothing fails.
Cannot tell: why words are unknown; unknown words that make up less than most of a text.
Silent when: the vocabulary is small, as of grids, letters and events; a good part of it is in use; no number makes up
most of the inputs; or so few were seen that this may be by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from clew.observe.watch import Answer, ModuleCall, Saw, Watch
from clew.records.clue import Unclear

if TYPE_CHECKING:
    from clew.observe.recorder import Recorder

SMALL, TABLES = 100, 8
ROWS, LENGTH = 64, 4
"""Rows that are counted of one call, and the length from which on they are taken for texts."""
ENOUGH = 2000
FILLER = 0.98
"""Of the rows that hold a number: where it stands at one end of as many, and nowhere else, it fills them up."""
MOST, USED = 0.6, 0.05
"""The part of all words that one number makes up, and the part of the vocabulary that is in use."""


class Counted:
    def __init__(self, size: int) -> None:
        self.counts = np.zeros(size, np.int64)
        self.holding = np.zeros(size, np.int64)  # rows in which a number stands
        self.at_ends = np.zeros(size, np.int64)  # rows in which it stands at one end only, in one stretch
        self.rows = 0

    def add(self, ids: Any) -> None:
        self.rows += len(ids)
        self.counts += np.bincount(ids.reshape(-1), minlength=len(self.counts))
        for row in ids:
            kinds, first, count = np.unique(row, return_index=True, return_counts=True)
            last = len(row) - 1 - np.unique(row[::-1], return_index=True)[1]
            stretch = (last - first + 1 == count) & ((first == 0) | (last == len(row) - 1)) & (count > 1)
            self.holding[kinds[count > 1]] += 1
            self.at_ends[kinds[stretch]] += 1

    def words(self) -> Any:
        """How often each number stands for a word, without what fills up rows."""
        fills = (self.at_ends > 0) & (self.at_ends >= FILLER * self.holding)
        return np.where(fills, 0, self.counts)


class WordsKnown(Watch):
    test = "words_known"

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.tables: dict[tuple[int, str], Counted] = {}

    def module(self, event: ModuleCall) -> None:
        if event.evaluation or not isinstance(event.module, nn.Embedding) or event.module.num_embeddings < SMALL:
            return
        ids = event.inputs[0] if event.inputs else None
        if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[1] < LENGTH or ids.is_floating_point():
            return
        key = (event.model, event.name)
        if key not in self.tables and len(self.tables) >= TABLES:
            return
        values = ids[:ROWS].detach().cpu().numpy()
        size = event.module.num_embeddings
        if values.size and values.min() >= 0 and values.max() < size:
            self.tables.setdefault(key, Counted(size)).add(values)

    def read(self) -> Answer:
        looked = False
        for (_, name), held in self.tables.items():
            words = held.words()
            total = int(words.sum())
            if total < ENOUGH:
                continue
            looked = True
            top = int(words.argmax())
            share, used = float(words[top]) / total, int((held.counts > 0).sum())
            if share > MOST and used < USED * len(words):
                says = (
                    f"{share:.0%} of what {name or 'the embedding'} looks up is id {top}, and {used} of "
                    f"its {len(words)} numbers occur at all: nearly every word maps to the same one"
                )
                return Saw("one_for_all", share=share, number=top, used=used, of=len(words)).saying(says)
        return Saw("many") if looked else Unclear("no text lookup in a large vocabulary was seen")
