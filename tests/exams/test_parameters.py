"""Which parameters the loss reaches and training moves; and losses of models that differentiate on their way."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from network_subjects import ask, classes, figures, outcome, perceptron, places, sound, why
from torch import nn

from clew.exams.lab import Lab, apart, seed_all
from clew.exams.sit import missing, sit
from clew.exams.subject import Subject
from clew.records.clue import Saw

torch.set_num_threads(1)
BOTH = ("loss_reaches_parameters", "parameters_changed")
SOUND = dict(sound())


class Spare(nn.Module):
    """With a layer that nothing calls, or that is cut off."""

    def __init__(self, cut: bool) -> None:
        super().__init__()
        self.first, self.last, self.spare, self.cut = nn.Linear(20, 32), nn.Linear(32, 10), nn.Linear(20, 32), cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x) + (self.spare(x).detach() if self.cut else 0.0)
        out: torch.Tensor = self.last(torch.relu(hidden))
        return out


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("exam", BOTH)
def test_a_layer_without_a_gradient_is_named(exam: str, cut: bool) -> None:
    held = Subject(Spare(cut), nn.CrossEntropyLoss(), classes())
    assert outcome(exam, held) == ("some_missing" if exam == "loss_reaches_parameters" else "some_never")
    assert [place.parameter for place in places(exam, held)] == ["spare.weight", "spare.bias"]


def test_what_the_optimiser_does_not_hold_does_not_train() -> None:
    model = perceptron()
    held = Subject(model, nn.CrossEntropyLoss(), classes(), torch.optim.SGD(list(model.parameters())[2:], 0.1))
    assert outcome("loss_reaches_parameters", held) == "all"
    assert outcome("parameters_changed", held) == "some_never"
    assert figures("parameters_changed", held)["unchanged"] == 2


def test_a_loss_without_a_graph_reaches_nothing() -> None:
    held = Subject(perceptron(), lambda output, target: F.cross_entropy(output.detach(), target), classes())
    assert outcome("loss_reaches_parameters", held) == "none"
    assert outcome("parameters_changed", held) == "none"
    answer = ask("loss_reaches_parameters", held).answer
    assert isinstance(answer, Saw)
    assert "has no graph" in answer.says


def test_a_loss_of_something_else_reaches_nothing() -> None:
    stray = torch.zeros((), requires_grad=True)
    held = Subject(perceptron(), lambda output, target: (output.detach().mean() * stray) + 0 * target.sum(), classes())
    assert outcome("loss_reaches_parameters", held) == "none"


@pytest.mark.parametrize("exam", BOTH)
@pytest.mark.parametrize("name", SOUND)
def test_sound_subjects_train_everything(exam: str, name: str) -> None:
    assert outcome(exam, SOUND[name]) == "all"


@pytest.mark.parametrize("exam", BOTH)
def test_frozen_layers_are_left_alone(exam: str) -> None:
    model = perceptron()
    for parameter in list(model.parameters())[:2]:
        parameter.requires_grad_(False)
    assert outcome(exam, Subject(model, nn.CrossEntropyLoss(), classes())) == "all"


def test_zero_starts_and_warm_ups_are_no_fault() -> None:
    model = perceptron()
    last: Any = list(model.parameters())[-2]
    nn.init.zeros_(last)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    assert optimizer.param_groups[0]["lr"] == 0
    assert outcome("parameters_changed", Subject(model, nn.CrossEntropyLoss(), classes(), optimizer)) == "all"


@pytest.mark.parametrize("exam", BOTH)
def test_a_model_that_takes_no_gradient_is_unclear(exam: str) -> None:
    model = perceptron().requires_grad_(False)
    assert "takes a gradient" in why(exam, Subject(model, nn.CrossEntropyLoss(), classes()))


def test_a_loss_that_is_not_finite_is_unclear() -> None:
    held = Subject(perceptron(), lambda output, target: F.cross_entropy(output, target) / 0, classes())
    assert "not finite" in why("parameters_changed", held)


# --- what the lab and the sitting do


class Residual(nn.Module):
    """u'' on the way, as in the residual of a differential equation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_(True)
        value: torch.Tensor = self.body(x)
        (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return slope + value


def test_a_model_that_differentiates_gets_its_graph_and_the_same_random_numbers() -> None:
    inputs = torch.linspace(0, 1, 12)[:, None]
    held = Subject(Residual(), lambda output, _: output.square().mean(), [(inputs, None)])
    with apart():
        lab = Lab(held)
        model = lab.fresh()
        seed_all(3)
        first, second = lab.loss_value(model, lab.batch), lab.loss_value(model, lab.batch)
        seed_all(3)
        again = [lab.loss(model, lab.batch).item() for _ in range(2)]
        assert [first, second] == again
        assert lab.differentiates
        assert len(lab.fit(model, [lab.batch], 3)) == 4
    assert outcome("overfit_one_batch", held) != "unclear"


def test_other_errors_are_not_hidden() -> None:
    held = Subject(nn.Linear(3, 2), nn.CrossEntropyLoss(), classes())
    lab = Lab(held)
    model = lab.fresh()
    with apart(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        lab.loss_value(model, lab.batch)


class Own(nn.Module):
    def __init__(self, key: str) -> None:
        super().__init__()
        self.body, self.key = nn.Linear(20, 10), key

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {self.key: F.cross_entropy(self.body(inputs), labels)}


def test_a_loss_that_the_model_makes_counts_as_one() -> None:
    from clew.exams.exam import find_exam

    given = [{"inputs": inputs, "labels": labels} for inputs, labels in classes()]
    held = find_exam("loss_reaches_parameters")
    assert missing(held, Subject(Own("loss"), None, given)) == ""
    assert missing(held, Subject(Own("cost"), None, given)) == "needs loss, which the subject does not have"
    assert outcome("loss_reaches_parameters", Subject(Own("loss"), None, given)) == "all"


def test_what_a_person_should_see_is_kept(tmp_path: Any) -> None:
    from clew.exams.exam import find_exam

    held = Subject(perceptron(), nn.CrossEntropyLoss(), classes())
    sit(find_exam("confident_errors"), held, keep=str(tmp_path))
    assert list(tmp_path.glob("confident_errors/*/index.tsv"))
    sit(find_exam("confident_errors"), held)
