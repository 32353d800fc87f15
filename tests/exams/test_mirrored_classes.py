"""Two classes that are each other's mirror image, with and without flips in training."""

import pytest
import torch
from subjects_data import cut, outcome, says, trained
from torch import Tensor, nn

from clew.exams.subject import Subject

CE = nn.CrossEntropyLoss


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def arrows(count: int, seed: int, alike: bool = False) -> tuple[Tensor, Tensor]:
    """Ramps to the right (0), to the left (1), and two further classes that are their own mirror image."""
    source = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 4, (count,), generator=source)
    ramp = torch.linspace(-1, 1, 12)
    shapes = torch.stack([ramp, ramp if alike else -ramp, ramp.abs(), 1 - ramp.abs()])
    x = shapes[y][:, None, None, :].expand(-1, 1, 8, -1) + 0.3 * torch.randn(count, 1, 8, 12, generator=source)
    return x, y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 4))


def subject(flips: bool, alike: bool = False, other: str = "") -> Subject:
    x, y = arrows(4800, 1, alike)
    if flips:
        chosen = torch.rand(len(x), generator=torch.Generator().manual_seed(2)) < 0.5
        x = torch.where(chosen[:, None, None, None], x.flip(3), x)
    if other == "noisy":  # labels of two classes dealt out at random: confused, and no mirror is needed for it
        y = torch.where(y < 2, torch.randint(0, 2, y.shape, generator=torch.Generator().manual_seed(3)), y)
    held, truth = arrows(400, 4, alike)
    if other == "noisy":
        truth = torch.where(truth < 2, torch.randint(0, 2, truth.shape), truth)
    model = trained(network(), CE(), cut(x, y))
    return Subject(model, CE(), cut(x, y), val_batches=cut(held, truth))


def test_flips_that_swap_two_classes_are_seen() -> None:
    assert outcome("mirrored_classes", subject(flips=True)) == "swapped"
    assert "Mirrored along axis 3" in says("mirrored_classes", subject(flips=True))


def test_classes_that_are_told_apart_are_no_matter() -> None:
    assert outcome("mirrored_classes", subject(flips=False)) == "told_apart"


@pytest.mark.parametrize("kind", [{"alike": True}, {"other": "noisy"}], ids=["alike", "noisy labels"])
def test_classes_that_nothing_tells_apart_are_not_mirrored(kind: dict[str, object]) -> None:
    held = subject(flips=False, **kind)  # type: ignore[arg-type]
    assert outcome("mirrored_classes", held) in ("unclear", "told_apart")
