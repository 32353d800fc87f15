"""A sampler that evens the classes out, one that takes from the rare ones, and weights that have another purpose."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from loops_training import answers, text_at
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler
from weighed import first_finding

from clew.observe.watches.sampler_weights import SamplerWeights, by_class


class Rows(Dataset[Any]):
    def __init__(self, x: torch.Tensor, labels: list[str]) -> None:
        self.x, self.names = x, labels

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.names[index])


def trained(weigh: Any, kind: str = "tensors", classes: int = 2, steps: int = 4) -> None:
    torch.manual_seed(0)
    y = torch.cat([torch.full((400 // 4**number,), number) for number in range(classes)])
    y = y[torch.randperm(len(y))]
    x = torch.randn(len(y), 5) + y[:, None]
    data: Any = TensorDataset(x, y.float() if kind == "floats" else y)
    if kind == "names":
        data = Rows(x, [str(label) for label in y.tolist()])
    if kind == "part":
        data, y = Subset(data, list(range(100, len(y)))), y[100:]
    if kind == "generated":
        data = [(row, int(label)) for row, label in zip(x, y, strict=True)]
    weights = weigh(y)
    loader = DataLoader(data, batch_size=32, sampler=WeightedRandomSampler(weights, len(y)))
    model = nn.Linear(5, classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (rows, labels), _ in zip(loader, range(steps), strict=False):
        optimizer.zero_grad()
        F.cross_entropy(model(rows), labels.long()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def frequency(y: torch.Tensor) -> torch.Tensor:
    return torch.bincount(y)[y].double() / len(y)


def inverse(y: torch.Tensor) -> torch.Tensor:
    return 1.0 / torch.bincount(y)[y].double()


def root(y: torch.Tensor) -> torch.Tensor:
    return torch.bincount(y)[y].double().rsqrt()


def trust(y: torch.Tensor) -> torch.Tensor:
    """A few examples of either class are doubted."""
    return torch.where(torch.rand(len(y)) < 0.1, 0.2, 1.0)


def one_left_out(y: torch.Tensor) -> torch.Tensor:
    return (y != 1).double()


def all_alike(y: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(y))


@pytest.mark.parametrize("kind", ["tensors", "floats", "names", "part"])
@pytest.mark.parametrize("classes", [2, 3])
def test_weights_by_frequency_are_seen(tmp_path: Path, kind: str, classes: int) -> None:
    loop = partial(trained, frequency, kind=kind, classes=classes)
    answer = answers(tmp_path, loop, SamplerWeights)["sampler_weights"]
    assert answer["outcome"] == "rarer_still", answer
    assert "WeightedRandomSampler(weights" in text_at(answer)


@pytest.mark.parametrize(
    ("weigh", "kind", "outcome"),
    [
        (inverse, "tensors", "evens_out"),
        (inverse, "names", "evens_out"),
        (root, "floats", "evens_out"),
        (trust, "tensors", "unclear"),
        (one_left_out, "tensors", "unclear"),
        (all_alike, "tensors", "unclear"),
        (frequency, "generated", "unclear"),
    ],
)
def test_other_weights_are_not(tmp_path: Path, weigh: Any, kind: str, outcome: str) -> None:
    answer = answers(tmp_path, partial(trained, weigh, kind=kind), SamplerWeights)["sampler_weights"]
    assert answer["outcome"] == outcome, answer


def weighted(kind: str, turned: bool) -> None:
    torch.manual_seed(0)
    y = (torch.rand(600) < 0.2).long()
    x = torch.randn(600, 5) + y[:, None]
    share = torch.bincount(y).float() / len(y)
    model = nn.Linear(5, 1 if kind == "two" else 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in torch.arange(600).reshape(12, 50):
        optimizer.zero_grad()
        if kind == "two":
            given = share[1] / share[0] if turned else share[0] / share[1]
            loss = F.binary_cross_entropy_with_logits(model(x[part])[:, 0], y[part].float(), pos_weight=given)
        else:
            loss = F.cross_entropy(model(x[part]), y[part], weight=share if turned else 1 / share)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize("kind", ["classes", "two"])
@pytest.mark.parametrize(("turned", "outcome"), [(True, "weighs_less"), (False, "unclear")])
def test_weights_of_a_loss_that_are_turned_round(tmp_path: Path, kind: str, turned: bool, outcome: str) -> None:
    answer = answers(tmp_path, partial(weighted, kind, turned), SamplerWeights)["sampler_weights"]
    assert answer["outcome"] == outcome, answer
    if turned:
        assert "F." in text_at(answer)


@pytest.mark.parametrize(
    ("order", "power", "outcome"),
    [([3, 1, 0, 4, 2], 1.0, "weighs_less"), ([0, 1, 2, 3, 4], 1.0, "unclear"), ([3, 1, 0, 4, 2], 0.2, "unclear")],
)
def test_inverse_frequencies_of_other_classes(tmp_path: Path, order: list[int], power: float, outcome: str) -> None:
    def loop() -> None:
        torch.manual_seed(0)
        y = torch.arange(5).repeat_interleave(torch.tensor([40, 60, 300, 120, 480]))[torch.randperm(1000)]
        model, x = nn.Linear(5, 5), torch.randn(1000, 5)
        weight = (1 / torch.bincount(y).float()[order]) ** power
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for part in torch.arange(1000).reshape(10, 100):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), y[part], weight=weight).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    answer = answers(tmp_path, loop, SamplerWeights)["sampler_weights"]
    assert answer["outcome"] == outcome, answer


@pytest.mark.parametrize(("weigh", "causes"), [(frequency, ["data.class_imbalance"]), (inverse, [])])
def test_the_imbalance_is_named(tmp_path: Path, weigh: Any, causes: list[str]) -> None:
    assert first_finding(tmp_path, partial(trained, weigh))[1] == causes


@given(st.lists(st.integers(1, 40), min_size=2, max_size=6))
def test_inverse_weights_never_lower_the_rarest(sizes: list[int]) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    counts = np.bincount(labels).astype(float)
    evened, turned = by_class(labels, 1.0 / counts[labels]), by_class(labels, counts[labels])
    assert (evened is None) == (turned is None)
    if evened is not None and turned is not None:
        assert (evened.drawn >= evened.held, evened.along) == (True, False)
        assert (turned.drawn < turned.held, turned.along) == (True, True)
