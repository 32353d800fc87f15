"""Faults in loops that people write out by hand: without a loader, without an optimiser, with formulas of their own."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from loops_training import Loop, answers, text_at
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.hooks import watching
from clew.observe.times import order_in_time
from clew.observe.watches.batch_repeats import BatchRepeats
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.input_statistics_match import InputStatisticsMatch
from clew.observe.watches.input_varies import InputVaries
from clew.observe.watches.loss_input_kind import LossInputKind
from clew.observe.watches.loss_shapes import LossShapes
from clew.observe.watches.loss_sign import LossSign
from clew.observe.watches.loss_term_sizes import LossTermSizes
from clew.observe.watches.mode_in_validation import ModeInValidation
from clew.observe.watches.split_overlap import SplitOverlap


def descend(model: nn.Module, loss_of: Any, steps: int = 12, rate: float = 1e-2) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(step).backward()
        optimizer.step()


# --- scores that are distances


def prototypes(sign: float = -1.0, how: str = "cdist", scale: float = 1.0) -> None:
    model, centres = nn.Linear(6, 4), torch.randn(3, 4)
    x, y = torch.randn(32, 6), torch.randint(0, 3, (32,))

    def loss_of(_: int) -> Tensor:
        given = model(x)
        if how == "cdist":
            far = torch.cdist(given, centres).pow(2)
        elif how == "written out":
            far = (given[:, None] - centres[None]).pow(2).sum(-1)
        elif how == "norm":
            far = (given[:, None] - centres[None]).norm(dim=-1)
        elif how == "length":
            far = (given[:, None] * centres[None]).norm(dim=-1)
        else:
            far = given @ centres.T
        return F.cross_entropy(sign * scale * far, y)

    descend(model, loss_of)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(prototypes, 1.0), "negated"),
        (partial(prototypes, 1.0, "written out", 0.5), "negated"),
        (partial(prototypes, 1.0, "norm"), "negated"),
        (prototypes, "usual"),
        (partial(prototypes, -1.0, "norm"), "usual"),
        (partial(prototypes, 1.0, "length"), "usual"),
        (partial(prototypes, -1.0, "written out"), "usual"),
        (partial(prototypes, 1.0, "product"), "usual"),
        (partial(prototypes, -1.0, "product"), "usual"),
    ],
    ids=["distance", "by hand", "norm", "sound", "sound norm", "length", "sound by hand", "similarity", "turned"],
)
def test_distances_are_no_scores(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, LossSign)["loss_sign"]
    assert answer["outcome"] == outcome, answer


# --- what kl_div is given


def distilled(logs: bool, axis: int = -1, temperature: float = 3.0) -> None:
    model = nn.Linear(6, 5)
    x, taught = torch.randn(32, 6), torch.randn(32, 5).softmax(-1)

    def loss_of(_: int) -> Tensor:
        given = model(x) / temperature
        return F.kl_div(given.log_softmax(axis) * 1.0 if logs else given, taught, reduction="batchmean")

    descend(model, loss_of)


@pytest.mark.parametrize(
    ("logs", "outcome"), [(False, "logits_into_probability_loss"), (True, "fits")], ids=["scores", "logarithms"]
)
def test_a_divergence_wants_logarithms_of_shares(tmp_path: Path, logs: bool, outcome: str) -> None:
    answer = answers(tmp_path, partial(distilled, logs), LossInputKind)["loss_input_kind"]
    assert answer["outcome"] == outcome, answer


# --- a code that its prior presses to nothing


class Code(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(12, 6), nn.Linear(3, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.into(x).chunk(2, 1)
        return self.out(mean + (0.5 * log_variance).exp() * torch.randn_like(mean)), mean, log_variance


def coded(weight: float, by_torch: bool = False) -> None:
    model, basis = Code(), torch.randn(3, 12)

    def loss_of(_: int) -> Tensor:
        x = torch.randn(64, 3) @ basis
        given, mean, log_variance = model(x)
        rebuilt = F.mse_loss(given, x)
        if by_torch:
            normal = torch.distributions.Normal
            kl = torch.distributions.kl_divergence(normal(mean, (0.5 * log_variance).exp()), normal(0.0, 1.0))
        else:
            kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp())
        return rebuilt + weight * kl.sum(1).mean()

    descend(model, loss_of, steps=400, rate=2e-2)


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (partial(coded, 20.0), "code_empty"),
        (partial(coded, 20.0, True), "code_empty"),
        (partial(coded, 0.05), "comparable"),
    ],
    ids=["pressed", "pressed, by torch", "balanced"],
)
def test_a_code_without_content(tmp_path: Path, loop: Loop, outcome: str) -> None:
    answer = answers(tmp_path, loop, LossTermSizes)["loss_term_sizes"]
    assert answer["outcome"] == outcome, answer


# --- a prediction with one axis too many


class Column(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)  # type: ignore[no-any-return]


def crossed() -> None:
    model = Column()
    x, y = torch.randn(16, 6), torch.randn(16)

    def loss_of(_: int) -> Tensor:
        error = y - model(x)
        return torch.maximum(0.9 * error, -0.1 * error).mean()

    descend(model, loss_of, steps=30)


def test_the_line_that_made_the_prediction_is_named_too(tmp_path: Path) -> None:
    answer = answers(tmp_path, crossed, FirstNonfinite, LossShapes)["loss_shapes"]  # the first follows the graph
    assert answer["outcome"] == "broadcast"
    assert text_at(answer).startswith("error = y - model(x)")
    assert text_at(answer, 1).startswith("return self.head(x)")


# --- seeds that are given again


def drawn(again: bool, steps: int = 24) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))

    def loss_of(step: int) -> Tensor:
        generator = np.random.default_rng(3 if again else (3, step))
        x = torch.from_numpy(generator.normal(size=(16, 6))).float()
        return F.cross_entropy(model(x), (x[:, 0] > 0).long())

    descend(model, loss_of, steps)


def test_a_generator_with_the_same_seed_at_every_step_gives_one_batch(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(drawn, True), BatchRepeats)["batch_repeats"]
    assert answer["outcome"] == "same", answer
    assert "default_rng" in text_at(answer)


def test_a_seed_of_each_step_does_not(tmp_path: Path) -> None:
    assert answers(tmp_path, partial(drawn, False), BatchRepeats)["batch_repeats"]["outcome"] == "unclear"


def windows(case: str, steps: int = 24) -> None:
    """Stretches of a long series, from positions that are drawn for every step."""
    series = torch.randn(500, generator=torch.Generator().manual_seed(5))
    kept = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 2))
    whole = torch.stack([series[start : start + 8] for start in range(40)])

    def batch(part: Tensor, size: int = 16) -> Tensor:
        generator = kept if case == "kept" else torch.Generator().manual_seed(0)
        if case == "shuffled":
            starts = torch.randperm(len(part) - 8, generator=generator)[:size]
        else:
            starts = torch.randint(0, len(part) - 8, (size,), generator=generator)
        return torch.stack([part[start : start + 8] for start in starts.tolist()])

    def loss_of(step: int) -> Tensor:
        del step
        rows = whole if case.startswith("whole") else batch(series[:400])
        if case in ("anew", "whole and looked at"):  # a look at some held-out windows, always the same
            with torch.no_grad():
                model(batch(series[400:], 5)[:, :-1])
        if case == "whole in another order":
            rows = whole[torch.randperm(40, generator=torch.Generator().manual_seed(0))]
        return F.cross_entropy(model(rows[:, :-1]), (rows[:, -1] > 0).long())

    descend(model, loss_of, steps)


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ("anew", "same"),
        ("shuffled", "same"),
        ("kept", "unclear"),
        ("whole and looked at", "unclear"),
        ("whole in another order", "unclear"),
    ],
)
def test_positions_that_are_drawn_again_at_every_step(tmp_path: Path, case: str, outcome: str) -> None:
    answer = answers(tmp_path, partial(windows, case), BatchRepeats)["batch_repeats"]
    assert answer["outcome"] == outcome, answer
    if outcome == "same":
        assert text_at(answer).startswith("starts = torch.rand")


def test_draws_are_made_where_the_script_wants_them(tmp_path: Path) -> None:
    with watching(tmp_path, [BatchRepeats]), torch.device("meta"):
        assert torch.randint(3, (2,)).is_meta
        assert torch.randperm(3).is_meta


# --- rows that stand on both sides


def resampled(before: bool, own: bool = False) -> None:
    """One class is drawn again and again, before the split or after it. With `own` the rows of training are scored."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(600, 8, generator=generator)
    rare, held = torch.arange(60), torch.arange(0, 600, 5)
    rest = torch.tensor([row for row in range(600) if row % 5])
    again = rare[torch.randint(0, 60, (500,), generator=generator)]
    if before:
        mixed = torch.cat([torch.arange(60, 600), again])[torch.randperm(1040, generator=generator)]
        rest, held = mixed[:800], mixed[800:]
    else:
        kept = again[(again % 5) > 0]
        rest = torch.cat([rest, kept])[torch.randperm(len(rest) + len(kept), generator=generator)]
    trained, judged = x[rest], x[rest[:300] if own else held]
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        model.train()
        for (rows,) in DataLoader(TensorDataset(trained), 50):
            optimizer.zero_grad()
            F.cross_entropy(model(rows), (rows[:, 0] > 0).long()).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(judged)


@pytest.mark.parametrize(
    ("before", "outcome"), [(True, "shared"), (False, "disjoint")], ids=["before the split", "after it"]
)
def test_rows_that_were_drawn_again_before_the_split(tmp_path: Path, before: bool, outcome: str) -> None:
    answer = answers(tmp_path, partial(resampled, before), SplitOverlap)["split_overlap"]
    assert answer["outcome"] == outcome, answer


def test_rows_of_training_that_are_scored_themselves(tmp_path: Path) -> None:
    answer = answers(tmp_path, partial(resampled, False, True), SplitOverlap)["split_overlap"]
    assert answer["outcome"] in ("disjoint", "unclear"), answer


def pairs_of_names() -> None:
    """A user and a film: some pairs stand on both sides because there are not so many of them."""
    torch.manual_seed(0)
    given = torch.stack([torch.randint(0, 60, (4000,)), torch.randint(0, 60, (4000,))], 1)
    trained, test_rows = given[:3000], given[3000:]
    tables = nn.Embedding(120, 4)

    class Pairs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = tables

        def forward(self, rows: Tensor) -> Any:
            return (self.table(rows[:, 0]) * self.table(rows[:, 1] + 60)).sum(1)

    model = Pairs()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(2):
        for chosen in torch.randperm(3000).split(100):
            optimizer.zero_grad()
            model(trained[chosen]).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(test_rows)
        model.train()


def test_pairs_that_are_equal_by_chance(tmp_path: Path) -> None:
    answer = answers(tmp_path, pairs_of_names, SplitOverlap)["split_overlap"]
    assert answer["outcome"] in ("disjoint", "unclear"), answer


# --- pictures that only one side divides


def pictures(there: float) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 36, 2))
    train = DataLoader(TensorDataset(torch.randn(96, 3, 6, 6)), 16)
    val = DataLoader(TensorDataset(0.4 + there * torch.randn(32, 3, 6, 6)), 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for _ in range(3):
        model.train()
        for (x,) in train:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for (x,) in val:
                model(x)


@pytest.mark.parametrize(
    ("there", "apart"), [(0.05, True), (20.0, True), (0.8, False)], ids=["narrow", "wide", "nearly as wide"]
)
def test_pictures_that_one_side_alone_divides(tmp_path: Path, there: float, apart: bool) -> None:
    answer = answers(tmp_path, partial(pictures, there), InputStatisticsMatch)["input_statistics_match"]
    assert (answer["outcome"] in ("one_step_apart", "outside")) == apart, answer


# --- a simulation that begins alike for all


def simulated(moving: bool) -> None:
    model = nn.Linear(3, 1)

    def loss_of(_: int) -> Any:
        state = torch.ones(16, 3)
        if not moving:
            return model(state).square().mean()
        for _ in range(4):
            state = state + 0.1 * model(state) + 0.1 * torch.randn(16, 3)
        return state.square().mean()

    descend(model, loss_of)


@pytest.mark.parametrize(("moving", "outcome"), [(True, "unclear"), (False, "constant")], ids=["moves on", "stays"])
def test_examples_that_only_begin_alike(tmp_path: Path, moving: bool, outcome: str) -> None:
    answer = answers(tmp_path, partial(simulated, moving), InputVaries)["input_varies"]
    assert answer["outcome"] == outcome, answer


# --- windows that each have a scale of their own


@pytest.mark.parametrize("own", ["shift", "scale", "raw"])
def test_windows_are_known_whatever_each_was_scaled_by(own: str) -> None:
    series = np.cumsum(np.random.default_rng(0).normal(size=400)).astype(np.float32)
    rows = np.stack([series[at : at + 12] for at in range(380)])
    if own == "shift":
        rows = rows - rows[:, -1:]
    elif own == "scale":
        rows = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    assert order_in_time([rows, rows[:, 0] * 2]) != ""
    order = np.random.default_rng(1).permutation(len(rows))
    assert order_in_time([rows[order]]) == ""


def test_rows_of_numbers_are_no_windows() -> None:
    generator = np.random.default_rng(0)
    assert order_in_time([generator.normal(size=(300, 12))]) == ""
    assert order_in_time([np.ones((300, 12))]) == ""
    assert order_in_time([np.repeat(generator.normal(size=(300, 1)), 12, axis=1)]) == ""


# --- weights that steps were made from


class Given(nn.Module):
    """Normalises by the batch whatever is asked; in training with a weight that was computed, where it is `fast`."""

    def __init__(self, fast: bool) -> None:
        super().__init__()
        self.fast, self.out = fast, nn.Linear(6, 2)
        self.weight, self.mean, self.var = nn.Parameter(torch.ones(6)), torch.zeros(6), torch.ones(6)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight * 1.0 if self.fast and torch.is_grad_enabled() else self.weight
        return self.out(F.batch_norm(x, self.mean, self.var, weight, training=True))  # type: ignore[no-any-return]


def adapted(fast: bool, steps: int = 4) -> None:
    net = Given(fast)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    train, val = (DataLoader(TensorDataset(torch.randn(rows, 6)), 16) for rows in (64, 32))
    for _ in range(steps):
        for (x,) in train:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for (x,) in val:
                net(x)


@pytest.mark.parametrize(("fast", "seen"), [(True, False), (False, True)], ids=["for a task", "always"])
def test_statistics_of_each_task_are_meant(tmp_path: Path, fast: bool, seen: bool) -> None:
    answer = answers(tmp_path, partial(adapted, fast), ModeInValidation)["mode_in_validation"]
    assert (answer["outcome"] == "train") == seen, answer


# --- updates by hand


def test_backwards_without_a_step_are_looked_at_ever_more_rarely(tmp_path: Path) -> None:
    looked = []
    with watching(tmp_path, []) as recorder:
        weight = torch.ones(3, requires_grad=True)
        for _ in range(1000):
            (weight * weight).sum().backward()
            looked.append(recorder.sampled)
            with torch.no_grad():
                weight -= 0.01 * weight.grad  # type: ignore[operator]
        optimizer = torch.optim.SGD([weight], lr=1e-2)
        optimizer.step()
    assert all(looked[:127])
    assert 2 <= sum(looked[127:]) <= 5
