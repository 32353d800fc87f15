"""Exams of the loss: what guessing costs, what perfect answers cost, and whether one batch can be learned."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_subjects import classes, figures, outcome, perceptron, seeded, token_loss, tokens, values, why
from scipy.optimize import minimize
from subjects_data import Small
from torch import Tensor, nn

from clew.exams.batches import Batch
from clew.exams.checks._training_loss import Known, recognise
from clew.exams.checks._training_quiet import quiet
from clew.exams.checks.metric_oracle import agreeing
from clew.exams.checks.overfit_one_batch import consistent, entropy_after_beginnings, least_of_outputs, share
from clew.exams.lab import Lab
from clew.exams.subject import Subject


def of(loss: Callable[..., Tensor] | None, batches: Any = None, model: nn.Module | None = None, **more: Any) -> Subject:
    torch.set_num_threads(1)
    return Subject(model or perceptron(), loss, batches or classes(), **more)


def narrow(outputs: int = 1) -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, outputs)))


def known_of(subject: Subject) -> Known:
    found = recognise(Lab(subject), subject.copy(), subject.batches)
    assert isinstance(found, Known), found
    return found


def scaled(model: nn.Module, by: float) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(by)
    return model


def learned(subject: Subject, steps: int = 150, rate: float = 3e-3) -> Subject:
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=rate)
    for step in range(steps):
        batch = subject.batches[step % len(subject.batches)]
        optimizer.zero_grad()
        subject.value(subject.call(subject.model, batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return subject


# --- which loss it is


def in_words(output: Tensor, target: Tensor) -> Tensor:
    return -(output - output.logsumexp(1, keepdim=True)).gather(1, target[:, None]).mean()


KINDS: dict[str, tuple[Subject, str, float]] = {
    "mean": (of(F.cross_entropy), "cross-entropy", 1),
    "by hand": (of(in_words), "cross-entropy", 1),
    "sum": (of(lambda o, t: F.cross_entropy(o, t, reduction="sum")), "cross-entropy", 32),
    "flipped": (of(lambda o, t: -F.cross_entropy(o, t)), "cross-entropy", -1),
    "smoothed": (of(nn.CrossEntropyLoss(label_smoothing=0.1)), "cross-entropy", 1),
    "weighted": (of(nn.CrossEntropyLoss(weight=torch.linspace(0.2, 3, 10))), "weighted cross-entropy", 1),
    "raw": (of(F.nll_loss), "negative log-likelihood", 1),
    "twice": (
        of(lambda o, t: F.cross_entropy(o.softmax(1), t)),
        "cross-entropy of probabilities treated as logits",
        1,
    ),
    "tokens": (of(token_loss, tokens(), seeded(lambda: Small(50, 16))), "cross-entropy", 1),
    "squares": (of(F.mse_loss, values(), narrow()), "squared error", 1),
    "halves": (of(lambda o, t: 0.5 * (o - t).square().mean(), values(), narrow()), "squared error", 0.5),
    "absolute": (of(F.l1_loss, values(), narrow()), "absolute error", 1),
    "yes or no": (
        of(F.binary_cross_entropy_with_logits, [(x, (y > 4).float()[:, None]) for x, y in classes(32, 8)], narrow()),
        "binary cross-entropy",
        1,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_recognised_by_their_values(kind: str) -> None:
    subject, name, factor = KINDS[kind]
    found = known_of(subject)
    assert found.name == name
    assert found.factor == pytest.approx(factor, rel=1e-3)


def test_guesses_cost_what_numpy_says() -> None:
    labels = np.concatenate([target.numpy() for _, target in classes()])
    shares = np.bincount(labels, minlength=10) / len(labels)
    found = known_of(of(F.cross_entropy))
    assert found.high == pytest.approx(math.log(10))
    assert found.low == pytest.approx(-(shares[shares > 0] * np.log(shares[shares > 0])).sum())
    found = known_of(of(F.mse_loss, values(), narrow()))
    wanted = [target.numpy() for _, target in values()]
    assert found.low == pytest.approx(np.mean([np.var(held) for held in wanted]), rel=1e-5)


@pytest.mark.parametrize("weight", [None, torch.linspace(0.5, 2, 4)])
def test_the_lowest_smoothed_loss_is_what_scipy_finds(weight: Tensor | None) -> None:
    batches = classes(6, 8, 4, 1)
    loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2)
    target = batches[0][1]

    def value(flat: Any) -> float:
        wide = None if weight is None else weight.double()
        held = torch.tensor(flat).reshape(6, 4)
        return float(F.cross_entropy(held, target, weight=wide, label_smoothing=0.2))

    best = minimize(value, np.zeros(24), method="BFGS", options={"gtol": 1e-8})
    subject = of(loss, batches, narrow(4))
    assert known_of(subject).least == pytest.approx(best.fun, rel=1e-3)
    assert least_of_outputs(Lab(subject), subject.batches[0]) == pytest.approx(best.fun, rel=1e-3)


def test_other_losses_are_not_taken_for_known_ones() -> None:
    def focal(output: Tensor, target: Tensor) -> Tensor:
        each = F.cross_entropy(output, target, reduction="none")
        return ((1 - (-each).exp()) ** 2 * each).mean()

    for strange in (of(focal), of(lambda o, t: F.cross_entropy(3 * o, t)), of(lambda o, t: F.cross_entropy(o, t) / 4)):
        assert isinstance(recognise(Lab(strange), strange.copy(), strange.batches), str)


# --- loss_direction


@pytest.mark.parametrize("kind", KINDS)
def test_a_minus_before_a_known_loss_is_seen(kind: str) -> None:
    assert outcome("loss_direction", KINDS[kind][0]) == ("turned" if kind == "flipped" else "right")


def test_a_likelihood_by_hand_without_its_minus() -> None:
    assert outcome("loss_direction", of(lambda o, t: -in_words(o, t))) == "turned"
    assert outcome("loss_direction", of(lambda o, t: o.square().mean() + 0 * t.sum())) == "unclear"


# --- init_loss


def test_first_losses_far_from_a_guess_are_seen() -> None:
    assert outcome("init_loss", KINDS["sum"][0]) == "far_above"
    assert outcome("init_loss", KINDS["flipped"][0]) == "far_below"
    assert outcome("init_loss", KINDS["raw"][0]) == "far_below"
    assert outcome("init_loss", of(F.cross_entropy, model=scaled(perceptron(), 8))) == "far_above"
    far = [(x, y + 1000) for x, y in values()]
    assert outcome("init_loss", of(F.mse_loss, far, narrow())) == "far_above"
    assert figures("init_loss", KINDS["sum"][0])["direction"] == "above"


def test_a_sum_says_little_where_the_optimiser_divides_its_size_out() -> None:
    summed = partial(F.cross_entropy, reduction="sum")
    adam, plain = (of(summed, optimizer=partial(kind, lr=1e-3)) for kind in (torch.optim.Adam, torch.optim.SGD))
    assert outcome("init_loss", adam) == "unclear"
    assert outcome("init_loss", plain) == "far_above"


def test_a_last_bias_set_to_the_shares_is_a_guess_too() -> None:
    rare = [(x, (x[:, 0] > 1.5).float()[:, None]) for x, _ in classes(64, 8)]
    model = narrow()
    assert isinstance(model[-1], nn.Linear)  # type: ignore[index]
    with torch.no_grad():
        model[-1].bias.fill_(-2.7)  # type: ignore[index]
    subject = of(F.binary_cross_entropy_with_logits, rare, model)
    assert figures("init_loss", subject)["loss"] < 0.4
    assert outcome("init_loss", subject) == "at_chance"


def test_weights_masks_and_moderate_offsets_are_no_deviation() -> None:
    assert outcome("init_loss", KINDS["weighted"][0]) == "at_chance"
    masked = [(x, torch.where(torch.arange(16) % 3 > 0, y, -100)) for x, y in tokens()]
    assert outcome("init_loss", of(token_loss, masked, seeded(lambda: Small(50, 16)))) == "at_chance"
    shifted = [(x, y + 5) for x, y in values()]
    assert outcome("init_loss", of(F.mse_loss, shifted, narrow())) == "at_chance"


def test_what_has_learned_or_is_not_known_is_unclear() -> None:
    assert "trained" in why("init_loss", learned(of(F.cross_entropy)))
    assert "chance level" in why("init_loss", of(lambda o, t: F.cross_entropy(o, t) / 4))
    among_others = of(lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1) + 17.0)  # terms of other outputs
    assert "chance level" in why("init_loss", among_others)
    assert "nan" in why("init_loss", of(F.cross_entropy, [(x, torch.full_like(y, -100)) for x, y in classes()]))


# --- metric_oracle


def test_scores_that_perfect_answers_do_not_satisfy_are_seen() -> None:
    with pytest.warns(UserWarning, match="target size"):
        assert outcome("metric_oracle", of(F.mse_loss, values(column=False), narrow())) == "no_jump"
    masked = [(x, torch.full_like(y, -100)) for x, y in classes()]
    assert outcome("metric_oracle", of(F.cross_entropy, masked)) == "no_jump"
    wrong_axis = of(F.cross_entropy, classes(10), predict=lambda output: output.argmax(0))
    assert outcome("metric_oracle", wrong_axis) == "no_jump"
    one_off = of(F.cross_entropy, predict=lambda output: output.argmax(1) + 1)
    assert figures("metric_oracle", one_off)["share_right"] == 0


@pytest.mark.parametrize(("shifts", "answer"), [(1, "jumps"), (2, "other")], ids=["by the model", "twice"])
def test_a_model_that_shifts_its_labels_is_read_so(shifts: int, answer: str) -> None:
    """As models of transformers do with labels that they are given; a script that shifts them once more is wrong."""

    def loss(output: Tensor, tokens: Tensor) -> Tensor:
        return F.cross_entropy(output[:, :-shifts].flatten(0, 1), tokens[:, shifts:].flatten())

    batches = [(tokens, tokens) for tokens in (torch.randint(0, 11, (8, 6)) for _ in range(2))]
    model = seeded(lambda: nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 11)))
    assert (outcome("metric_oracle", of(loss, batches, model)) == "jumps") == (answer == "jumps")


def test_a_batch_of_one_example_has_no_other_answer() -> None:
    alone = [(x[:1], y[:1]) for x, y in classes()]
    bounded = of(lambda o, t: F.cross_entropy(o.tanh(), t), alone)
    assert "the same target" in why("metric_oracle", bounded)


def test_a_sum_of_values_is_no_odd_start() -> None:
    assert "a sum, intended" in why("init_loss", of(partial(F.mse_loss, reduction="sum"), values(), narrow()))


def test_few_parameters_cannot_hold_a_batch() -> None:
    far = [(x[:, :1], 80 * x[:, :1] + 20 * y) for x, y in values()]
    assert outcome("overfit_one_batch", of(F.mse_loss, far, nn.Linear(1, 1))) != "stalls"


def test_far_targets_take_many_steps() -> None:
    """As the returns of an agent that is not paid in small change."""
    far = [(x, 600 + 50 * y) for x, y in values()]
    wide = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Softplus(0.01))
    assert outcome("overfit_one_batch", of(F.mse_loss, far, wide)) != "stalls"


@pytest.mark.parametrize("kind", ["mean", "sum", "smoothed", "weighted", "tokens", "squares", "yes or no"])
def test_perfect_answers_jump(kind: str) -> None:
    assert outcome("metric_oracle", KINDS[kind][0]) == "jumps"


def test_probabilities_and_shares_jump_too() -> None:
    model = nn.Sequential(narrow(), nn.Sigmoid())
    soft = [(x, torch.sigmoid(y)) for x, y in values()]
    assert outcome("metric_oracle", of(F.binary_cross_entropy, soft, model)) == "jumps"
    shares = [(x, torch.softmax(2 * x[:, :4], 1)) for x, _ in classes(32, 8)]
    assert outcome("metric_oracle", of(F.cross_entropy, shares, narrow(4))) == "jumps"
    right = of(F.cross_entropy, predict=lambda output: output.argmax(1))
    assert figures("metric_oracle", right)["share_right"] == 1


def test_a_target_that_the_loss_changes_first_is_unclear() -> None:
    subject = of(lambda o, t: F.mse_loss(o, (t - 3) / 7), values(), narrow())
    assert "may not be the best output" in why("metric_oracle", subject)
    assert "logits" in why("metric_oracle", KINDS["twice"][0])


def test_columns_against_rows_agree_as_a_script_would_find() -> None:
    wanted = torch.arange(4)
    assert agreeing(wanted, wanted) == 1
    assert agreeing(wanted[:, None], wanted) == 0.25
    assert agreeing(wanted, torch.tensor([0, 1, -100, 0])) == pytest.approx(2 / 3)


# --- overfit_one_batch


def test_batches_that_cannot_be_learned_are_seen() -> None:
    assert outcome("overfit_one_batch", KINDS["flipped"][0]) == "rises"
    assert outcome("overfit_one_batch", of(lambda o, t: F.cross_entropy(o.detach(), t))) == "stalls"
    masked = [(x, torch.full_like(y, -100)) for x, y in classes()]
    assert outcome("overfit_one_batch", of(F.cross_entropy, masked)) == "nonfinite"


def test_inputs_that_say_nothing_and_a_second_softmax_are_seen() -> None:
    assert outcome("overfit_one_batch", KINDS["twice"][0]) == "stalls"
    blank = [(torch.zeros_like(x), y) for x, y in classes()]
    assert outcome("overfit_one_batch", of(F.cross_entropy, blank)) == "stalls"


def test_a_broadcast_is_not_excused_as_a_floor() -> None:
    with pytest.warns(UserWarning, match="target size"):
        assert outcome("overfit_one_batch", of(F.mse_loss, values(column=False), narrow())) == "stalls"


def test_smoothed_and_soft_targets_have_a_floor() -> None:
    subject = of(nn.CrossEntropyLoss(label_smoothing=0.2))
    assert outcome("overfit_one_batch", subject) == "fits"
    assert figures("overfit_one_batch", subject)["final"] > 0.8
    both = of(nn.CrossEntropyLoss(weight=torch.linspace(0.2, 3, 10), label_smoothing=0.1))
    assert outcome("overfit_one_batch", both) == "fits"
    grey = [(x[:, :8], torch.sigmoid(x[:, 8:16])) for x, _ in classes(16)]
    assert outcome("overfit_one_batch", of(F.binary_cross_entropy_with_logits, grey, narrow(8))) == "fits"


def test_dropout_and_noise_of_the_model_do_not_stand_in_the_way() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = seeded(lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)))

        def forward(self, x: Tensor) -> Tensor:
            hidden = F.dropout(x + torch.randn_like(x), 0.8, self.training)
            out: Tensor = self.body(hidden)
            return out

    assert outcome("overfit_one_batch", of(F.cross_entropy, model=Noisy())) == "fits"


def test_label_noise_on_equal_inputs_does_not_count() -> None:
    inputs, labels = classes()[0]
    doubled = torch.cat([inputs[:24], inputs[:8]])
    noisy = torch.cat([labels[:24], (labels[:8] + 1) % 10])
    assert outcome("overfit_one_batch", of(F.cross_entropy, [(doubled, noisy)])) == "fits"
    kept = consistent(Batch(doubled, noisy))
    assert torch.equal(kept.target[24:], labels[:8])
    alike = Batch(torch.zeros(6, 2), torch.arange(6))
    assert consistent(alike) is alike


def test_an_lbfgs_of_the_users_is_tried() -> None:
    model = narrow()
    subject = of(F.mse_loss, values(), model, optimizer=torch.optim.LBFGS(model.parameters(), lr=1))
    assert figures("overfit_one_batch", subject)["rate"] == 1.0


def test_losses_without_a_floor_are_unclear_unless_they_stand_still() -> None:
    free = of(lambda o, _: o.mean())
    assert "lower bound is unknown" in why("overfit_one_batch", free)
    assert outcome("overfit_one_batch", of(lambda o, _: o.detach().mean() - 5)) == "stalls"
    frozen = perceptron().requires_grad_(requires_grad=False)
    assert "takes a gradient" in why("overfit_one_batch", of(F.cross_entropy, model=frozen))


def test_a_penalty_on_the_output_keeps_a_loss_up() -> None:
    held = of(lambda o, t: F.cross_entropy(o, t) + 0.1 * o.square().mean())
    assert "no output would lower it below" in why("overfit_one_batch", held)


def test_tokens_after_the_same_beginning_cannot_be_told_apart() -> None:
    given = torch.tensor([[1, 2], [1, 3], [1, 2]])
    wanted = torch.tensor([[2, 5], [3, 6], [2, -100]])
    # After "1" come 2, 3, 2; after "1 2" a 5; after "1 3" a 6.
    expected = (2 * math.log(3 / 2) + math.log(3)) / 5
    assert entropy_after_beginnings(Batch(given, wanted)) == pytest.approx(expected)
    assert entropy_after_beginnings(Batch(given.float(), wanted)) == 0


def test_what_is_left_is_measured_from_the_floor() -> None:
    assert share(2.0, 1.0, 0.0, 0.0) == 0.5
    assert share(2.0, 1.1, 1.0, 0.0) == pytest.approx(0.1)
    assert share(0.01, 0.005, 0.0, 1.0) == 0.005
    assert math.isnan(share(-1.0, -2.0, 0.0, 0.0))


# --- without dropout


def test_quiet_leaves_out_every_kind_of_dropout() -> None:
    class Every(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.cells = nn.Dropout(0.5), nn.LSTM(8, 8, 2, dropout=0.5, batch_first=True)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True)
            self.norm = nn.BatchNorm1d(5)

        def forward(self, x: Tensor) -> Tensor:
            x, _ = self.cells(self.norm(self.layer(self.drop(x))))
            x = F.scaled_dot_product_attention(x, x, x, dropout_p=0.3)
            return F.dropout(x, training=self.training)

    model, given = seeded(Every), torch.ones(3, 5, 8) + torch.arange(8)
    assert not torch.equal(model(given), model(given))
    with quiet(model):
        assert torch.equal(model(given), model(given))
        assert model.training
    assert model.get_submodule("drop").training
    assert float(model.get_buffer("norm.num_batches_tracked")) == 4


@pytest.mark.parametrize("exam", ["overfit_one_batch", "learning_curve"])
def test_what_is_frozen_now_may_be_learned_later(exam: str) -> None:
    """As where a head is trained first, and the rest is set free after some epochs."""
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
    model[0].requires_grad_(False)
    held = classes()
    told = why(exam, Subject(model, F.cross_entropy, [(0 * x, y) for x, y in held], val_batches=held))
    assert "frozen" in told
