"""One term that starves another, or has no floor."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from network_subjects import outcome, values, why
from torch import Tensor, nn

from clew.exams.checks.capacity_doubling import several_outputs
from clew.exams.lab import Lab
from clew.exams.subject import Subject

Loss = Callable[[Tensor, Tensor], Any]


def subject(loss: Loss) -> Subject:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    return Subject(model, loss, values(), optimizer=partial(torch.optim.Adam, lr=1e-2))


def weighted(weight: float) -> Loss:
    def loss(output: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"fit": F.mse_loss(output, target), "size": weight * output.square().mean()}

    return loss


def test_a_term_that_learns_alone_and_not_with_the_others_is_starved() -> None:
    assert outcome("term_balance", subject(weighted(1000.0))) == "starved"


def test_a_term_with_a_floor_is_starved_too() -> None:
    """Cross-entropy with soft targets, for one, cannot fall far, however much is learned."""

    def loss(output: Tensor, target: Tensor) -> dict[str, Tensor]:
        fit = 0.5 * target.var() + 0.1 * F.mse_loss(output, target)
        return {"fit": fit, "size": 300.0 * output.square().mean()}

    assert outcome("term_balance", subject(loss)) == "starved"


def test_a_weight_that_is_too_small_for_plain_descent_starves_its_term() -> None:
    """Alone it must not be held back by its weight, or it would seem not to be learnable."""

    def weighing(weight: float) -> Loss:
        def loss(output: Tensor, target: Tensor) -> dict[str, Tensor]:
            return {
                "fit": weight * F.mse_loss(output[:, :1], target),
                "other": F.mse_loss(output[:, 1:], -target.abs()),
            }

        return loss

    for weight, expected in ((1e-4, "starved"), (1.0, "fed")):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))
        held = Subject(model, weighing(weight), values(), optimizer=partial(torch.optim.SGD, lr=0.01))
        assert outcome("term_balance", held) == expected


def test_terms_that_learn_side_by_side_are_fed() -> None:
    assert outcome("term_balance", subject(weighted(1e-3))) == "fed"


def test_what_cannot_be_told_is_unclear() -> None:
    assert "not a sum" in why("term_balance", subject(F.mse_loss))
    assert "below zero" in why("term_balance", subject(weighted(-0.1)))


def test_weights_in_the_loss_are_no_further_output() -> None:
    class Both(nn.Module):
        def __init__(self, twice: bool) -> None:
            super().__init__()
            self.layer, self.twice = nn.Linear(8, 1), twice

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            made = self.layer(x)
            return made, made.exp() if self.twice else self.layer.weight.square()

    def several(twice: bool) -> bool:
        held = Subject(Both(twice), lambda output, target: F.mse_loss(output[0], target), values())
        return several_outputs(Lab(held), held.batches[0])

    assert not several(False)
    assert several(True)
