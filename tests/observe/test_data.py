"""The watches of the inputs: their scale, variety, statistics, normalisation and gaps."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_data import answer, by_slices, classes, fit, lines, loader, mlp, score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.watches.input_scale import InputScale
from clew.observe.watches.input_statistics_match import InputStatisticsMatch
from clew.observe.watches.input_varies import InputVaries
from clew.observe.watches.nonfinite_data import NonfiniteData
from clew.observe.watches.normalisation_applied_once import NormalisationAppliedOnce

Loop = Callable[[], Any]


def images(count: int = 96, channels: int = 1, side: int = 6) -> tuple[Tensor, Tensor]:
    """Eight-bit images that reach black and white."""
    x = torch.randint(0, 256, (count, channels, side, side)).float()
    return x, torch.arange(count) % 4


class Scaling(nn.Module):
    """Takes raw pixels and scales them itself."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(((x / 255 - 0.5) / 0.25).flatten(1))
        return out


def tokens() -> tuple[Tensor, Tensor]:
    return torch.randint(0, 5000, (64, 12)), torch.randint(0, 4, (64,))


def embedding(scale: float = 1.0) -> nn.Module:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5000, 16)
            self.head = nn.Linear(16, 4)

        def forward(self, ids: Tensor) -> Tensor:
            out: Tensor = self.head(scale * self.table(ids).mean(1))
            return out

    return Embedded()


def nothing() -> None:
    mlp()


# --- input_scale


def raw_pixels() -> None:
    fit(loader(*images()), mlp(36))


def raw_table() -> None:
    x, y = classes()
    x[:, 2] = 4000 + 900 * x[:, 2]
    fit(by_slices(x, y))


def raw_without_layers() -> None:
    x, y = classes()
    weight = nn.ParameterList([nn.Parameter(torch.zeros(6, 4))])

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x @ self.weight[0]
            return out

    fit(loader(100 * x, y), Plain())


def tiny_pixels() -> None:
    x, y = images()
    fit(loader(x / 255 / 255, y), mlp(36))


def normalised_first() -> None:
    x, y = classes()
    fit(loader(500 + 300 * x, y), nn.Sequential(nn.BatchNorm1d(6), mlp()))


def actor_and_critic() -> None:
    """A second model on the large features of the first."""
    x, y = classes()
    first, second = nn.Linear(6, 8), nn.Linear(8, 4)
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-5)
    for inputs, labels in by_slices(x, y):
        optimizer.zero_grad()
        F.cross_entropy(second(500 * first(inputs)), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def shares_of_words() -> None:
    """Each row sums to one over many columns, so that every number is small."""
    counts = torch.rand(64, 900) * (torch.rand(64, 900) < 0.1)
    fit(loader(counts / counts.sum(1, keepdim=True), classes()[1][:64]), mlp(900))


class RowByRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = sum(torch.tanh(self.cell(part)) for part in x.unbind(1))
        out: torch.Tensor = self.last(total)
        return out


def blank_at_first() -> None:
    """As the rows of a picture with a margin, one after the other."""
    x, y = classes()
    series = torch.stack([torch.zeros_like(x), x, x], 1)
    fit(loader(series, y), RowByRow())


def standard() -> None:
    fit(loader(*classes()))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (raw_pixels, "raw"),
        (raw_table, "far_off"),
        (raw_without_layers, "raw"),
        (tiny_pixels, "tiny"),
        (standard, "near_standard"),
        (lambda: fit(loader(*images()), Scaling()), "near_standard"),
        (lambda: fit(by_slices(images()[0] / 255, images()[1]), mlp(36)), "near_standard"),
        (lambda: fit(by_slices(*classes()), mlp().double(), change=lambda x: x.double()), "near_standard"),
        (normalised_first, "near_standard"),
        (actor_and_critic, "near_standard"),
        (shares_of_words, "near_standard"),
        (blank_at_first, "near_standard"),
        (lambda: fit(loader(*tokens()), embedding()), "unclear"),
        (lambda: fit(loader(*tokens()), embedding(scale=1000.0)), "unclear"),
        (nothing, "unclear"),
    ],
)
def test_input_scale(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, InputScale, loop)["outcome"] == outcome


def test_the_wild_column_is_named(tmp_path: Any) -> None:
    told = answer(tmp_path, InputScale, raw_table)
    assert told["measured"]["wild_columns"] == "2"
    assert told["measured"]["typical_column_rms"] == pytest.approx(1, rel=0.2)
    assert "F.cross_entropy(model(change(x)), y)" in lines(told)[0]


# --- input_varies


def zeros() -> None:
    x, y = classes()
    fit(loader(0 * x, y))


def same_row_in_the_loop() -> None:
    fit(loader(*classes()), change=lambda x: torch.ones_like(x))


def one_token() -> None:
    x, y = tokens()
    fit(loader(torch.full_like(x, 3), y), embedding())


def zeros_for_a_mask() -> None:
    x, y = classes()
    memory = nn.GRUCell(6, 4)
    optimizer = torch.optim.SGD(memory.parameters(), lr=1e-2)
    for inputs, labels in by_slices(x, y):
        optimizer.zero_grad()
        F.cross_entropy(memory(inputs, torch.zeros(len(inputs), 4)), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def one_token_and_a_state() -> None:
    """One character after the other, each beside a state that begins at zero."""

    class Letters(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters, self.memory = nn.Embedding(9, 4), nn.GRU(4, 4, 2)

        def forward(self, letter: Tensor, state: Tensor) -> Tensor:
            out = self.memory(self.letters(letter).view(1, 1, 4), state)[0]
            assert isinstance(out, Tensor)
            return out[0]

    model = Letters()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for number in range(12):
        optimizer.zero_grad()
        out = model(torch.tensor(number % 9), torch.zeros(2, 1, 4))
        F.cross_entropy(out, torch.tensor([number % 4])).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def bandit() -> None:
    """A state of one number that never changes: there is nothing to see, on purpose."""
    fit([(torch.ones(16, 1), torch.randint(0, 4, (16,))) for _ in range(4)], mlp(1))


def one_example() -> None:
    fit([(torch.ones(1, 6), torch.zeros(1, dtype=torch.long)) for _ in range(6)])


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (zeros, "constant"),
        (same_row_in_the_loop, "constant"),
        (one_token, "constant"),
        (standard, "varied"),
        (zeros_for_a_mask, "varied"),
        (lambda: fit(loader(*tokens()), embedding()), "varied"),
        (one_token_and_a_state, "unclear"),
        (bandit, "unclear"),
        (one_example, "unclear"),
    ],
)
def test_input_varies(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, InputVaries, loop)["outcome"] == outcome


# --- input_statistics_match


def evaluated(through: Callable[[Tensor], Tensor], **options: Any) -> Loop:
    """Trained on standard inputs, evaluated through another pipeline, with a loader or in one piece."""

    def loop() -> None:
        x, y = classes(384)
        model = fit(loader(x[:256], y[:256]), **options)
        score(model, loader(x[256:], y[256:], 32, shuffle=False), through)

    return loop


def in_one_piece(change: Callable[[Tensor], Tensor]) -> Loop:
    def loop() -> None:
        x, y = classes(384)
        model = fit(by_slices(x[:256], y[:256]))
        model.eval()
        with torch.no_grad():
            model(change(x[256:]))

    return loop


def unnormalised_images() -> None:
    x, y = images(192, channels=3)
    model = fit(loader((x[:96] / 255 - 0.5) / 0.29, y[:96]), mlp(108))
    score(model, loader(x[96:] / 255, y[96:], 32))


def wandering() -> None:
    """An agent acts without a gradient on states that drift away from those it learned from."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(8):
        state = torch.randn(16, 6) + step
        with torch.no_grad():
            action = model(state).argmax(1)
        optimizer.zero_grad()
        F.cross_entropy(model(torch.randn(16, 6)), action).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def plotted_on_a_grid() -> None:
    """Trained on random points, drawn on an ordered grid of the same square."""
    points = torch.rand(512, 2)
    model = fit(by_slices(points, (points.sum(1) > 1).long(), 64), mlp(2))
    side = torch.linspace(0, 1, 60)
    model.eval()
    with torch.no_grad():
        model(torch.stack(torch.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2))


def few_rows() -> None:
    x, y = classes(140)
    model = fit(loader(x[:128], y[:128]))
    score(model, by_slices(x[128:], y[128:]))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (evaluated(lambda x: 255 * x), "outside"),
        (evaluated(lambda x: x + 2), "differ"),
        (in_one_piece(lambda x: x / 255), "differ"),
        (unnormalised_images, "differ"),
        (evaluated(lambda x: x), "match"),
        (evaluated(lambda x: x, change=lambda x: x + 0.1 * torch.randn_like(x)), "match"),
        (in_one_piece(lambda x: x), "match"),
        (few_rows, "match"),
        (plotted_on_a_grid, "match"),
        (wandering, "unclear"),
        (standard, "unclear"),
    ],
)
def test_input_statistics_match(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, InputStatisticsMatch, loop)["outcome"] == outcome


def test_random_sets_of_many_columns_match(tmp_path: Any) -> None:
    """The largest of many differences is no alarm: each is measured against its own sampling error."""
    for seed in range(5):
        torch.manual_seed(seed)
        x, y = classes(160, features=40)
        x = x.exp()

        def loop(x: Tensor = x, y: Tensor = y) -> None:
            model = fit(loader(x[:128], y[:128]), mlp(40))
            score(model, loader(x[128:], y[128:], 32))

        assert answer(tmp_path, InputStatisticsMatch, loop)["outcome"] == "match"


# --- normalisation_applied_once


def divided_twice() -> None:
    x, y = images()
    fit(loader(x / 255, y), mlp(36), change=lambda x: x / 255)


def imagenet(x: Tensor) -> Tensor:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (x - mean[:, None, None]) / std[:, None, None]


def imagenet_twice() -> None:
    x, y = images(channels=3)
    fit(loader(imagenet(imagenet(x / 255)), y), mlp(108))


def standardised_then_shifted() -> None:
    """The table is standardised when it is made, and by the old constants in the loop."""
    x, y = classes()
    raw = 5 + 2 * x
    mean, std = raw.mean(0), raw.std(0)
    fit(loader((raw - mean) / std, y), change=lambda x: (x - mean) / std)


def twice_in_the_loop() -> None:
    x, y = classes(512)
    raw = 5 + 2 * x
    mean, std = raw.mean(0), raw.std(0)
    fit(loader(raw, y), change=lambda x: ((x - mean) / std - mean) / std)


def once_in_the_loop() -> None:
    x, y = classes(512)
    raw = 5 + 2 * x
    mean, std = raw.mean(0), raw.std(0)
    fit(loader(raw, y), change=lambda x: (x - mean) / std)


def by_the_batch() -> None:
    fit(loader(*classes()), change=lambda x: (3 * x + 1 - (3 * x + 1).mean(0)) / (3 * x).std(0))


def by_the_batch_of_images() -> None:
    x, y = images(channels=3)
    fit(loader(x, y), mlp(108), change=lambda x: (x - x.mean()) / x.std())


def by_the_example() -> None:
    x, y = images()
    fit(loader(x, y), mlp(36), change=lambda x: (x - x.mean((1, 2, 3), True)) / x.std((1, 2, 3), keepdim=True))


def all_at_once() -> None:
    """Statistics of the batch are those of the set when the batch is the set."""
    x, y = classes()
    x = (x - x.mean(0)) / x.std(0)
    fit([(x, y)], epochs=6)


def noise_as_data() -> None:
    """Placeholder data happen to be standard; a line meant for images follows."""
    fit(loader(*classes(512)), change=lambda x: (x - 0.5) / 0.5)


def once_by_known_constants() -> None:
    x, y = images(channels=3)
    fit(loader(imagenet(x / 255), y), mlp(108))


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (divided_twice, "twice"),
        (imagenet_twice, "twice"),
        (standardised_then_shifted, "twice"),
        (twice_in_the_loop, "twice"),
        (by_the_batch, "per_batch"),
        (by_the_batch_of_images, "per_batch"),
        (once_in_the_loop, "once"),
        (once_by_known_constants, "once"),
        (by_the_example, "once"),
        (all_at_once, "once"),
        (noise_as_data, "once"),
        (raw_pixels, "once"),
        (standard, "once"),
        (lambda: fit(loader(*tokens()), embedding()), "unclear"),
    ],
)
def test_normalisation_applied_once(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, NormalisationAppliedOnce, loop)["outcome"] == outcome


# --- nonfinite_data


def with_gap(value: float = math.nan) -> tuple[Tensor, Tensor]:
    x, y = classes()
    x[37, 3] = value
    return x, y


def gap_in_targets() -> None:
    x, _ = classes()
    y = x.sum(1, keepdim=True)
    y[5] = math.inf
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=16):
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def masked_targets() -> None:
    """Missing targets are left out of the loss on purpose."""
    x, _ = classes()
    y = x.sum(1, keepdim=True)
    y[::7] = math.nan
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=16):
        known = ~torch.isnan(targets)
        optimizer.zero_grad()
        F.mse_loss(model(inputs)[known], targets[known]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


class Filling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(torch.nan_to_num(x))
        return out


def blocked_attention() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    optimizer = torch.optim.SGD(attention.parameters(), lr=1e-3)
    mask = torch.triu(torch.full((5, 5), -math.inf), 1)
    for _ in range(3):
        x = torch.randn(4, 5, 8)
        optimizer.zero_grad()
        out, _ = attention(x, x, x, attn_mask=mask)
        out.square().mean().backward()
        optimizer.step()


def diverges() -> None:
    model = mlp()
    fit(loader(*classes()), model, 6, optimizer=torch.optim.SGD(model.parameters(), lr=1e30))


def broken_generator() -> None:
    """What a diverged model makes for another one is no data."""
    maker, critic = nn.Linear(4, 6), mlp()
    optimizer = torch.optim.SGD(critic.parameters(), lr=1e-3)
    for step in range(4):
        if step == 2:
            with torch.no_grad():
                maker.weight.fill_(math.nan)
        made = maker(torch.randn(16, 4)).detach()
        optimizer.zero_grad()
        F.cross_entropy(critic(made), torch.zeros(16, dtype=torch.long)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


@pytest.mark.parametrize(
    ("loop", "outcome"),
    [
        (broken_generator, "absent"),
        (lambda: fit(loader(*with_gap())), "seen"),
        (lambda: fit(by_slices(*with_gap(math.inf))), "seen"),
        (lambda: fit(loader(*with_gap(), 8, shuffle=False), epochs=1), "seen"),
        (gap_in_targets, "seen"),
        (standard, "absent"),
        (masked_targets, "absent"),
        (lambda: fit(loader(*with_gap()), Filling()), "absent"),
        (lambda: fit(loader(*with_gap()), change=torch.nan_to_num), "absent"),
        (blocked_attention, "absent"),
        (diverges, "absent"),
        (lambda: fit(loader(*tokens()), embedding()), "unclear"),
    ],
)
def test_nonfinite_data(tmp_path: Any, loop: Loop, outcome: str) -> None:
    assert answer(tmp_path, NonfiniteData, loop)["outcome"] == outcome


def test_the_gap_is_pointed_at(tmp_path: Any) -> None:
    told = answer(tmp_path, NonfiniteData, lambda: fit(loader(*with_gap())))
    assert told["measured"]["columns"] == "3"
    assert told["measured"]["rows_of_the_data_set"] == "37"
    assert told["measured"]["kind"] == "NaN"
    assert lines(told) == ["for x, y in batches:"]
