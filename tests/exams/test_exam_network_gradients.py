"""Exams of gradients and of values that are not finite."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_subjects import classes, figures, outcome, perceptron, places, seeded, why
from scipy.optimize import approx_fprime
from torch import nn

from clew.exams.checks.gradient_by_depth import decades, first_bad
from clew.exams.checks.gradient_check import difference
from clew.exams.lab import Lab
from clew.exams.subject import Subject


def deep(depth: int, between: type[nn.Module], scale: float = 1.0) -> nn.Module:
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [nn.Linear(20, 20), between()]
        model = nn.Sequential(*layers, nn.Linear(20, 10))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1 and not name.startswith(str(2 * depth)):
                    parameter.mul_(scale)
        return model

    return seeded(make)


class Cut(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(20, 32), nn.Linear(32, 32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.first(x)).detach()
        out: torch.Tensor = self.head(F.relu(self.second(h)))
        return out


# --- gradient_by_depth


def test_sigmoids_in_a_row_lose_the_gradient() -> None:
    subject = Subject(deep(10, nn.Sigmoid), F.cross_entropy, classes())
    assert outcome("gradient_by_depth", subject) == "vanishing"
    assert outcome("gradient_by_depth", Subject(deep(3, nn.Tanh), F.cross_entropy, classes())) == "even"


def test_the_place_is_the_layer_where_it_is_first_lost() -> None:
    model = deep(10, nn.Sigmoid)
    found = places("gradient_by_depth", Subject(model, F.cross_entropy, classes()))[0].parameter
    copy = model.train()
    sum(F.cross_entropy(copy(x), y) for x, y in classes()[:2]).backward()  # type: ignore[union-attr]
    sizes = {
        name: float(np.sqrt(np.mean(np.square(parameter.grad.numpy().astype(np.float64)))))  # type: ignore[union-attr]
        for name, parameter in copy.named_parameters()
        if parameter.dim() > 1
    }
    last = max(list(sizes.values())[-2:])
    assert found == [name for name, size in sizes.items() if size < 1e-3 * last][-1]


def test_saturating_layers_with_large_weights_blow_it_up() -> None:
    subject = Subject(deep(30, nn.Tanh, 12.0), F.cross_entropy, classes())
    assert outcome("gradient_by_depth", subject) == "exploding"


def test_a_detached_layer_gets_none() -> None:
    subject = Subject(seeded(Cut), F.cross_entropy, classes())
    assert outcome("gradient_by_depth", subject) == "zero"
    assert places("gradient_by_depth", subject)[0].parameter == "first.weight"


def test_a_head_that_starts_at_zero_and_frozen_layers_are_sound() -> None:
    model = perceptron()
    nn.init.zeros_(model[4].weight)  # type: ignore[index]
    assert outcome("gradient_by_depth", Subject(model, F.cross_entropy, classes())) == "even"
    frozen = perceptron()
    frozen[0].requires_grad_(False)  # type: ignore[index]
    assert outcome("gradient_by_depth", Subject(frozen, F.cross_entropy, classes())) == "even"


def test_a_part_that_is_never_called_is_no_first_layer() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused, self.net = nn.Linear(20, 20), perceptron()

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x)

    assert figures("gradient_by_depth", Subject(seeded(Spare), F.cross_entropy, classes()))["first"] == "net.0.weight"


def test_one_layer_and_a_loss_at_its_bottom_are_unclear() -> None:
    assert "fewer than two" in why("gradient_by_depth", Subject(nn.Linear(20, 10), F.cross_entropy, classes()))

    def nothing(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output * 0).sum() + 0 * target.sum()

    assert "nothing is left" in why("gradient_by_depth", Subject(perceptron(), nothing, classes()))


def test_decades_and_the_halving() -> None:
    assert decades([1e-5, 1e-3, 1e-1, 1.0]) == pytest.approx(-5)
    assert decades([0.0, 1.0]) == -math.inf
    assert math.isnan(decades([1.0, math.inf]))
    assert first_bad([("a", 0.0), ("b", 0.0), ("c", 1.0), ("d", 1.0)]) == "b"
    assert first_bad([("a", 1e9), ("b", 1e5), ("c", 10.0), ("d", 1.0)]) == "b"


# --- gradient_check


class HalfWrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.saved_tensors[0]  # forgets the 2


class Right(HalfWrong):
    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 2 * ctx.saved_tensors[0]


class Custom(nn.Module):
    def __init__(self, between: Any) -> None:
        super().__init__()
        self.first, self.head, self.between = nn.Linear(20, 16), nn.Linear(16, 10), between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.between(self.first(x)))
        return out


def custom(between: Any, **settings: Any) -> Subject:
    return Subject(seeded(lambda: Custom(between)), F.cross_entropy, classes(), **settings)


def test_a_wrong_backward_is_measured() -> None:
    wrong = figures("gradient_check", custom(HalfWrong.apply))
    assert wrong["largest_relative_error"] == pytest.approx(0.5, abs=1e-6)
    assert wrong["custom_functions"] == "HalfWrong"
    assert outcome("gradient_check", custom(HalfWrong.apply)) == "wrong"
    right = figures("gradient_check", custom(Right.apply))
    assert right["largest_relative_error"] < 1e-6


def test_a_gradient_that_is_cut_counts_where_the_optimiser_holds_the_weights() -> None:
    def make(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    cut = Subject(seeded(Cut), F.cross_entropy, classes(), optimizer=make)
    assert outcome("gradient_check", cut) == "wrong"
    assert figures("gradient_check", cut)["parameter"].startswith("first")
    # Features taken under no_grad are often meant, and then no optimiser holds what is before.
    assert outcome("gradient_check", Subject(seeded(Cut), F.cross_entropy, classes())) == "right"


def test_what_is_done_on_purpose_is_unclear() -> None:
    assert "straight-through" in why("gradient_check", custom(lambda h: h + (h.sign() - h).detach()))
    assert "detached on the way" in why("gradient_check", custom(lambda h: h * h.sigmoid().detach()))


def test_a_part_that_stays_in_single_precision_is_no_fault() -> None:
    assert "float32" in why("gradient_check", custom(lambda h: h.float().relu().to(h.dtype)))


def test_differences_agree_with_scipy() -> None:
    subject = custom(torch.tanh)
    lab = Lab(subject)
    model, batch = lab.fresh(training=False).double(), lab.batch
    batch = batch._replace(inputs=batch.inputs.double())
    head = dict(model.named_parameters())["head.bias"]

    def loss(shifted: Any) -> float:
        with torch.no_grad():
            before = head.clone()
            head.copy_(torch.from_numpy(shifted))
            value = lab.loss_value(model, batch)
            head.copy_(before)
            return value

    wanted = approx_fprime(head.detach().numpy().copy(), loss, 1e-7)
    for at in range(3):
        found = difference(lab, model, batch, head, at, 1.0)
        assert found is not None
        assert found == pytest.approx(wanted[at], rel=1e-4, abs=1e-7)


# --- first_nonfinite


class Layer(nn.Module):
    def __init__(self, then: Any) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(20, 10), then

    def forward(self, x: torch.Tensor) -> Any:
        return self.then(self.layer(x))


def made(then: Any, loss: Any = None, **settings: Any) -> Subject:
    return Subject(seeded(lambda: Layer(then)), loss or (lambda output, _: output.mean()), classes(), **settings)


def masked(h: torch.Tensor, whole_row: bool) -> torch.Tensor:
    hidden = torch.zeros_like(h, dtype=torch.bool)
    hidden[0, 0 if whole_row else 3 :] = True
    return h.masked_fill(hidden, -torch.inf).softmax(1)


@pytest.mark.parametrize(
    ("then", "seen", "operation"),
    [
        (lambda h: F.relu(h).log(), "in_log", "log"),
        (lambda h: h / (h - h).std(0), "in_division", "div"),
        (lambda h: h / h.sub(h), "in_division", "div"),
        (lambda h: (1000 * h).exp(), "in_overflow", "exp"),
        (lambda h: (h * 1e30) * 1e30, "in_overflow", "mul"),
        (lambda h: masked(h, True), "in_division", "softmax"),
        (lambda h: (h - 100) ** 0.5, "in_log", "pow"),
        (lambda h: (h * 0).pow(-1), "in_division", "pow"),
    ],
)
def test_the_operation_is_found(then: Any, seen: str, operation: str) -> None:
    assert outcome("first_nonfinite", made(then)) == seen
    assert figures("first_nonfinite", made(then))["operation"] == operation


def test_the_line_and_what_fed_it_are_told() -> None:
    subject = made(lambda h: F.relu(h).log())
    assert (places("first_nonfinite", subject)[0].file or "").endswith("test_exam_network_gradients.py")
    assert "zeros" in figures("first_nonfinite", subject)["fed"]


def test_only_what_the_loss_descends_from_counts() -> None:
    # The logarithm of zero is thrown away; the division is not.
    subject = made(lambda h: torch.where(h > 0, h, F.relu(h).log().clamp(min=-5)) / (h - h))
    assert figures("first_nonfinite", subject)["operation"] == "div"


def test_a_derivative_that_is_infinite_is_found() -> None:
    subject = made(lambda h: ((h * 0) ** 2).sum(1).sqrt())
    assert outcome("first_nonfinite", subject) == "in_division"
    assert "sqrt" in figures("first_nonfinite", subject)["operation"]
    trick = made(lambda h: torch.where(h.abs() > 1e9, (h * 0).log(), h))
    assert "log" in figures("first_nonfinite", trick)["operation"]


def test_data_come_before_operations() -> None:
    batches = classes()
    batches[2][0][3, 4] = math.nan
    subject = Subject(perceptron(), F.cross_entropy, batches)
    assert outcome("first_nonfinite", subject) == "in_data"
    assert figures("first_nonfinite", subject)["step"] == 2


def test_a_mean_over_no_target_is_a_division() -> None:
    batches = [(given, torch.full_like(wanted, -100)) for given, wanted in classes()]
    assert outcome("first_nonfinite", Subject(perceptron(), F.cross_entropy, batches)) == "in_division"


def test_infinities_on_purpose_are_sound() -> None:
    assert outcome("first_nonfinite", made(lambda h: masked(h, False))) == "none"
    assert outcome("first_nonfinite", made(lambda h: F.relu(h).add(1e-30).log().clamp(min=-50))) == "none"


def test_divergence_and_spoilt_weights_are_unclear() -> None:
    def squares(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(output, F.one_hot(target, 10).float())

    steep = Subject(perceptron(), squares, classes(), optimizer=lambda held: torch.optim.SGD(held, lr=1e3))
    assert "diverged" in why("first_nonfinite", steep)
    spoilt = perceptron()
    with torch.no_grad():
        spoilt[2].weight[0, 0] = math.nan  # type: ignore[index]
    assert "2.weight" in why("first_nonfinite", Subject(spoilt, F.cross_entropy, classes()))
