"""Watches that look at what stays the same when it should change, or changes when it should stay."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from loops_training import Loop, answers, mlp
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from clew.observe.watches.evaluation_classes import EvaluationClasses, renamed
from clew.observe.watches.evaluation_inputs import EvaluationInputs
from clew.observe.watches.event_order import EventOrder
from clew.observe.watches.scheduler_steps import SchedulerSteps
from clew.observe.watches.weight_init import WeightInit


def data(rows: int = 160, seed: int = 0) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    x = torch.randn(rows, 6)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 1).long()


def micro_batches(clear: str, line: str = "one") -> None:
    x, y = data()
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for start in range(0, 160, 16):
        if clear == "once":
            optimizer.zero_grad()
        for part in (0, 4, 8):
            if clear == "each":
                optimizer.zero_grad()
            rows = slice(start + part, start + part + 4)
            F.cross_entropy(model(x[rows]), y[rows]).backward()
        if line == "two":  # what a second network leaves behind is cleared on purpose
            optimizer.zero_grad()
            F.cross_entropy(model(x[:4]), y[:4]).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(micro_batches, "each"), "zeroed_before_step"),
        (partial(micro_batches, "once"), "usual"),
        (partial(micro_batches, "once", "two"), "usual"),
    ],
)
def test_clearing_between_the_batches_of_one_step(tmp_path: Path, loop: Loop, outcome: str) -> None:
    held = answers(tmp_path, loop, EventOrder)["event_order"]
    assert held["outcome"] == outcome


class Factors(nn.Module):
    def __init__(self, start: float) -> None:
        super().__init__()
        self.users, self.films = nn.Embedding(20, 4), nn.Embedding(30, 4)
        self.bias = nn.Embedding(20, 1)
        nn.init.normal_(self.users.weight, std=start) if start else nn.init.zeros_(self.users.weight)
        nn.init.zeros_(self.films.weight)

    def forward(self, user: Tensor, film: Tensor) -> Tensor:
        product: Tensor = (self.users(user) * self.films(film)).sum(-1)
        bias: Tensor = self.bias(user).squeeze(-1)
        return product + bias


def factors(start: float) -> None:
    torch.manual_seed(0)
    model = Factors(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(12):
        user, film = torch.randint(0, 20, (32,)), torch.randint(0, 30, (32,))
        optimizer.zero_grad()
        F.mse_loss(model(user, film), (user * film).float() / 300).backward()
        optimizer.step()


@pytest.mark.parametrize(("start", "stuck"), [(0.0, True), (0.1, False)])
def test_tables_that_both_begin_at_zero_stay_there(tmp_path: Path, start: float, stuck: bool) -> None:
    held = answers(tmp_path, partial(factors, start), WeightInit)["weight_init"]
    assert (held["outcome"] == "identical") == stuck
    if stuck:
        assert held["measured"]["layer"] == "users.weight"


class Views(Dataset[Any]):
    """`random` is what makes one example look different every time."""

    def __init__(self, random: bool, labels_too: bool = False) -> None:
        self.x, self.y = data(64, seed=1)
        self.random, self.labels_too = random, labels_too

    def __len__(self) -> int:
        return 64

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(6) if self.random else torch.zeros(6)
        return self.x[row] + noise, self.y[row] + (torch.randint(0, 2, ()) if self.labels_too else 0)


def evaluated(held_out: Dataset[Any], epochs: int = 4) -> None:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    training = DataLoader(TensorDataset(*data()), batch_size=32, shuffle=True)
    validation = DataLoader(held_out, batch_size=32)
    for _ in range(epochs):
        model.train()
        for x, y in training:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in validation:
                (model(x).argmax(1) == y).float().mean()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(evaluated, Views(random=True)), "vary"),
        (partial(evaluated, Views(random=False)), "fixed"),
        (partial(evaluated, Views(random=True, labels_too=True)), "unclear"),
        (partial(evaluated, Views(random=True), epochs=1), "unclear"),
    ],
)
def test_inputs_of_an_evaluation(tmp_path: Path, loop: Loop, outcome: str) -> None:
    held = answers(tmp_path, loop, EvaluationInputs)["evaluation_inputs"]
    assert held["outcome"] == outcome


def reordered() -> None:
    """A held-out set that fits in one batch and comes in another order each time."""
    torch.manual_seed(0)
    x, y = torch.randn(60, 8), torch.arange(60) % 3
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = DataLoader(TensorDataset(x[:40], y[:40]), batch_size=20)
    validation = DataLoader(TensorDataset(x[40:], y[40:]), batch_size=32, shuffle=True)
    for _ in range(12):
        for a, b in training:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(a), b).backward()
            optimizer.step()
        with torch.no_grad():
            for a, _ in validation:
                model(a)


def test_another_order_of_a_small_set_is_no_change_of_inputs(tmp_path: Path) -> None:
    assert answers(tmp_path, reordered, EvaluationInputs)["evaluation_inputs"]["outcome"] == "unclear"


def numbered(other: bool, by: str) -> None:
    """Three clear groups; in evaluation the labels may count them from another one."""
    torch.manual_seed(0)
    centres = torch.eye(3) * 4
    labels, held_out = torch.arange(240) % 3, torch.arange(90) % 3
    inputs, inputs_out = (centres[held] + torch.randn(len(held), 3) for held in (labels, held_out))
    labels_out = (held_out + 1) % 3 if other else held_out
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(inputs_out, labels_out), batch_size=30)
    for _ in range(4):
        for x, y in DataLoader(TensorDataset(inputs, labels), batch_size=24, shuffle=True):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            if by == "loader":
                for x, _ in loader:
                    model(x)
            elif by == "loss":
                torch.nn.functional.cross_entropy(model(inputs_out), labels_out)
            else:
                (model(inputs_out).argmax(1) == labels_out).float().mean()


@pytest.mark.parametrize("by", ["loader", "loss", "comparison"])
def test_classes_that_evaluation_numbers_otherwise(tmp_path: Path, by: str) -> None:
    held = answers(tmp_path / "a", partial(numbered, True, by), EvaluationClasses)["evaluation_classes"]
    assert held["outcome"] == "renumbered"
    assert "0 as 1, 1 as 2, 2 as 0" in held["says"]
    held = answers(tmp_path / "b", partial(numbered, False, by), EvaluationClasses)["evaluation_classes"]
    assert held["outcome"] == "alike"


def test_a_compiled_comparison_stays_whole(tmp_path: Path) -> None:
    def loop() -> None:
        model = torch.nn.Linear(4, 3)
        score = torch.compile(lambda x, y: (model(x).argmax(1) == y).float().mean(), backend="eager", fullgraph=True)
        x, y = torch.randn(48, 4), torch.arange(48) % 3
        with torch.no_grad():
            model(x)
            assert float(score(x, y)) == float((model(x).argmax(1) == y).float().mean())
            assert bool(torch.vmap(lambda a: a == a)(x).all())

    answers(tmp_path, loop, EvaluationClasses)


def test_a_comparison_that_cannot_be_followed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(EvaluationClasses, "compared", fails)
    held = answers(tmp_path, partial(numbered, True, "comparison"), EvaluationClasses)["evaluation_classes"]
    assert held["outcome"] == "unclear"
    assert "RuntimeError: odd" in held["unclear"]


def test_a_table_is_a_renaming_only_when_it_is_one_to_one() -> None:
    assert renamed(torch.tensor([[0, 30, 0], [0, 0, 30], [30, 0, 0]])) == {0: 1, 1: 2, 2: 0}
    assert not renamed(torch.tensor([[0, 30, 0], [0, 30, 0], [30, 0, 0]]))
    assert not renamed(torch.tensor([[30, 0], [0, 30]]))
    assert renamed(torch.tensor([[30, 0, 2], [0, 1, 29], [0, 28, 2]])) == {0: 0, 1: 2, 2: 1}  # one class agrees
    assert not renamed(torch.tensor([[60, 0, 0], [0, 12, 13], [5, 14, 8]]))  # two that are hard to tell apart
    assert not renamed(torch.tensor([[20, 10, 10], [10, 20, 10], [15, 15, 10]]))


def milestones(per_batch: bool) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [4, 8], gamma=0.1)
    training = DataLoader(TensorDataset(*data()), batch_size=16, shuffle=True)
    for _ in range(10):
        for x, y in training:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            if per_batch:
                scheduler.step()
        if not per_batch:
            scheduler.step()


@pytest.mark.parametrize(("per_batch", "outcome"), [(True, "wrong_cadence"), (False, "plausible")])
def test_milestones_of_epochs_passed_in_batches(tmp_path: Path, per_batch: bool, outcome: str) -> None:
    held = answers(tmp_path, partial(milestones, per_batch), SchedulerSteps)["scheduler_steps"]
    assert held["outcome"] == outcome
