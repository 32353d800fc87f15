"""Small subjects for the exams of the data: sound ones of many kinds, and what breaks them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clew.case.clues import answered
from clew.case.weigh import on_scale
from clew.exams.exam import find_exam
from clew.exams.sit import sit
from clew.exams.subject import Subject
from clew.knowledge import load
from clew.records.clue import Reading, Saw, Unclear

Pairs = list[tuple[Any, Any]]


def outcome(name: str, subject: Subject, limit: float = 60.0) -> str:
    """What the exam answers, in the words of the knowledge base; "unclear" is one of them."""
    exam = find_exam(name)
    answer = sit(exam, subject, limit).answer
    if isinstance(answer, Unclear):
        return "unclear"
    test = load().tests[exam.test]
    if isinstance(answer, Reading):
        assert test.scale is not None
        value = dict(answer.measured)[test.scale.of]
        assert isinstance(value, int | float)
        return on_scale(test.scale, float(value))
    clue = answered(test, answer.measured, answer.outcome, source="exam")
    assert clue.outcome == answer.outcome, f"{answer.outcome} is no outcome of {test.id}"
    return answer.outcome


def figures(name: str, subject: Subject) -> dict[str, Any]:
    answer = sit(find_exam(name), subject).answer
    assert isinstance(answer, Reading | Saw), answer
    return dict(answer.measured)


def why(name: str, subject: Subject) -> str:
    answer = sit(find_exam(name), subject).answer
    assert isinstance(answer, Unclear), answer
    return answer.why


def says(name: str, subject: Subject) -> str:
    answer = sit(find_exam(name), subject).answer
    assert isinstance(answer, Saw), answer
    return answer.says


def source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def cut(x: Any, y: Tensor | None, size: int = 32) -> Pairs:
    """Batches of a size; a part of the input may be a dict."""
    count = len(y) if y is not None else len(x)
    pick = (
        (lambda part, at: {k: v[at] for k, v in part.items()}) if isinstance(x, dict) else (lambda part, at: part[at])
    )
    spans = [slice(start, start + size) for start in range(0, count - size + 1, size)]
    return [(pick(x, span), y[span] if y is not None else None) for span in spans]


def shuffled(y: Tensor, seed: int = 7) -> Tensor:
    return y[torch.randperm(len(y), generator=source(seed))]


# --- data


def table(count: int = 256, features: int = 8, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Classes by a linear rule on several features, with noise."""
    torch.manual_seed(0)
    draws = source(seed)
    x = torch.randn(count, features, generator=draws)
    rule = torch.randn(features, classes, generator=source(99))
    return x, (x @ rule + 0.5 * torch.randn(count, classes, generator=draws)).argmax(1)


def rings(count: int = 256, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inside or outside of a circle: no straight line helps."""
    x = torch.randn(count, 2, generator=source(seed))
    return x, (x.norm(dim=1) > 1.18).long()


def line(count: int = 256, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 6, generator=source(seed))
    return x, (x @ torch.randn(6, 1, generator=source(98)) + 0.3 * torch.randn(count, 1, generator=source(seed + 1)))


def pictures(count: int = 128, classes: int = 4, side: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A bar whose direction and side give the class, at a random place, in noise."""
    draws = source(seed)
    y = torch.randint(0, classes, (count,), generator=draws)
    x = 0.3 * torch.randn(count, 1, side, side, generator=draws)
    for row in range(count):
        at = int(torch.randint(1, side // 2 - 1, (1,), generator=draws)) + (side // 2 if y[row] % 2 else 0)
        if y[row] < 2:
            x[row, 0, at, :] += 1.5
        else:
            x[row, 0, :, at] += 1.5
    return x, y


def sentences(count: int = 256, length: int = 10, words: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two topics that prefer different words."""
    draws = source(seed)
    y = torch.randint(0, 2, (count,), generator=draws)
    low, high = torch.randint(1, words, (2, count, length), generator=draws)
    prefer = torch.rand(count, length, generator=draws) < 0.5
    topical = torch.where(y[:, None] == 0, low % (words // 2), words // 2 + high % (words // 2)).clamp_min(1)
    return torch.where(prefer, topical, low), y


def text(count: int = 64, length: int = 12, words: int = 16, seed: int = 0) -> Tensor:
    """Sequences in which each token mostly decides the next."""
    draws = source(seed)
    rule = torch.randperm(words, generator=source(97))
    rows = torch.zeros(count, length + 1, dtype=torch.long)
    rows[:, 0] = torch.randint(0, words, (count,), generator=draws)
    for at in range(1, length + 1):
        free = torch.rand(count, generator=draws) < 0.2
        rows[:, at] = torch.where(free, torch.randint(0, words, (count,), generator=draws), rule[rows[:, at - 1]])
    return rows


# --- models


def mlp(inputs: int = 8, outputs: int = 3, width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs))


def cnn(classes: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * 36, classes),
    )


class Bagged(nn.Module):
    def __init__(self, words: int = 40, classes: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(words, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.table(tokens).mean(1))
        return out


class Small(nn.Module):
    """One block of attention over tokens; `causal` is what goes wrong."""

    def __init__(self, words: int = 16, length: int = 12, width: int = 16, causal: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.head = nn.Linear(width, words)
        self.causal = causal

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        q, k, v = self.mix(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if self.causal:
            later = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        out: Tensor = self.head(x + scores.softmax(-1) @ v)
        return out


class Recurrent(nn.Module):
    """Predicts each next vector of a float sequence."""

    def __init__(self, features: int = 3, both_ways: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRU(features, 12, batch_first=True, bidirectional=both_ways)
        self.head = nn.Linear(24 if both_ways else 12, features)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.cell(x)[0])
        return out


def by_token(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def trained(
    model: nn.Module, loss: Callable[[Any, Any], Tensor], batches: Iterable[tuple[Any, Any]], steps: int = 150
) -> nn.Module:
    held = list(batches)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x, y = held[step % len(held)]
        optimizer.zero_grad()
        loss(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


# --- subjects that have nothing wrong with them


def classifier(**more: Any) -> Subject:
    x, y = table(seed=1)
    return Subject(mlp(), nn.CrossEntropyLoss(), cut(*table()), val_batches=cut(x, y), **more)


def regressor() -> Subject:
    return Subject(mlp(6, 1), nn.MSELoss(), cut(*line()), val_batches=cut(*line(seed=5)))


def image_classifier() -> Subject:
    return Subject(cnn(), nn.CrossEntropyLoss(), cut(*pictures()), val_batches=cut(*pictures(64, seed=3)))


def text_classifier() -> Subject:
    return Subject(Bagged(), nn.CrossEntropyLoss(), cut(*sentences()), val_batches=cut(*sentences(seed=4)))


def language_model(causal: bool = True) -> Subject:
    rows = text(128)
    held = text(64, seed=2)
    return Subject(
        Small(causal=causal), by_token, cut(rows[:, :-1], rows[:, 1:]), val_batches=cut(held[:, :-1], held[:, 1:])
    )


def autoencoder() -> Subject:
    """No target: the loss compares with the inputs it is given along with the output."""

    class Auto(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp(8, 8, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.body(x), x

    x, _ = table()
    return Subject(Auto(), lambda output, _: F.mse_loss(*output), [(part, None) for part, _ in cut(x, None)])


def copying() -> Subject:
    """An autoencoder that is given its input as the target."""
    x, _ = table()
    return Subject(mlp(8, 8, 4), nn.MSELoss(), cut(x, x))


def lopsided() -> Subject:
    """A class of one in ten, that can be told."""
    x = torch.randn(320, 8, generator=source(3))
    y = (x[:, 0] + x[:, 1] + 0.5 * x[:, 2] > 1.9).long()
    return Subject(mlp(8, 2), nn.CrossEntropyLoss(), cut(x, y))


def tiny() -> Subject:
    """A single batch of eight."""
    x, y = table(8)
    return Subject(mlp(), nn.CrossEntropyLoss(), [(x, y)])


def binary() -> Subject:
    x, y = rings()
    return Subject(mlp(2, 1), nn.BCEWithLogitsLoss(), cut(x, y.float()[:, None]))


HEALTHY: dict[str, Callable[[], Subject]] = {
    "classifier": classifier,
    "regressor": regressor,
    "images": image_classifier,
    "tokens": text_classifier,
    "language model": language_model,
    "autoencoder": autoencoder,
    "copying": copying,
    "lopsided": lopsided,
    "tiny": tiny,
    "binary": binary,
}
