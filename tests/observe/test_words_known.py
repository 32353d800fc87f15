"""Texts of which a vocabulary knows hardly a word, and inputs of which one number honestly makes up most."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from loops_data import answer
from torch import Tensor, nn

from clew.observe.watches.words_known import WordsKnown

PAD, UNKNOWN, START, STOP = 0, 1, 2, 3


class Reader(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(words, 8), nn.Linear(8, 2)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.head(self.table(ids).mean(1))
        return out


def texts(words: int = 500, length: int = 24, known: float = 1.0, filled: bool = True, front: bool = False) -> Tensor:
    """Words with frequencies as of a language; the unknown ones have one number, and short rows are filled up."""
    draw = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(4, words).float()
    ids = 4 + torch.multinomial(share, 256 * length, True, generator=draw).view(256, length)
    ids[torch.rand(256, length, generator=draw) >= known] = UNKNOWN
    ids[:, 0] = START
    ids[torch.rand(256, length, generator=draw) < 0.08] = STOP
    if filled:
        for row, end in enumerate(torch.randint(4, length, (256,), generator=draw).tolist()):
            ids[row, end:] = PAD
    return ids.flip(1) if front else ids


def loop(ids: Tensor, words: int) -> Callable[[], None]:
    def run() -> None:
        model = Reader(words)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for at in range(0, 256, 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(ids[at : at + 32]), torch.arange(32) % 2).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run


def grid() -> Tensor:
    cells = torch.zeros(256, 64, dtype=torch.long)
    cells[:, ::9] = torch.randint(1, 5, (256, 8), generator=torch.Generator().manual_seed(0))
    return cells


def masked() -> Tensor:
    ids = texts(filled=False)
    ids[torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)) < 0.8] = UNKNOWN
    return ids


def short_rows(front: bool) -> Tensor:
    ids = texts(length=200, front=front)
    where = slice(None, -12) if front else slice(12, None)
    ids[:, where] = PAD
    return ids


KINDS: dict[str, tuple[Tensor, int, str]] = {
    "nothing is known": (texts(known=0.0), 500, "one_for_all"),
    "nothing is known and no row is filled up": (texts(known=0.0, filled=False), 500, "one_for_all"),
    "texts": (texts(), 500, "many"),
    "a third is unknown": (texts(known=0.65), 500, "many"),
    "most words are masked": (masked(), 500, "many"),
    "short rows are filled up": (short_rows(False), 500, "many"),
    "short rows are filled up in front": (short_rows(True), 500, "many"),
    "a grid that is mostly empty": (grid(), 8, "unclear"),
    "letters": (texts(words=40, known=0.0), 40, "unclear"),
    "a few words of a large vocabulary": (texts(words=16, filled=False), 30_000, "many"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_vocabularies(tmp_path: Any, kind: str) -> None:
    ids, words, outcome = KINDS[kind]
    told = answer(tmp_path, WordsKnown, loop(ids, words))
    assert told["outcome"] == outcome, told
