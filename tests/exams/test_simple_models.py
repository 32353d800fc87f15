"""Simple models as a measure: what they find in validation and not in training, and where they beat the network."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from network_subjects import outcome, why
from torch import Tensor, nn

from clew.exams.batches import Batch
from clew.exams.subject import Subject


def examples(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 5, generator=generator)
    return x, x @ torch.tensor([[1.0], [2.0], [0.0], [-1.0], [0.5]])


def subject(spoil: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None, late: bool = True) -> Subject:
    """A linear task, with a model that has learned it or not."""
    torch.manual_seed(0)
    x, y = examples(256, 0)
    model = nn.Linear(5, 1)
    if late:
        with torch.no_grad():
            model.weight.copy_(torch.tensor([[1.0, 2.0, 0.0, -1.0, 0.5]]))
            model.bias.zero_()
    given = spoil(x, y) if spoil else (x, y)
    held_out = [Batch(*(part[at : at + 64] for part in examples(256, 1))) for at in range(0, 256, 64)]
    batches = [Batch(given[0][at : at + 64], given[1][at : at + 64]) for at in range(0, 256, 64)]
    return Subject(model, F.mse_loss, batches, val_batches=held_out)


def mixed(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Most of the targets belong to other inputs."""
    y = y.clone()
    y[: len(y) * 3 // 4] = y[: len(y) * 3 // 4].roll(7, 0)
    return x, y


def test_a_relation_that_only_validation_has_was_lost_in_training() -> None:
    assert outcome("label_signal", subject(mixed)) == "lost_in_training"
    assert outcome("label_signal", subject()) == "some"


def test_a_network_far_behind_a_linear_model() -> None:
    weak = subject(late=False)
    layer = weak.model
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.0]]))
    assert outcome("simple_baseline", weak) == "simple_better"
    assert outcome("simple_baseline", subject()) == "model_better"
    with torch.no_grad():
        layer.weight.mul_(-3)
    assert outcome("simple_baseline", weak) == "worse_than_constant"


def test_a_model_that_rebuilds_its_input_is_not_compared() -> None:
    x, _ = examples(256, 0)
    batches = [Batch(x[at : at + 64], x[at : at + 64]) for at in range(0, 256, 64)]
    held = Subject(nn.Linear(5, 5), F.mse_loss, batches[:2], val_batches=batches[2:])
    assert "autoencoder" in why("simple_baseline", held)


def clamped(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().clamp(max=0.05).mean()


def clamped_in_all(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output, target).clamp(max=0.05)


def insensitive(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target).abs() - 0.1).clamp(min=0).mean()


@pytest.mark.parametrize(("loss", "said"), [
    (clamped, "none_for_large"),
    (clamped_in_all, "none_for_large"),
    (insensitive, "reaches_all"),
    (F.huber_loss, "reaches_all"),
    (F.mse_loss, "reaches_all"),
])  # fmt: skip
def test_errors_that_get_no_gradient(loss: Callable[[Tensor, Tensor], Tensor], said: str) -> None:
    x, y = examples(64, 0)
    assert outcome("error_gradient", Subject(nn.Linear(5, 1), loss, [Batch(x, y)])) == said


def cut(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none").clamp(max=1.5).mean()


@pytest.mark.parametrize(("loss", "said"), [
    (cut, "none_for_large"), (F.cross_entropy, "reaches_all"), (F.multi_margin_loss, "reaches_all"),
])  # fmt: skip
def test_confident_mistakes_that_get_no_gradient(loss: Callable[[Tensor, Tensor], Tensor], said: str) -> None:
    x, _ = examples(60, 0)
    assert outcome("error_gradient", Subject(nn.Linear(5, 3), loss, [Batch(x, torch.arange(60) % 3)])) == said
