"""Examples that are turned round at random where direction tells the class, and augmentation that leaves it alone."""

from collections.abc import Callable

import pytest
import torch
from sklearn import datasets
from subjects_data import cut, figures, outcome, why
from torch import Tensor, nn

from clew.exams.subject import Subject

Data = tuple[Tensor, Tensor]
SIDE = 24


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slopes(count: int, seed: int) -> Data:
    """Streaks that rise or fall, anywhere in a picture, and two kinds of bars that have no direction."""
    draw = drawn(seed)
    y = torch.arange(count) % 4
    where = torch.randint(0, SIDE, (count, 1, 1), generator=draw)
    down, right = torch.arange(SIDE).view(1, SIDE, 1), torch.arange(SIDE).view(1, 1, SIDE)
    kinds = [down + right, down - right, down + 0 * right, right + 0 * down]
    along = torch.stack([kind.expand(1, SIDE, SIDE)[0] for kind in kinds])[y]
    picture = (((along + where) % SIDE) < 3).float()
    return picture + 0.3 * torch.randn(picture.shape, generator=draw), y


def chirps(count: int, seed: int) -> Data:
    """Tones that rise or fall."""
    draw = drawn(seed)
    y = torch.arange(count) % 2
    time = torch.linspace(0, 1, 512).view(1, -1)
    rate = torch.where(y == 0, 60.0, -60.0).view(-1, 1)
    start = torch.where(y == 0, 20.0, 140.0).view(-1, 1)
    wave = torch.sin(6.283 * (start * time + rate * time**2 + torch.rand(count, 1, generator=draw)))
    return wave + 0.2 * torch.randn(wave.shape, generator=draw), y


def digits(count: int, seed: int) -> Data:
    held = datasets.load_digits()
    order = torch.randperm(len(held.target), generator=drawn(seed))[:count]
    return torch.tensor(held.images).float()[order], torch.tensor(held.target)[order]


def half(x: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
    chosen = torch.rand(len(x), generator=drawn(9)) < 0.5
    return torch.where(chosen.view(-1, *[1] * (x.dim() - 1)), turn(x), x)


def turned(data: Data) -> Data:
    return half(data[0], lambda x: x.flip(-1)), data[1]


def turned_with_its_label(data: Data) -> Data:
    chosen = torch.rand(len(data[0]), generator=drawn(9)) < 0.5
    swapped = torch.where(data[1] < 2, 1 - data[1], data[1])
    x = torch.where(chosen.view(-1, *[1] * (data[0].dim() - 1)), data[0].flip(-1), data[0])
    return x, torch.where(chosen, swapped, data[1])


def moved(data: Data) -> Data:
    return half(data[0], lambda x: x.roll(5, -1)), data[1]


def noisy_and_loud(data: Data) -> Data:
    x = 1.4 * data[0] + 0.2 + 0.5 * torch.randn(data[0].shape, generator=drawn(3))
    return x, data[1]


def negated(data: Data) -> Data:
    return half(data[0], torch.neg), data[1]


def mixed_labels(data: Data) -> Data:
    return data[0], data[1][torch.randperm(len(data[1]), generator=drawn(2))]


def kept(data: Data) -> Data:
    return data


def subject(make: Callable[[int, int], Data], change: Callable[[Data], Data], count: int = 384) -> Subject:
    x, y = change(make(count, 0))
    model = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 10))
    return Subject(model, nn.CrossEntropyLoss(), cut(x, y), val_batches=cut(*make(256, 1)))


@pytest.mark.parametrize("make", [slopes, chirps])
def test_turned_round_at_random(make: Callable[[int, int], Data]) -> None:
    held = subject(make, turned)
    assert outcome("mirrored_classes", held) == "turned"
    assert figures("mirrored_classes", held)["classes"] == "0, 1"


def test_large_pictures_are_made_smaller() -> None:
    def large(count: int, seed: int) -> Data:
        x, y = slopes(count, seed)
        return x.repeat_interleave(5, 1).repeat_interleave(5, 2)[:, None].expand(-1, 3, -1, -1), y

    assert outcome("mirrored_classes", subject(large, turned, 256)) == "turned"
    assert outcome("mirrored_classes", subject(large, kept, 256)) == "kept"


@pytest.mark.parametrize("change", [kept, turned_with_its_label, moved, noisy_and_loud, mixed_labels])
def test_slopes_that_stay_what_they_are(change: Callable[[Data], Data]) -> None:
    assert outcome("mirrored_classes", subject(slopes, change)) == "kept"


@pytest.mark.parametrize("change", [kept, turned_with_its_label, noisy_and_loud, negated])
def test_chirps_that_stay_what_they_are(change: Callable[[Data], Data]) -> None:
    assert outcome("mirrored_classes", subject(chirps, change)) == "kept"


def test_classes_that_have_no_direction_may_be_turned() -> None:
    def bars(count: int, seed: int) -> Data:
        x, y = slopes(2 * count, seed)
        return x[y > 1], y[y > 1] - 2

    assert outcome("mirrored_classes", subject(bars, turned)) == "kept"


@pytest.mark.parametrize("change", [kept, moved, noisy_and_loud])
def test_digits_are_left_in_peace(change: Callable[[Data], Data]) -> None:
    assert outcome("mirrored_classes", subject(digits, change, 768)) == "kept"


def test_tables_and_few_examples_are_unclear() -> None:
    def table(count: int, seed: int) -> Data:
        return torch.randn(count, 8, generator=drawn(seed)), torch.arange(count) % 2

    assert "neither images nor signals" in why("mirrored_classes", subject(table, kept))
    few = Subject(nn.Flatten(), nn.CrossEntropyLoss(), cut(*slopes(32, 0)), val_batches=cut(*slopes(32, 1)))
    assert "too few examples" in why("mirrored_classes", few)
