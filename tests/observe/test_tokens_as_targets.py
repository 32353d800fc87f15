"""The watch that compares the targets of a sequence model with its tokens."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_data import answer
from torch import Tensor, nn

from clew.observe.watches.tokens_as_targets import TokensAsTargets

WORDS = 11


class Reader(nn.Module):
    """A small language model; given targets it works out its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.places = nn.Embedding(12, 8)
        self.body = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, WORDS)

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> Any:
        states, _ = self.body(self.words(ids) + self.places(torch.arange(ids.shape[1])))
        scores = self.head(states)
        return scores if targets is None else F.cross_entropy(scores.flatten(0, 1), targets.flatten())


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, WORDS)

    def forward(self, source: Tensor, before: Tensor) -> Tensor:
        held = self.head(self.words(source).mean(1, keepdim=True) + self.words(before))
        assert isinstance(held, Tensor)
        return held


def train(of: Callable[[Tensor], tuple[Tensor, Tensor]], inside: bool = False) -> None:
    model = Reader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        ids, targets = of(torch.randint(WORDS, (4, 10)))
        if inside:
            loss = model(ids, targets)
        else:
            loss = F.cross_entropy(model(ids).transpose(1, 2), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def copied(turned: bool = False, shifted: bool = True) -> None:
    model = Translator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        ids = torch.randint(WORDS, (4, 10))
        wanted = ids.flip(1) if turned else ids
        before = torch.cat([torch.zeros(4, 1, dtype=torch.long), wanted[:, :-1]], 1) if shifted else wanted
        loss = F.cross_entropy(model(ids, before).transpose(1, 2), wanted)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def masked(ids: Tensor) -> tuple[Tensor, Tensor]:
    hidden = torch.rand(ids.shape) < 0.3
    return ids.masked_fill(hidden, 0), ids.masked_fill(~hidden, -100)


@pytest.mark.parametrize("inside", [False, True])
def test_a_forgotten_shift_is_seen(tmp_path: Any, inside: bool) -> None:
    told = answer(tmp_path, TokensAsTargets, lambda: train(lambda ids: (ids[:, :-1], ids[:, :-1]), inside))
    assert told["outcome"] == "same"
    assert told["where"][0]["line"]


@pytest.mark.parametrize(
    "loop",
    [
        lambda: train(lambda ids: (ids[:, :-1], ids[:, 1:])),
        lambda: train(lambda ids: (ids[:, :-1], ids[:, 1:]), True),
        lambda: train(lambda ids: (ids, F.pad(ids[:, 1:], (0, 1), value=-100))),
        lambda: train(masked),
        lambda: train(lambda ids: (ids, (ids + 1) % WORDS)),
        copied,
        lambda: copied(turned=True),
    ],
    ids=["shifted", "inside", "padded", "masked", "tags", "encoder and decoder", "another sequence"],
)
def test_other_targets_pass(tmp_path: Any, loop: Callable[[], None]) -> None:
    assert answer(tmp_path, TokensAsTargets, loop)["outcome"] == "others"


def test_a_decoder_that_is_fed_what_it_is_asked_for(tmp_path: Any) -> None:
    told = answer(tmp_path, TokensAsTargets, lambda: copied(turned=True, shifted=False))
    assert told["outcome"] == "fed_target"
    assert told["where"][0]["line"]


def test_rows_that_repeat_one_token_cannot_tell(tmp_path: Any) -> None:
    told = answer(tmp_path, TokensAsTargets, lambda: train(lambda ids: (ids * 0, ids * 0)))
    assert told["outcome"] == "unclear"
