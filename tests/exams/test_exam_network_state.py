"""Exams of units, weights and modes."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_subjects import Convolutions, Taped, classes, figures, outcome, perceptron, pictures, places, seeded, why
from torch import nn

from clew.exams.checks.eval_repeat import difference
from clew.exams.checks.unit_symmetry import twins
from clew.exams.subject import Subject


def of(model: nn.Module, batches: Any = None, **settings: Any) -> Subject:
    return Subject(model, F.cross_entropy, batches or classes(), **settings)


def fitted(model: nn.Module, batches: Any, steps: int, training: bool = True) -> nn.Module:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(steps):
            given, wanted = batches[step % len(batches)]
            optimizer.zero_grad()
            F.cross_entropy(model.train(training)(given), wanted).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model


# --- activation_zero_share


def drowned(model: nn.Module, name: str, units: int) -> nn.Module:
    with torch.no_grad():
        dict(model.named_parameters())[name][:units] = -50.0
    return model


def test_dead_units_are_counted_as_by_hand() -> None:
    model = drowned(perceptron(), "0.bias", 60)
    subject = of(model)
    assert outcome("activation_zero_share", subject) == "dead"
    hidden = np.concatenate([model[:2](given).detach().numpy() for given, _ in classes()])  # type: ignore[index]
    assert figures("activation_zero_share", subject)["largest_share_of_silent_units"] == pytest.approx(
        (hidden == 0).all(0).mean()
    )
    assert places("activation_zero_share", subject)[0].module == "1"


def test_functions_and_channels_are_seen() -> None:
    subject = of(drowned(seeded(Convolutions), "second.bias", 30), pictures())
    assert figures("activation_zero_share", subject)["largest_share_of_silent_units"] == pytest.approx(30 / 32)
    assert (places("activation_zero_share", subject)[0].file or "").endswith("network_subjects.py")


def test_a_captured_rectifier_is_seen() -> None:
    subject = Taped(classes())
    drowned(subject.model, "0_bias", 64)
    assert outcome("activation_zero_share", subject) == "dead"
    assert places("activation_zero_share", subject)[0].line == 10


def test_few_examples_and_no_rectifier_are_unclear() -> None:
    few = of(drowned(perceptron(), "0.bias", 60), classes(8, batches=1))
    assert "too few" in why("activation_zero_share", few)
    assert "no ReLU" in why("activation_zero_share", of(nn.Linear(20, 10)))


def test_zeros_of_dropout_and_leaky_rectifiers_are_no_dead_units() -> None:
    model = seeded(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.9)).append(
            nn.Linear(64, 10)
        )
    )
    assert outcome("activation_zero_share", of(model)) == "alive"


# --- activation_saturation


def squashed(kind: type[nn.Module], scale: float) -> nn.Module:
    model = seeded(lambda: nn.Sequential(nn.Linear(20, 32), kind(), nn.Linear(32, 32), kind(), nn.Linear(32, 10)))
    with torch.no_grad():
        model[0].weight.mul_(scale)  # type: ignore[index]
    return model


@pytest.mark.parametrize("kind", [nn.Tanh, nn.Sigmoid])
def test_pinned_values_are_counted_as_by_hand(kind: type[nn.Module]) -> None:
    model = squashed(kind, 60.0)
    found = figures("activation_saturation", of(model))
    hidden = np.concatenate([model[:2](given).detach().numpy() for given, _ in classes()])  # type: ignore[index]
    share = (np.abs(hidden) > 0.99).mean() if kind is nn.Tanh else ((hidden < 0.01) | (hidden > 0.99)).mean()
    assert found["largest_share_of_pinned_values"] == pytest.approx(share, abs=1e-6)
    assert outcome("activation_saturation", of(model)) == "saturated"
    assert outcome("activation_saturation", of(squashed(kind, 1.0))) == "free"


def test_outputs_and_gates_are_not_hidden_units() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.value, self.head = nn.Linear(20, 32), nn.Linear(20, 32), nn.Linear(32, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(torch.sigmoid(100 * self.gate(x)) * self.value(x))
            return out

    assert figures("activation_saturation", of(seeded(Gated)))["layers"] == 0

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output, F.one_hot(target, 10).float())

    sure = Subject(nn.Sequential(squashed(nn.ReLU, 1e3), nn.Sigmoid()), loss, classes())
    assert figures("activation_saturation", sure)["layers"] == 0


# --- weight_distribution


def test_weights_that_run_away_collapse_or_are_alike_are_odd() -> None:
    away = of(perceptron(), optimizer=lambda held: torch.optim.Adam(held, lr=10.0))
    assert outcome("weight_distribution", away) == "odd"
    decayed = of(perceptron(), optimizer=lambda held: torch.optim.SGD(held, lr=0.5, weight_decay=1.9))
    assert outcome("weight_distribution", decayed) == "odd"
    alike = perceptron()
    nn.init.constant_(alike[2].weight, 0.1)  # type: ignore[index]
    assert outcome("weight_distribution", of(alike)) == "odd"
    assert places("weight_distribution", of(alike))[0].parameter == "2.weight"


def test_a_zero_head_and_a_small_one_are_usual() -> None:
    zero, small = perceptron(), perceptron()
    nn.init.zeros_(zero[4].weight)  # type: ignore[index]
    nn.init.normal_(small[4].weight, std=1e-3)  # type: ignore[index]
    assert outcome("weight_distribution", of(zero)) == "usual"
    assert outcome("weight_distribution", of(small)) == "usual"


def test_a_model_without_matrices_is_unclear() -> None:
    frozen = perceptron().requires_grad_(False)
    frozen[4].bias.requires_grad_(True)  # type: ignore[index]
    assert "no weight matrix" in why("weight_distribution", of(frozen))


# --- unit_symmetry


def constant(value: float) -> nn.Module:
    model = perceptron()
    for parameter in model.parameters():
        nn.init.constant_(parameter, value)
    return model


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_equal_weights_stay_equal(value: float) -> None:
    subject = of(constant(value))
    assert outcome("unit_symmetry", subject) == "identical_units"
    assert figures("unit_symmetry", subject)["share"] == 1.0


def test_a_zero_head_and_classes_that_never_occur_are_distinct() -> None:
    model = perceptron()
    nn.init.zeros_(model[4].weight)  # type: ignore[index]
    two = [(given, wanted % 2) for given, wanted in classes()]
    assert outcome("unit_symmetry", of(model, two)) == "distinct"


def test_a_model_without_hidden_units_is_unclear() -> None:
    assert "no hidden" in why("unit_symmetry", of(nn.Linear(20, 10)))


def test_twins_are_those_of_numpy() -> None:
    source = torch.Generator().manual_seed(0)
    weight = torch.randn(40, 7, generator=source)
    weight[11] = weight[3]
    weight[12] = weight[3]
    weight[30] = weight[4]
    _, counts = np.unique(weight.numpy(), axis=0, return_counts=True)
    assert twins(weight) == pytest.approx(counts[counts > 1].sum() / 40)


# --- capacity_doubling


def narrow(units: int) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(20, units), nn.Tanh(), nn.Linear(units, 10)))


def test_a_bottleneck_is_lifted_by_a_second_copy() -> None:
    assert outcome("capacity_doubling", of(narrow(3))) == "wider_helps"


def test_a_wide_model_and_one_with_another_fault_are_not_helped() -> None:
    assert figures("capacity_doubling", of(perceptron()))["fitted"] is True

    def twice(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output.softmax(1), target)

    assert outcome("capacity_doubling", Subject(narrow(16), twice, classes(batches=1))) == "no_help"


def test_a_narrow_autoencoder_is_narrow_on_purpose() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 20)))
    same = [(given, given) for given, _ in classes()]
    assert "on purpose" in why("capacity_doubling", Subject(model, F.mse_loss, same))


# --- eval_repeat


class AlwaysDrops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(20, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(F.dropout(F.relu(self.first(x)), 0.5))
        return out


class Counts(nn.Module):
    """Every pass moves it."""

    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(20, 10)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out: torch.Tensor = self.layer(x) * self.calls
        return out


def test_dropout_that_stays_on_varies() -> None:
    subject = of(seeded(AlwaysDrops))
    assert outcome("eval_repeat", subject) == "varies"
    assert places("eval_repeat", subject)[0].symbol == "forward"


def test_a_state_that_passes_move_varies() -> None:
    subject = of(Counts())
    assert figures("eval_repeat", subject)["largest_relative_difference"] == pytest.approx(1.0)
    assert figures("eval_repeat", subject)["draws"] is None


def test_dropout_of_training_mode_is_no_matter() -> None:
    found = figures("eval_repeat", of(seeded(Convolutions), pictures()))
    assert found["largest_relative_difference"] == 0.0
    assert found["in_training"] > 0.1


def test_the_difference_is_that_of_numpy() -> None:
    source = torch.Generator().manual_seed(0)
    one, other = torch.randn(5, 4, generator=source), torch.randn(5, 4, generator=source)
    wanted = np.abs(one.numpy() - other.numpy()).max() / np.abs(one.numpy()).max()
    assert difference([one], [other]) == pytest.approx(wanted)
    assert np.isnan(difference([one], [one / 0]))


# --- train_eval_same_batch


def normalised() -> nn.Module:
    layers = [nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def test_statistics_of_three_examples_leave_a_gap() -> None:
    tiny = classes(3, batches=60)
    assert outcome("train_eval_same_batch", of(fitted(seeded(normalised), tiny, 600), tiny)) == "large_gap"


def test_statistics_that_lag_and_dropout_leave_none() -> None:
    assert outcome("train_eval_same_batch", of(fitted(seeded(normalised), classes(64), 5), classes(64))) == "small_gap"
    dropping = seeded(lambda: nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Dropout(0.6), nn.Linear(128, 10)))
    found = figures("train_eval_same_batch", of(fitted(dropping, classes(), 300)))
    assert found["training"] > 1.5 * found["eval"]
    assert found["larger_over_smaller_loss"] < 1.1


def test_a_loss_below_zero_is_unclear() -> None:
    def negative(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(output, target) - 10

    assert "below zero" in why("train_eval_same_batch", Subject(perceptron(), negative, classes()))


def test_statistics_that_are_not_finite_are_a_gap() -> None:
    model = seeded(normalised)
    model[1].running_mean.fill_(float("nan"))  # type: ignore[index]
    assert outcome("train_eval_same_batch", of(model)) == "large_gap"
