"""Faults of data that show when rows are followed through time: look-ahead, windows, streams, masks, frozen tables."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from loops_data import answer
from scipy.signal import butter, filtfilt, lfilter
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from clew.observe.watches._data_filter import made_of
from clew.observe.watches.batch_repeats import BatchRepeats
from clew.observe.watches.input_scale import InputScale
from clew.observe.watches.looks_ahead import LooksAhead
from clew.observe.watches.requires_grad_flags import RequiresGradFlags
from clew.observe.watches.split_by_time import SplitByTime
from clew.observe.watches.split_overlap import SplitOverlap
from clew.observe.watches.target_moves_along import TargetMovesAlong


def fit(train: Dataset[Any], test: Dataset[Any], model: nn.Module, epochs: int = 1, batch: int = 64) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        model.train()
        for x, y in DataLoader(train, batch, shuffle=True):
            optimizer.zero_grad()
            F.mse_loss(model(x).squeeze(-1), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, _ in DataLoader(test, 256):
                model(x)


def walk(rows: int, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    level = np.cumsum(generator.normal(size=rows)) * 0.3
    return np.asarray(level + generator.normal(size=rows))


def shifted(series: Any, by: int) -> Any:
    """The value of so many rows later; gaps at the ends are filled."""
    moved = np.roll(series, -by)
    if by > 0:
        moved[-by:] = 0
    elif by < 0:
        moved[:-by] = 0
    return moved


def mean_over(series: Any, first: int, last: int) -> Any:
    return np.mean([shifted(series, by) for by in range(first, last + 1)], axis=0)


LOW = butter(2, 0.3)


def two_ways(series: Any) -> Any:
    return filtfilt(*LOW, series)


COLUMNS: dict[str, tuple[Callable[[Any], list[Any]], str]] = {
    "lags": (lambda y: [shifted(y, -1), shifted(y, -7), mean_over(y, -5, -1)], "behind"),
    "a shift the other way": (lambda y: [shifted(y, 7), shifted(y, -1)], "ahead"),
    "a window around the row": (lambda y: [mean_over(y, -3, 3), shifted(y, -1)], "ahead"),
    "a window up to the row": (lambda y: [mean_over(y, -6, 0), shifted(y, -1)], "ahead"),
    "a step of a simulation": (lambda y: [shifted(y, -1), y - shifted(y, -1)], "behind"),
    "a filter that runs both ways": (lambda y: [shifted(two_ways(y), -1), shifted(y, -1)], "ahead"),
    "a filter that runs forward": (lambda y: [shifted(lfilter(*LOW, y), -1), shifted(y, -1)], "behind"),
    "its own row smoothed": (lambda y: [two_ways(y), shifted(y, -1)], "behind"),
    "a second difference": (lambda y: [shifted(y, -2) - 2 * shifted(y, -1) + y, shifted(y, -1)], "behind"),
    "the row between": (lambda y: [shifted(y, by) for by in (-2, -1, 1, 2)], "unclear"),
    "other things": (lambda y: [walk(len(y), 8), walk(len(y), 9)], "unclear"),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_made_of_later_rows_are_told_from_those_of_earlier_ones(tmp_path: Any, kind: str) -> None:
    make, outcome = COLUMNS[kind]
    series = [walk(200, seed) for seed in range(4)]
    noise = walk(800, 99)
    stacked = np.column_stack([np.concatenate([np.stack(make(y), 1) for y in series]), noise])
    x = torch.tensor((stacked - stacked.mean(0)) / stacked.std(0), dtype=torch.float32)
    y = torch.tensor(np.concatenate(series), dtype=torch.float32)
    rows = TensorDataset(x, y)
    told = answer(tmp_path, LooksAhead, lambda: fit(rows, rows, nn.Linear(x.shape[1], 1)))
    assert told["outcome"] == outcome, told


class Kept(Dataset[Any]):
    """Keeps tables and gives rows of them, or rows of later times."""

    def __init__(self, x: Tensor, y: Tensor, ahead: int = 0) -> None:
        self.features, self.wanted, self.ahead = x.double().numpy(), y.double().numpy(), ahead

    def __len__(self) -> int:
        return len(self.wanted) - self.ahead

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        x, y = self.features[i], self.wanted[i + self.ahead]
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


@pytest.mark.parametrize(
    ("first", "last", "kind", "outcome"),
    [
        (-3, 1, "tensors", "ahead"),
        (-5, -1, "tensors", "behind"),
        (-3, 1, "part", "ahead"),
        (-3, 1, "own class", "ahead"),
        (-5, -1, "own class", "behind"),
        (-5, 0, "other rows", "unclear"),
    ],
)
def test_a_loader_that_shuffles_hides_no_window(tmp_path: Any, first: int, last: int, kind: str, outcome: str) -> None:
    series = walk(400)
    x = torch.tensor(np.stack([mean_over(series, first, last), walk(400, 9)], 1), dtype=torch.float32)
    y = torch.tensor(series, dtype=torch.float32).unsqueeze(1)
    rows: Dataset[Any] = TensorDataset(x, y)
    if kind == "part":
        rows = Subset(rows, torch.randperm(400)[:300].tolist())
    elif kind != "tensors":
        rows = Kept(x, y, ahead=kind == "other rows")

    def loop() -> None:
        model = nn.Linear(2, 1)
        for held, target in DataLoader(rows, 50, shuffle=True):
            F.mse_loss(model(held), target).backward()  # type: ignore[no-untyped-call]

    assert answer(tmp_path, LooksAhead, loop)["outcome"] == outcome


@pytest.mark.parametrize(
    "series", [np.sin(np.arange(500) / 5), np.arange(500.0), walk(500)], ids=["sine", "ramp", "walk"]
)
def test_windows_hold_the_past_also_where_the_target_is_a_window(tmp_path: Any, series: Any) -> None:
    values = torch.tensor(series, dtype=torch.float32)
    x, y = values[:-1].unfold(0, 12, 1), values[1:].unfold(0, 12, 1)
    told = answer(tmp_path, LooksAhead, lambda: fit(TensorDataset(x, y), TensorDataset(x, y), nn.Linear(12, 12)))
    assert told["outcome"] in ("behind", "unclear"), told


def test_the_rows_that_a_column_is_made_of() -> None:
    y = walk(600)
    columns = np.stack([shifted(y, 3), mean_over(y, -2, 2), shifted(y, -4)], 1)
    found = {made.column: made for made in made_of(columns, y)}
    assert found[0].taps == (3,)
    assert found[1].taps == (-2, -1, 0, 1, 2)
    assert found[1].one_sign
    assert found[2].past


class Flipped(Dataset[Any]):
    """Pictures with a blot in one corner and a mask of it."""

    def __init__(self, image: bool, mask: bool) -> None:
        self.image, self.mask = image, mask
        self.images = torch.rand(24, 1, 16, 16)
        self.masks = torch.zeros(24, 1, 16, 16)
        for i in range(24):
            self.masks[i, :, i % 5 : i % 5 + 6, : 3 + i % 4] = 1
        self.images += 2 * self.masks

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        image, mask = self.images[i] + 0.05 * torch.randn(1, 16, 16), self.masks[i]
        if torch.rand(()) < 0.5:
            image, mask = (image.flip(2) if self.image else image), (mask.flip(2) if self.mask else mask)
        return image, mask


@pytest.mark.parametrize(("image", "mask", "outcome"), [(1, 0, "left_behind"), (1, 1, "together"), (0, 0, "together")])
def test_a_mask_must_move_with_its_image(tmp_path: Any, image: bool, mask: bool, outcome: str) -> None:
    def loop() -> None:
        data = Flipped(image, mask)
        model = nn.Conv2d(1, 1, 3, padding=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(4):
            for x, y in DataLoader(data, 8, shuffle=True):
                optimizer.zero_grad()
                F.binary_cross_entropy_with_logits(model(x), y).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    assert answer(tmp_path, TargetMovesAlong, loop)["outcome"] == outcome


def test_two_views_of_one_picture_are_no_mask(tmp_path: Any) -> None:
    images = torch.rand(24, 1, 16, 16)
    views = [(image.flip(2) if i % 2 else image, image) for i in range(2) for image in images]

    def loop() -> None:
        for x, _ in DataLoader(views, 8):  # type: ignore[arg-type]
            nn.Conv2d(1, 1, 3)(x)

    assert answer(tmp_path, TargetMovesAlong, loop)["outcome"] == "unclear"


def stream(memory: Callable[[list[Tensor]], Tensor], order: str = "before") -> None:
    """New rows on every step, beside some of the past."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    past: list[Tensor] = []

    def score(x: Tensor) -> None:
        model.eval()
        with torch.no_grad():
            model(x)
        model.train()

    for _ in range(60):
        x = torch.randn(16, 6)
        past.append(x)
        if order == "before":
            score(x)
        both = torch.cat([x, memory(past)])
        optimizer.zero_grad()
        F.mse_loss(model(both)[:, 0], both[:, 0]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if order == "after":
            score(x)


def some_of(past: list[Tensor]) -> Tensor:
    rows = torch.cat(past)
    return rows[torch.randint(len(rows), (16,))]


def test_a_small_set_that_is_cycled_beside_a_large_one_is_no_memory(tmp_path: Any) -> None:
    """As where a few examples have labels and many have none."""

    def loop() -> None:
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        labelled = torch.randn(16, 6)
        for _ in range(120):
            loss = model(labelled).square().mean() + model(labelled).abs().mean()
            loss = loss + model(torch.randn(32, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert answer(tmp_path, BatchRepeats, loop, "1")["outcome"] != "part_same"


def test_a_memory_that_never_moves_on_is_seen(tmp_path: Any) -> None:
    told = answer(tmp_path, BatchRepeats, lambda: stream(lambda past: past[0]), "1")
    assert told["outcome"] == "part_same", told
    assert told["measured"]["rows"] == 16
    assert answer(tmp_path, BatchRepeats, lambda: stream(some_of), "1")["outcome"] == "unclear"


def test_a_stream_is_scored_before_it_is_learned_from(tmp_path: Any) -> None:
    told = answer(tmp_path, SplitOverlap, lambda: stream(some_of, "after"), "1")
    assert told["outcome"] == "just_learned", told
    assert answer(tmp_path, SplitOverlap, lambda: stream(some_of, "before"), "1")["outcome"] != "just_learned"


class Words(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table, self.head = table, nn.Linear(16, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.head(self.table(tokens).mean(1))
        return out


class Adapted(nn.Module):
    """A frozen layer with a product of two small matrices beside it, of which the second begins at zero."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.base, self.head, self.name = nn.Linear(16, 32), nn.Linear(32, 3), name
        self.down = nn.Parameter(torch.randn(4, 16))
        self.register_parameter(name, nn.Parameter(torch.zeros(32, 4)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.base(x) + x @ self.down.T @ getattr(self, self.name).T))
        return out


@pytest.mark.parametrize(
    ("name", "frozen", "outcome"),
    [("up", True, "frozen_as_drawn"), ("up", False, "trainable"), ("mask", True, "trainable")],
)
def test_a_frozen_matrix_of_zeros_never_does_anything(tmp_path: Any, name: str, frozen: bool, outcome: str) -> None:
    def loop() -> None:
        model = Adapted(name)
        with torch.no_grad():
            model.base.weight.copy_(torch.randn(32, 16) @ torch.randn(16, 16))  # loaded from somewhere
        model.base.weight.requires_grad = False
        model.get_parameter(name).requires_grad = not frozen
        optimizer = torch.optim.SGD([held for held in model.parameters() if held.requires_grad], lr=1e-3)
        for _ in range(60):
            optimizer.zero_grad()
            x = torch.randn(8, 16)
            F.cross_entropy(model(x), (x[:, 0] > 0).long()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    assert answer(tmp_path, RequiresGradFlags, loop)["outcome"] == outcome


@pytest.mark.parametrize("kind", ["drawn", "learned", "trained here"])
def test_a_table_that_is_frozen_as_drawn_is_seen(tmp_path: Any, kind: str) -> None:
    def loop() -> None:
        values = torch.randn(100, 16)
        if kind == "learned":
            values = values @ torch.randn(16, 16) + torch.randn(16)
        table = nn.Embedding.from_pretrained(values, freeze=kind != "trained here")  # type: ignore[no-untyped-call]
        model = Words(table)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(16):
            optimizer.zero_grad()
            tokens = torch.randint(100, (8, 5))
            F.cross_entropy(model(tokens), tokens[:, 0] % 3).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    outcome = {"drawn": "frozen_as_drawn", "learned": "frozen", "trained here": "trainable"}[kind]
    assert answer(tmp_path, RequiresGradFlags, loop)["outcome"] == outcome


@pytest.mark.parametrize("at_random", [True, False])
def test_held_out_windows_between_training_windows_are_seen(tmp_path: Any, at_random: bool) -> None:
    def loop() -> None:
        values = torch.tensor(walk(400), dtype=torch.float32)
        x, y = values[:-1].unfold(0, 12, 1), values[12:]
        order = torch.randperm(len(y)) if at_random else torch.arange(len(y))
        train, test = order[:300], order[300:]
        fit(TensorDataset(x[train], y[train]), TensorDataset(x[test], y[test]), nn.Linear(12, 1), epochs=2)

    told = answer(tmp_path, SplitByTime, loop)
    assert told["outcome"] == ("random_over_time" if at_random else "unclear"), told


def test_a_training_set_that_is_scored_too_is_no_split(tmp_path: Any) -> None:
    def loop() -> None:
        values = torch.tensor(walk(400), dtype=torch.float32)
        rows = TensorDataset(values[:-1].unfold(0, 12, 1), values[12:])
        fit(rows, rows, nn.Linear(12, 1), epochs=2)

    assert answer(tmp_path, SplitByTime, loop)["outcome"] == "unclear"


def test_inputs_in_the_thousands_are_far_off(tmp_path: Any) -> None:
    rows = TensorDataset(10_000 * torch.randn(128, 6), torch.randn(128))
    assert answer(tmp_path, InputScale, lambda: fit(rows, rows, nn.Linear(6, 1)))["outcome"] == "far_off"
