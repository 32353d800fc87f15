"""Trainings that differ in their data alone: permuted labels, other inputs, more examples."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from subjects_data import (
    HEALTHY,
    Bagged,
    Small,
    by_token,
    classifier,
    cnn,
    cut,
    line,
    mlp,
    outcome,
    pictures,
    rings,
    sentences,
    shuffled,
    source,
    table,
    text,
    trained,
    why,
)
from torch import Tensor, nn

from clew.exams.batches import Batch
from clew.exams.checks._data_runs import knows, pool_of, scramble
from clew.exams.checks.input_ablation import changed
from clew.exams.checks.label_permutation import gains_alike, relabelled
from clew.exams.checks.learning_curve import Errors, _judge
from clew.exams.lab import Lab
from clew.exams.subject import Subject
from clew.records.clue import Saw, Unclear

CE = nn.CrossEntropyLoss
X, Y = table()
ROWS = text(128)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Labelled(nn.Module):
    """Takes its labels among its inputs, and returns its loss, as models of a well-known library do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = mlp()

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        out = self.body(x)
        return {"loss": F.cross_entropy(out, labels), "logits": out}


def labelled(labels: Tensor) -> Subject:
    return Subject(Labelled(), None, [({"x": x, "labels": y}, None) for x, y in cut(X, labels)])


PARTED: dict[str, Callable[[], Subject]] = {
    "table": lambda: Subject(mlp(), CE(), cut(X, shuffled(Y))),
    "pictures": lambda: Subject(cnn(), CE(), cut(pictures()[0], shuffled(pictures()[1]))),
    "sentences": lambda: Subject(Bagged(), CE(), cut(sentences()[0], shuffled(sentences()[1]))),
    "values": lambda: Subject(mlp(6, 1), nn.MSELoss(), cut(line()[0], shuffled(line()[1]))),
    "next tokens": lambda: Subject(Small(), by_token, cut(ROWS[:, :-1], shuffled(ROWS[:, 1:]))),
    "constant inputs": lambda: Subject(mlp(), CE(), cut(torch.ones(256, 8), Y)),
    "noise": lambda: Subject(mlp(), CE(), cut(torch.randn(256, 8, generator=source(5)), Y)),
}
RELATED = [name for name in HEALTHY if name not in ("autoencoder", "tiny")]


# --- label_permutation


@pytest.mark.parametrize("name", PARTED)
def test_labels_without_relation_are_learned_as_fast_as_any(name: str) -> None:
    """Or neither set is learned in so few steps, and then nothing is said."""
    wanted = {"as_fast"} if name in ("pictures",) else {"as_fast", "unclear"}
    assert outcome("label_permutation", PARTED[name]()) in wanted


@pytest.mark.parametrize("name", RELATED)
def test_real_labels_are_the_easier_lesson(name: str) -> None:
    assert outcome("label_permutation", HEALTHY[name]()) == "slower"


def test_targets_that_are_hard_to_tell_are_not_taken_for_any_others() -> None:
    """The noise of a diffusion step: little of it is learned soon, and yet more than of noise dealt out anew."""
    assert not gains_alike(real=0.881, permuted=0.917, without=1.0)
    assert gains_alike(real=0.881, permuted=0.885, without=1.0)
    assert gains_alike(real=0.9, permuted=0.88, without=1.0)


def test_targets_far_from_zero_are_first_met_on_the_average() -> None:
    """Miles per gallon from a network that starts at zero: sixty steps go into the mean, whatever the labels."""
    x, y = line()
    assert "neither" in why("label_permutation", Subject(mlp(6, 1), nn.MSELoss(), cut(x, y + 30)))


def test_a_model_that_memorised_wrong_labels_is_made_to_forget_them() -> None:
    wrong = shuffled(Y)
    subject = Subject(trained(mlp(width=96), CE(), cut(X, wrong), 600), CE(), cut(X, wrong))
    assert outcome("label_permutation", subject) == "as_fast"


def test_labels_among_the_inputs_are_permuted_too() -> None:
    subject = labelled(Y)
    subject.model.loss_function = None  # type: ignore[assignment]  # how such models show that they have a loss
    assert outcome("label_permutation", subject) == "slower"
    pool = pool_of(subject.batches)
    assert pool is not None
    order = torch.randperm(pool.examples, generator=source())
    held = relabelled(pool, order)
    assert torch.equal(held.inputs["labels"], pool.batch.inputs["labels"][order])
    assert torch.equal(held.inputs["x"], pool.batch.inputs["x"])


def test_small_batches_no_labels_and_one_label_are_unclear() -> None:
    assert "memorisation" in why("label_permutation", HEALTHY["tiny"]())
    assert "no label per example" in why("label_permutation", HEALTHY["autoencoder"]())
    assert "too few" in why("label_permutation", Subject(mlp(), CE(), cut(X, 0 * Y)))
    frozen = mlp().requires_grad_(False)
    assert "gradient" in why("label_permutation", Subject(frozen, CE(), cut(X, Y)))


# --- input_ablation


@pytest.mark.parametrize("name", [name for name in PARTED if name != "sentences"])
def test_inputs_that_do_no_more_than_noise(name: str) -> None:
    assert outcome("input_ablation", PARTED[name]()) == "same_loss"


def test_a_model_that_drops_its_input() -> None:
    class Deaf(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(0 * x)
            return out

    assert outcome("input_ablation", Subject(Deaf(), CE(), cut(X, Y))) == "same_loss"


def test_one_picture_drawn_over_and_over_says_nothing() -> None:
    picture = torch.rand(1, 12).repeat(256, 1)
    subject = Subject(mlp(8, 12), nn.MSELoss(), cut(torch.randn(256, 8), picture))
    assert outcome("input_ablation", subject) == "unclear"


@pytest.mark.parametrize("name", RELATED)
def test_real_inputs_do_better_than_noise(name: str) -> None:
    assert outcome("input_ablation", HEALTHY[name]()) == "real_better"


def test_a_trained_model_does_better_too() -> None:
    assert outcome("input_ablation", Subject(trained(mlp(), CE(), cut(X, Y)), CE(), cut(X, Y))) == "real_better"


def test_no_target_and_a_tiny_batch_are_unclear() -> None:
    assert "computed from the inputs" in why("input_ablation", HEALTHY["autoencoder"]())
    assert "too few" in why("input_ablation", HEALTHY["tiny"]())


def test_what_is_put_in_place_of_inputs() -> None:
    tokens, values = torch.arange(40).view(8, 5), torch.randn(8, 3, generator=source()) * 4 + 10
    whole = Batch({"ids": tokens, "x": values, "attention_mask": torch.ones(8, 5), "labels": torch.arange(8)})
    pool = pool_of([whole])
    assert pool is not None
    every = torch.arange(8)
    for kind in ("noise", "permuted", "zero"):
        held = changed(whole, kind, pool, every, source(1)).inputs
        assert torch.equal(held["attention_mask"], whole.inputs["attention_mask"])
        assert torch.equal(held["labels"], whole.inputs["labels"])
        assert not torch.equal(held["x"], values)
        assert held["ids"].dtype == torch.long
        assert set(held["ids"].flatten().tolist()) <= set(range(40))
    rows = changed(whole, "permuted", pool, every, source(1)).inputs
    match = (rows["ids"][:, None] == tokens).all(2).float().argmax(1)
    assert torch.equal(rows["x"], values[match]), "inputs of one example stay together"


# --- learning_curve


def split(x: Tensor, y: Tensor, vx: Tensor, vy: Tensor, model: nn.Module, size: int = 32) -> Subject:
    return Subject(model, CE(), cut(x, y, size), val_batches=cut(vx, vy, size))


CURVES: dict[str, tuple[str, Callable[[], Subject]]] = {
    "too simple a model": ("both_high", lambda: split(*rings(), *rings(seed=2), nn.Linear(2, 2))),
    "parted labels": (
        "gap_stays",
        lambda: split(X, shuffled(Y), table(seed=1)[0], shuffled(table(seed=1)[1], 9), mlp(width=128)),
    ),
    "other validation": ("gap_stays", lambda: split(X, Y, -table(seed=1)[0], table(seed=1)[1], mlp())),
    "few data": ("gap_closes", lambda: split(*table(96, 40), *table(96, 40, seed=3), mlp(40), 16)),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_over_the_amount_of_data(name: str) -> None:
    wanted, make = CURVES[name]
    assert outcome("learning_curve", make()) == wanted


@pytest.mark.parametrize("name", ["classifier", "regressor", "tokens", "language model"])
def test_both_errors_are_low(name: str) -> None:
    assert outcome("learning_curve", HEALTHY[name]()) == "both_low"


def test_a_high_training_error_beside_a_low_one_on_validation_is_unclear() -> None:
    """As of a second model in the script, or of two scales: they cannot both be high."""
    assert isinstance(_judge([Errors(0.52, 0.07)] * 3, 185), Unclear)
    assert isinstance(_judge([Errors(0.52, 0.55)] * 3, 185), Saw)


def test_no_validation_and_few_examples_are_unclear() -> None:
    assert "validation" in why("learning_curve", HEALTHY["lopsided"]())
    few = Subject(mlp(), CE(), [(X[:32], Y[:32])], val_batches=cut(X, Y))
    assert "64 training" in why("learning_curve", few)


# --- the parts they share


def test_a_trained_model_is_known_by_its_loss_on_mixed_pairs() -> None:
    fresh = classifier()
    pool = pool_of(fresh.batches)
    assert pool is not None
    assert not knows(Lab(fresh), pool)
    assert knows(Lab(Subject(trained(mlp(), CE(), cut(X, Y)), CE(), cut(X, Y))), pool)


def test_scrambling_keeps_every_entry() -> None:
    model, before = mlp(), mlp()
    scramble(model, source())
    for one, two in zip(model.parameters(), before.parameters(), strict=True):
        assert torch.equal(one.flatten().sort().values, two.flatten().sort().values)
    assert not torch.equal(next(model.parameters()), next(before.parameters()))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("label_permutation", "slower"),
        ("input_ablation", "real_better"),
        ("learning_curve", "both_low"),
        ("poison_trace", "clean"),
    ],
)
def test_the_batch_size_of_the_model_is_kept(name: str, wanted: str) -> None:
    """A captured step may have its batch size written into a view."""

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = mlp()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(x.view(32, 8))
            return out

    assert outcome(name, Subject(Fixed(), CE(), cut(X, Y), val_batches=cut(*table(seed=1)))) == wanted


@pytest.mark.parametrize(("training", "outcome"), [(1.98, "unclear"), (0.9, "both_high")])
def test_a_loss_that_weighs_classes_says_nothing_of_unweighted_errors(training: float, outcome: str) -> None:
    curve = [Errors(training, 1.9)] * 3
    assert getattr(_judge(curve, 600), "outcome", "unclear") == outcome
