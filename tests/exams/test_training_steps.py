"""Exams of steps and runs: sizes and signs of updates, rates, noise, terms, parts, seeds."""

import math
import os
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_subjects import Convolutions, Taped, classes, figures, outcome, perceptron, pictures, seeded, values, why
from torch import Tensor, nn

from clew.exams.batches import Batch
from clew.exams.checks._training_runs import is_trained, own_optimizer, planned_rates
from clew.exams.checks.lr_range import Sweep, steepest
from clew.exams.checks.noise_scale import estimate, jackknife
from clew.exams.checks.term_conflict import cosine
from clew.exams.lab import Lab
from clew.exams.subject import Subject

Adam = partial(torch.optim.Adam, lr=1e-3)
Sgd = torch.optim.SGD


def of(
    optimizer: Any = Adam, model: nn.Module | None = None, batches: Any = None, loss: Any = F.cross_entropy
) -> Subject:
    torch.set_num_threads(1)
    return Subject(model or perceptron(), loss, batches or classes(), optimizer=optimizer)


# --- update_ratio


def test_update_ratios_lie_where_the_rate_puts_them() -> None:
    assert outcome("update_ratio", of()) == "healthy"
    assert outcome("update_ratio", of(partial(Sgd, lr=1e-6))) == "tiny"
    for rate in (0.1, 1.0):
        assert outcome("update_ratio", of(partial(torch.optim.Adam, lr=rate))) == "huge"
    assert outcome("update_ratio", of(partial(Sgd, lr=0.0))) == "zero"
    assert outcome("update_ratio", of(loss=lambda o, t: F.cross_entropy(o.detach(), t))) == "zero"


def test_the_first_ratio_is_that_of_numpy() -> None:
    model = nn.Linear(20, 10)
    inputs, labels = classes()[0]
    loss = F.cross_entropy(model(inputs), labels)
    (slope,) = torch.autograd.grad(loss, [model.weight])
    expected = 0.1 * np.linalg.norm(slope.numpy()) / np.linalg.norm(model.weight.detach().numpy())
    found = figures("update_ratio", of(partial(Sgd, lr=0.1), model))
    assert found["first"] == pytest.approx(expected, rel=1e-4)
    assert found["matrices"] == 1


def test_lbfgs_counts_by_the_part_and_zeros_do_not_count() -> None:
    model = perceptron()
    assert outcome("update_ratio", of(torch.optim.LBFGS(model.parameters(), lr=0.1), model)) == "healthy"
    blank = nn.Linear(20, 10)
    nn.init.zeros_(blank.weight)
    assert "starts at zero" in why("update_ratio", of(model=blank))
    assert "needs optimizer" in why("update_ratio", of(None))


def test_a_schedule_that_has_begun_is_looked_through() -> None:
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 100)
    assert optimizer.param_groups[0]["lr"] == 0
    subject = of(optimizer, model)
    assert planned_rates(Lab(subject)) == [1e-3]
    made = own_optimizer(Lab(subject), subject.copy())
    assert made is not None
    assert made.param_groups[0]["lr"] == 1e-3
    assert outcome("update_ratio", subject) == "healthy"


# --- step_lowers_batch_loss


def test_updates_uphill_and_nowhere_are_seen() -> None:
    assert outcome("step_lowers_batch_loss", of()) == "falls"
    assert outcome("step_lowers_batch_loss", of(partial(Sgd, lr=0.1, maximize=True))) == "rises"
    assert outcome("step_lowers_batch_loss", of(loss=lambda o, t: F.cross_entropy(o.detach(), t))) == "unchanged"
    assert outcome("step_lowers_batch_loss", of(partial(Sgd, lr=1e-9))) == "unchanged"


def test_a_small_rate_is_told_from_none_in_double_precision() -> None:
    found = figures("step_lowers_batch_loss", of(partial(Sgd, lr=1e-4)))
    assert found["double_precision"]
    # To first order the loss changes by the rate times the squared gradient, a tenth of it here.
    assert found["after"] - found["before"] == pytest.approx(-1e-5 * found["gradient_norm"] ** 2, rel=1e-2)


def test_a_step_needs_something_left_to_lower() -> None:
    done = of(
        model=nn.Linear(8, 1), batches=[(torch.zeros(4, 8), torch.zeros(4, 1))], loss=lambda o, t: 0 * (o - t).sum()
    )
    assert "nothing left" in why("step_lowers_batch_loss", done)
    nothing = of(batches=[(x, torch.full_like(y, -100)) for x, y in classes()])
    assert "nan" in why("step_lowers_batch_loss", nothing)


@pytest.mark.parametrize(
    "optimizer", [Adam, partial(Sgd, lr=0.05, momentum=0.9), partial(torch.optim.RMSprop, lr=1e-3)]
)
def test_usual_optimisers_lower_the_loss(optimizer: Any) -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    assert outcome("step_lowers_batch_loss", of(optimizer, model, values(), F.mse_loss)) == "falls"
    assert outcome("step_lowers_batch_loss", of(optimizer, seeded(Convolutions), pictures(8))) == "falls"


# --- same_seed_repeat


class Drawing(nn.Module):
    def __init__(self, outside: bool) -> None:
        super().__init__()
        self.body, self.outside = perceptron(), outside

    def forward(self, x: Tensor) -> Tensor:
        noise = os.urandom(1)[0] / 255 if self.outside else float(np.random.rand())
        out: Tensor = self.body(x * (1 + noise))
        return out


class Counting(nn.Module):
    """A loss that keeps something from step to step."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Tensor
        self.register_buffer("count", torch.zeros(()))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        self.count += 1
        return F.cross_entropy(output, target) * (1 + self.count / 100)


def test_what_no_seed_reaches_is_seen() -> None:
    assert outcome("same_seed_repeat", of(model=Drawing(outside=True))) == "differs"
    assert outcome("same_seed_repeat", of(model=Drawing(outside=False))) == "identical"
    loss = Counting()
    assert outcome("same_seed_repeat", of(loss=loss)) == "identical"
    assert float(loss.count) == 0
    broken = of(batches=[(x, torch.full_like(y, -100)) for x, y in classes()])
    assert "nan" in why("same_seed_repeat", broken)


# --- regularisation_raises_loss


class Undecayed(torch.optim.SGD):
    """Takes a weight decay and forgets it."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        return super().step(closure)


def test_a_penalty_that_does_not_act_is_seen() -> None:
    assert outcome("regularisation_raises_loss", of(partial(Undecayed, lr=0.1, weight_decay=1e-3))) == "no"
    assert outcome("regularisation_raises_loss", of(partial(Sgd, lr=0.1, weight_decay=1e-3))) == "yes"
    assert outcome("regularisation_raises_loss", of(partial(torch.optim.AdamW, lr=1e-3))) == "yes"
    assert outcome("regularisation_raises_loss", of(loss=lambda o, t: F.cross_entropy(o.detach(), t))) == "no"


def test_a_penalty_needs_a_decay_and_a_run_that_bears_its_rate() -> None:
    assert "no weight decay" in why("regularisation_raises_loss", of(partial(torch.optim.Rprop, lr=1e-3)))
    wild = of(partial(Sgd, lr=1e6), seeded(lambda: nn.Linear(8, 1)), values(), F.mse_loss)
    assert "at the end of a training without" in why("regularisation_raises_loss", wild)


# --- lr_range


def test_rates_outside_the_range_are_seen() -> None:
    assert outcome("lr_range", of()) == "in_range"
    assert outcome("lr_range", of(partial(torch.optim.Adam, lr=1e-6))) == "too_low"
    assert outcome("lr_range", of(partial(torch.optim.Adam, lr=3.0))) == "too_high"
    model = seeded(lambda: nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    assert outcome("lr_range", of(partial(Sgd, lr=0.03), model, values(), F.mse_loss)) == "in_range"
    assert outcome("lr_range", of(partial(Sgd, lr=10.0), model, values(), F.mse_loss)) == "too_high"


def test_no_range_where_nothing_falls_and_for_line_searches() -> None:
    assert "at no rate" in why("lr_range", of(loss=lambda o, t: F.cross_entropy(o.detach(), t)))
    model = perceptron()
    assert "line search" in why("lr_range", of(torch.optim.LBFGS(model.parameters()), model))


# --- other_rate


class Ran(Subject):
    """A subject that has been trained: `steps` at its own rate, of which the last `stopped` were lost."""

    def __init__(self, optimizer: Any, steps: int = 300, stopped: int = 0) -> None:
        super().__init__(perceptron(), F.cross_entropy, classes(batches=8), optimizer=optimizer)
        self.horizon, self.stopped = steps, stopped

    def trained(self) -> nn.Module:
        model = self.copy().train()
        optimizer = self.make_optimizer(model)
        assert optimizer is not None
        for step in range(self.horizon - self.stopped):
            batch = self.batches[step % len(self.batches)]
            optimizer.zero_grad()
            F.cross_entropy(model(batch.inputs), batch.target).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model


def test_another_rate_that_comes_further_in_a_tenth_of_the_steps() -> None:
    torch.set_num_threads(1)
    low = Ran(partial(torch.optim.Adam, lr=1e-6), steps=600)
    assert outcome("other_rate", low) == "higher"
    assert outcome("other_rate", Ran(partial(torch.optim.Adam, lr=1.0))) == "lower"
    assert outcome("other_rate", Ran(partial(Sgd, lr=0.05))) == "as_far"
    assert outcome("other_rate", Ran(partial(torch.optim.Adam, lr=3e-3))) == "as_far"


def test_a_run_that_its_own_rate_would_have_carried_further() -> None:
    assert outcome("other_rate", Ran(partial(torch.optim.Adam, lr=3e-3), steps=600, stopped=590)) == "own_does"


def test_a_run_near_the_floor_of_its_loss_has_arrived() -> None:
    subject = Ran(partial(torch.optim.Adam, lr=1e-3), steps=1200)
    subject.batches = subject.batches[:2]  # learned by heart, which another rate does in fewer steps
    assert outcome("other_rate", subject) == "as_far"


def test_where_other_rates_cannot_be_held_against_the_run() -> None:
    below = Ran(Adam)
    below.loss = lambda output, target: F.cross_entropy(output, target) - 5.0
    assert "below zero" in why("other_rate", below)
    assert "late in the run" in why("other_rate", of())
    assert "too few" in why("other_rate", Ran(Adam, steps=50))


def test_the_steepest_fall_of_a_curve_that_is_known() -> None:
    rates = [10 ** (-7 + 8 * at / 99) for at in range(100)]
    # A logistic fall around 1e-2, and a rise from 1 on.
    curve = [-0.8 / (1 + (1e-2 / rate) ** 2) + (rate if rate > 1 else 0) for rate in rates]
    found = steepest(Sweep(rates, curve))
    assert found is not None
    assert math.log10(found) == pytest.approx(-2, abs=0.2)
    assert steepest(Sweep(rates, [0.01 * (-1) ** at for at in range(100)])) is None
    # The way back from an overshoot is steeper, and no fall.
    jumped = [value + (0.7 if 0.15 < rate < 0.5 else 0) for rate, value in zip(rates, curve, strict=True)]
    found = steepest(Sweep(rates, jumped))
    assert found is not None
    assert math.log10(found) == pytest.approx(-2, abs=0.2)


def test_the_rate_of_a_differential_equation_is_in_range() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = seeded(lambda: nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)))

        def forward(self, x: Tensor) -> Tensor:
            x = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.body(x).sum(), x, create_graph=True)
            return slope - torch.cos(x)

    points = [given[:, :1].abs() for given, _ in classes(32, 2, batches=8)]
    assert outcome("lr_range", of(Adam, Residual(), points, lambda o, _: o.square().mean())) == "in_range"


# --- noise_scale


def test_the_noise_scale_is_that_of_single_gradients() -> None:
    """Against the definition: the summed variance of per-example gradients over the squared length of their mean."""
    torch.manual_seed(1)
    model = nn.Linear(6, 3)
    inputs = torch.randn(4096, 6)
    labels = (inputs @ torch.randn(6, 3) + torch.randn(4096, 3)).argmax(1)
    shares = torch.softmax(model(inputs), 1).detach().double().numpy() - np.eye(3)[labels.numpy()]
    single = np.concatenate([(shares[:, :, None] * inputs.numpy()[:, None, :]).reshape(4096, -1), shares], 1)
    batches = [(inputs[at : at + 128], labels[at : at + 128]) for at in range(0, 4096, 128)]
    found = figures("noise_scale", of(model=model, batches=batches))
    assert found["small"] == 128
    assert found["large"] == 4096
    # The same estimate by the textbook's variance of batch means: it is exact.
    means = single.reshape(32, 128, -1).mean(1)
    spread = 128 * means.var(0, ddof=1).sum()
    signal = (single.mean(0) ** 2).sum() - spread / 4096
    assert found["noise_scale"] == pytest.approx(spread / signal, rel=1e-4)
    # The definition over all examples, within the standard error.
    spread = single.var(0, ddof=1).sum()
    signal = (single.mean(0) ** 2).sum() - spread / 4096
    assert abs(found["noise_scale"] - spread / signal) < 2 * found["noise_scale_error"]
    assert abs(found["batch_over_noise_scale"] - 128 * signal / spread) < 2 * found["standard_error"]


def test_the_standard_error_is_the_spread_over_repetitions() -> None:
    source = np.random.default_rng(0)
    values_, errors = [], []
    for _ in range(300):
        vectors = torch.tensor(source.normal(0.4, 1.0, (16, 50)))
        table = vectors @ vectors.T
        held = estimate(table, 4)
        values_.append(held.signal / held.spread)
        errors.append(jackknife(table, 4))
    # A vector here is the mean of 4 examples of variance 4 in each of 50 entries.
    assert np.mean(values_) == pytest.approx(0.4**2 / 4, rel=0.1)
    assert np.mean(errors) == pytest.approx(np.std(values_), rel=0.25)


def test_batches_far_below_the_noise_scale_are_seen() -> None:
    source = torch.Generator().manual_seed(0)
    inputs = [torch.randn(8, 4000, generator=source) for _ in range(32)]
    blank = nn.Linear(4000, 1, bias=False)
    nn.init.zeros_(blank.weight)
    noise = [(x, torch.randn(8, 1, generator=source)) for x in inputs]
    assert outcome("noise_scale", of(model=blank, batches=noise, loss=F.mse_loss)) == "batch_far_below"
    signal = [(x, x[:, :1] * 3) for x in inputs]
    small = [(x[:, :40], y) for x, y in signal]
    narrow = nn.Linear(40, 1, bias=False)
    nn.init.zeros_(narrow.weight)
    assert outcome("noise_scale", of(model=narrow, batches=small, loss=F.mse_loss)) == "comparable"


def test_few_examples_and_fixed_sizes() -> None:
    assert "too few" in why("noise_scale", of(batches=classes(2, batches=1)))
    fixed, free = (figures("noise_scale", Taped(classes(), rows=rows)) for rows in (32, 0))
    assert fixed["noise_scale"] == pytest.approx(free["noise_scale"], rel=1e-3)


# --- term_conflict


def both(weight: float) -> Any:
    def loss(output: Tensor, target: Tensor) -> dict[str, Tensor]:
        first = F.cross_entropy(output, target)
        return {"fit": first, "other": weight * F.multi_margin_loss(output, target), "total": first}

    return loss


def test_terms_that_pull_apart_are_seen() -> None:
    assert outcome("term_conflict", of(loss=both(-1.0))) == "opposed"
    assert outcome("term_conflict", of(loss=both(1.0))) == "not_opposed"
    pair = of(loss=lambda o, t: (F.cross_entropy(o, t), 1e-3 * o.square().mean()))
    assert outcome("term_conflict", pair) == "not_opposed"
    assert "not a sum" in why("term_conflict", of())


def test_terms_that_have_found_their_balance_are_unclear() -> None:
    def loss(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return F.mse_loss(output, target), F.mse_loss(output, -target + 3)

    model = seeded(lambda: nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(200):
        inputs, target = values()[step % 4]
        optimizer.zero_grad()
        sum(loss(model(inputs), target)).backward()  # type: ignore[union-attr]
        optimizer.step()
    assert "balance" in why("term_conflict", of(model=model, batches=values(), loss=loss))


def test_the_cosine_is_that_of_numpy_over_what_both_reach() -> None:
    first, second = torch.tensor([1.0, 2.0, 0.0, 4.0]), torch.tensor([2.0, -1.0, 5.0, 1.0])
    held = cosine(first, second)
    one, other = np.array([1.0, 2.0, 4.0]), np.array([2.0, -1.0, 1.0])
    assert held is not None
    assert held[0] == pytest.approx(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
    assert cosine(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) is None


# --- ablation


def test_parts_that_stop_training_are_named() -> None:
    heavy = of(partial(torch.optim.AdamW, lr=3e-3, weight_decay=200.0))
    assert outcome("ablation", heavy) == "something_removed_mends"
    assert figures("ablation", heavy)["removed"] == "weight decay"
    drowned = of(partial(Sgd, lr=0.1), seeded(lambda: nn.Sequential(nn.Dropout(0.999), nn.Linear(20, 10))))
    drowned.clip = 1e-6
    assert outcome("ablation", drowned) == "something_removed_mends"
    assert "clipping" in figures("ablation", drowned)["removed"]


def test_hooks_and_schedules_are_parts_too() -> None:
    model = perceptron()
    model.register_forward_pre_hook(lambda _, inputs: (torch.randn_like(inputs[0]) * 5,))
    assert figures("ablation", of(partial(torch.optim.Adam, lr=1e-2), model))["removed"] == "augmentation"
    stopped = of(partial(Sgd, lr=0.3, weight_decay=1e-5))
    stopped.schedule = lambda step: 0.0 * step
    assert figures("ablation", stopped)["removed"] == "schedule"


def test_nothing_is_blamed_where_all_is_well_or_the_core_fails() -> None:
    usual = of(partial(torch.optim.AdamW, lr=3e-3), seeded(Convolutions), pictures())
    assert outcome("ablation", usual) == "nothing_helps"
    cut = of(partial(torch.optim.AdamW, lr=3e-3), loss=lambda o, t: F.cross_entropy(o.detach() + 0 * o, t))
    assert outcome("ablation", cut) == "nothing_helps"
    assert "to leave out" in why("ablation", of(partial(Sgd, lr=0.1)))


# --- seed_spread


def test_seeds_that_decide_are_seen() -> None:
    def fragile() -> nn.Module:
        # Two rectifiers a layer: whether any way through lives depends on the draw.
        layers = [nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)]
        return nn.Sequential(*layers)

    held = [(x, F.relu(x[:, :1]) * 3) for x, _ in classes(32, 8)]
    assert outcome("seed_spread", of(partial(Sgd, lr=0.1), seeded(fragile), held, F.mse_loss)) == "wide"
    begun = of(partial(Sgd, lr=0.1), seeded(fragile), held, lambda o, t: F.mse_loss(o, t) + 10)
    assert "how fast they begin" in why("seed_spread", begun), "most of the loss is still there"


def test_steady_seeds_are_silent_and_old_weights_unclear() -> None:
    assert outcome("seed_spread", of(partial(torch.optim.Adam, lr=3e-3))) == "narrow"
    assert "too little" in why("seed_spread", of(partial(Sgd, lr=1e-6)))
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(100):
        inputs, labels = classes()[step % 4]
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert "already trained" in why("seed_spread", of(model=model))


def test_weights_just_drawn_are_not_taken_for_trained() -> None:
    for seed in range(5):
        model = seeded(lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10)), seed)
        subject = of(model=model)
        assert not is_trained(Lab(subject), [Batch(*pair) for pair in classes()])


# --- overfit_one_batch


def triplets(examples: int = 16) -> Subject:
    """Anchors, those like them and others in one batch, a third behind each other."""
    made = torch.Generator().manual_seed(0)
    anchors, others = (torch.randn(examples, 20, generator=made) for _ in range(2))
    batch = torch.cat([anchors, anchors + 0.1 * torch.randn(examples, 20, generator=made), others])

    def hinge(out: Tensor, _: Any) -> Tensor:
        anchor, positive, negative = out.chunk(3)
        return F.relu((anchor - positive).norm(dim=1) - (anchor - negative).norm(dim=1) + 4.0).mean()

    return Subject(perceptron(), hinge, [(batch, None)], optimizer=Adam)


def test_examples_that_are_compared_with_each_other_are_not_repeated() -> None:
    assert outcome("overfit_one_batch", triplets()) == "fits"


def test_a_step_of_fixed_size_is_given_the_same_examples_again() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = perceptron()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x.view(64, 20))
            return out

    held = Subject(Fixed(), F.cross_entropy, classes(64), optimizer=Adam)
    assert outcome("overfit_one_batch", held) == "fits"
