"""Values that go wrong over the run: the first that is not finite, weights, step times, memory."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_network import (
    Modulated,
    answer,
    classes,
    fit,
    fit_loss,
    initialised,
    judged,
    lines,
    stack,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from clew.observe.watch import OptimizerEvent, Saw, Watch
from clew.observe.watches import memory_trend, step_time_trend
from clew.observe.watches._network_trend import Bins
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.weight_distribution import WeightDistribution

# --- first_nonfinite


def fails(loss: Callable[[Tensor, Tensor], Tensor], steps: int = 5, from_step: int = 0) -> Callable[[], nn.Module]:
    def train() -> nn.Module:
        model = stack()
        x, y = classes()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(steps):
            optimizer.zero_grad()
            logits = model(x)
            value = loss(logits, y) if step >= from_step else F.cross_entropy(logits, y)
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    return train


def log_of_zero(logits: Tensor, _: Tensor) -> Tensor:
    return -torch.log(torch.softmax(1e4 * logits, 1)).mean()


def zero_norm(logits: Tensor, _: Tensor) -> Tensor:
    silent = logits * 0
    return (logits / silent.norm(dim=1, keepdim=True)).mean()  # type: ignore[no-any-return]


def empty_mask(logits: Tensor, _: Tensor) -> Tensor:
    return logits[logits > 1e9].mean()


def counted(logits: Tensor, y: Tensor) -> Tensor:
    mask = y > 100
    return (logits.sum(1) * mask).sum() / mask.sum()


def all_ignored(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, torch.full_like(y, -100))


def exponential(logits: Tensor, _: Tensor) -> Tensor:
    return torch.exp(1e4 * logits.abs()).mean()


def product(logits: Tensor, _: Tensor) -> Tensor:
    return ((logits * 1e30) * (logits * 1e30)).mean()


def root_of_zero(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits, y) + torch.sqrt((logits - logits).square()).mean()


def unchosen(logits: Tensor, y: Tensor) -> Tensor:
    safe = torch.where(logits > 1e9, torch.log(torch.zeros_like(logits) * logits), torch.zeros_like(logits))
    return F.cross_entropy(logits, y) + safe.mean()


def row_masked(logits: Tensor, _: Tensor) -> Tensor:
    return logits.masked_fill(torch.ones_like(logits).bool(), float("-inf")).softmax(1).mean()


CASES: list[tuple[Callable[[Tensor, Tensor], Tensor], str, str]] = [
    (log_of_zero, "in_log", "Log"),
    (zero_norm, "in_division", "Div"),
    (empty_mask, "in_division", "Mean"),
    (counted, "in_division", "Div"),
    (all_ignored, "in_division", "NllLoss"),
    (row_masked, "in_division", "Softmax"),
    (exponential, "in_overflow", "Exp"),
    (product, "in_overflow", "Mul"),
    (root_of_zero, "in_division", "Sqrt"),
    (unchosen, "in_log", "Log"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_first_nonfinite(tmp_path: Path, case: tuple[Callable[[Tensor, Tensor], Tensor], str, str]) -> None:
    loss, wanted, operation = case
    told = answer(tmp_path, FirstNonfinite, fails(loss))
    assert told["outcome"] == wanted, told
    assert told["measured"]["operation"].startswith(operation)
    assert told["measured"]["step"] == 0
    assert lines(told), told


@pytest.mark.parametrize("case", CASES[:8], ids=lambda case: case[0].__name__)
def test_first_nonfinite_on_a_step_that_is_not_sampled(
    tmp_path: Path, case: tuple[Callable[[Tensor, Tensor], Tensor], str, str]
) -> None:
    loss, wanted, operation = case
    told = answer(tmp_path, FirstNonfinite, fails(loss, steps=40, from_step=21))
    assert told["outcome"] == wanted, told
    assert told["measured"]["step"] == 21
    assert told["measured"]["operation"].startswith(operation)


def test_the_line_of_an_operation_inside_the_model(tmp_path: Path) -> None:
    class Logs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
            self.steps = 0

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            x = torch.log(F.relu(x) + (1e-3 if self.steps < 20 else 0))
            self.steps += 1
            return self.second(x)  # type: ignore[no-any-return]

    told = answer(tmp_path, FirstNonfinite, lambda: fit(Logs(), steps=40, rate=1e-4))
    assert told["outcome"] == "in_log"
    assert told["measured"]["step"] == 20, "the step is not sampled"
    assert "x = torch.log(" in lines(told)[0], "the picture of the last sampled step serves"


def bad_data(part: str, at: int = 7) -> Callable[[], nn.Module]:
    def train() -> nn.Module:
        x, y = torch.randn(64, 8), torch.randn(64, 1)
        (x if part == "input" else y)[at, 0] = math.nan
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=2):
            optimizer.zero_grad()
            F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    return train


@pytest.mark.parametrize("part", ["input", "target"])
@pytest.mark.parametrize("at", [3, 43])
def test_bad_data_is_told_from_bad_arithmetic(tmp_path: Path, part: str, at: int) -> None:
    told = answer(tmp_path, FirstNonfinite, bad_data(part, at))
    assert told["outcome"] == "in_data", told
    assert told["measured"]["step"] == at // 2
    assert "in DataLoader(" in lines(told)[0]


def test_a_normalisation_that_divides_by_zero_is_no_bad_batch(tmp_path: Path) -> None:
    def train() -> nn.Module:
        x, y = torch.randn(64, 8), torch.randint(0, 4, (64,))
        x[:, 0] = 3.0
        model = stack()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for inputs, targets in DataLoader(TensorDataset(x, y), batch_size=16):
            F.cross_entropy(model((inputs - inputs.mean(0)) / inputs.std(0)), targets).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    told = answer(tmp_path, FirstNonfinite, train)
    assert told["outcome"] == "unclear"
    assert "without gradients" in told["unclear"]


def test_weights_that_went_bad_unseen_are_said_to_be_so(tmp_path: Path) -> None:
    told = answer(tmp_path, FirstNonfinite, fails(root_of_zero, steps=40, from_step=21))
    assert told["outcome"] == "unclear"
    assert "--sample every" in told["unclear"]
    every = answer(tmp_path, FirstNonfinite, fails(root_of_zero, steps=40, from_step=21), sample="every")
    assert every["outcome"] == "in_division"
    assert every["measured"]["step"] == 21


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_two_equal_rows_between_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eps: float) -> None:
    """A root that stands in every graph is looked at in every step, as far as there is time."""
    monkeypatch.setattr("clew.observe.watches.first_nonfinite.SHARE", 1.0)

    def train() -> nn.Module:
        model = stack()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(40):
            x, other = torch.randn(16, 8), torch.randn(16, 8)
            if step == 21:
                other[3] = x[3]
            optimizer.zero_grad()
            far = torch.sqrt((model(x) - model(other)).pow(2).sum(1) + eps)  # far
            far.mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return model

    told = answer(tmp_path, FirstNonfinite, train)
    if eps:
        assert told["outcome"] == "none"
        return
    assert (told["outcome"], told["measured"]["step"]) == ("in_division", 21)
    assert "# far" in lines(told)[0]


def test_a_step_that_the_scaler_skips_is_no_fault(tmp_path: Path) -> None:
    def train() -> nn.Module:
        model = stack()
        x, y = classes()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y) * 1e-3).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimizer)
            scaler.update()
        return model

    assert answer(tmp_path, FirstNonfinite, train)["outcome"] == "none"


def test_the_overflow_at_the_end_of_a_divergence_is_put_down_to_the_updates(tmp_path: Path) -> None:
    x, y = torch.randn(32, 8), torch.randn(32, 1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    told = answer(tmp_path, FirstNonfinite, lambda: fit_loss(model, lambda m: F.mse_loss(m(x), y), 40, rate=30.0))
    assert told["outcome"] == "in_update"
    assert "the updates diverged" in told["says"]
    assert "optimizer.step()" in lines(told)[0]


def test_checkpointed_values_are_left_packed(tmp_path: Path) -> None:
    """Unpacking them would run the forward pass again, and make the real backward fail."""
    from torch.utils.checkpoint import checkpoint

    model = stack()
    x, y = classes()

    def train() -> nn.Module:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            logits = checkpoint(lambda v: torch.log(F.relu(model(v))), x, use_reentrant=False)
            (logits.mean() + F.cross_entropy(logits, y)).backward()
            optimizer.step()
        return model

    assert answer(tmp_path, FirstNonfinite, train)["outcome"] in ("in_log", "in_overflow", "unclear")


def test_without_a_loss_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert answer(tmp_path, FirstNonfinite, lambda: stack()(classes()[0]))["outcome"] == "unclear"


# --- weight_distribution


@pytest.mark.parametrize(
    ("train", "wanted"),
    [
        (lambda: fit(stack(), steps=30, rate=0.5, weight_decay=1.0), "odd"),
        (lambda: fit_loss(stack(), lambda m: -m(torch.ones(4, 8)).sum(), steps=60, rate=0.5), "odd"),
        (lambda: fit_loss(stack(), lambda m: m(torch.ones(4, 8)).sum() * math.nan), "odd"),
        (lambda: fit(stack(), steps=30), "usual"),
        (lambda: fit(initialised(m := stack(), lambda w: w.mul_(0.01), m[2]), steps=100, rate=0.5), "usual"),
        (lambda: fit(Modulated(), steps=30), "usual"),
        (lambda: fit(stack(), steps=3), "unclear"),
        (lambda: None, "unclear"),
    ],
)
def test_weight_distribution(tmp_path: Path, train: Callable[[], Any], wanted: str) -> None:
    told = answer(tmp_path, WeightDistribution, train)
    assert told["outcome"] == wanted, told


# --- step_time_trend and memory_trend: driven by a clock and a memory of the test's own


class Fake:
    step = 0
    optimizers: tuple[Any, ...] = ()

    def record(self, *_: Any, **__: Any) -> None: ...


def drive(
    watch: Watch, steps: int, each: Callable[[int], None], number: Callable[[int], int] = lambda _: 0
) -> dict[str, Any]:
    for step in range(steps):
        each(step)
        watch.after_step(OptimizerEvent(None, number(step), step, step < 10, None))
    read = watch.read()
    table: dict[str, Any] = {"test": watch.test}
    if hasattr(read, "why"):
        return judged({**table, "unclear": read.why})
    if isinstance(read, Saw):
        table["outcome"] = read.outcome
    return judged({**table, "measured": dict(read.measured), "where": []})


def timed(
    monkeypatch: pytest.MonkeyPatch, steps: int, seconds: Callable[[int], float], **options: Any
) -> dict[str, Any]:
    now = [0.0]
    monkeypatch.setattr("clew.observe.watches.step_time_trend.time.monotonic", lambda: now[0])

    def each(step: int) -> None:
        now[0] += seconds(step)

    return drive(step_time_trend.StepTimeTrend(Fake()), steps, each, **options)


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (lambda _, i: 0.01 * (1 + i / 400), "grows"),
        (lambda rng, i: 0.01 * (1 + i / 400) * rng.uniform(0.9, 1.1), "grows"),
        (lambda rng, _: 0.01 * rng.uniform(0.8, 1.2), "flat"),
        (lambda _, i: 0.01 + (5.0 if i % 100 == 99 else 0.0), "flat"),
        (lambda _, i: 0.5 if i < 15 else 0.01, "flat"),
        (lambda rng, i: 0.02 if i > 950 else 0.01 * rng.uniform(0.5, 1.5), "unclear"),
        (lambda _, i: 1e-5 * (1 + i / 400), "unclear"),
    ],
)
def test_step_time_trend(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Any, int], float], wanted: str) -> None:
    rng = random.Random(0)
    assert timed(monkeypatch, 1000, lambda i: seconds(rng, i))["outcome"] == wanted


@pytest.mark.parametrize(
    ("work", "wanted"),
    [
        (lambda rng, i: 0.01 * (1 + i / 400) * rng.uniform(0.9, 1.1), "works_more"),
        (lambda rng, _: 0.01 * rng.uniform(0.9, 1.1), "grows"),
        (lambda rng, i: 0.01 * (3 if i > 500 else 1) * rng.uniform(0.9, 1.1), "grows"),
    ],
)
def test_steps_that_work_longer(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[Any, int], float], wanted: str
) -> None:
    """Time that others take, or that jumps once, is no work that piles up."""
    rng, done = random.Random(0), [0.0]
    monkeypatch.setattr(step_time_trend, "usage", lambda: (done[0], 0.0))

    def seconds(step: int) -> float:
        done[0] += work(rng, step)
        return 0.01 * (1 + step / 400)

    assert timed(monkeypatch, 1000, seconds)["outcome"] == wanted


def test_step_time_of_two_optimisers_is_that_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    told = timed(monkeypatch, 1000, lambda i: 0.01 if i % 2 else 0.03, number=lambda i: i % 2)
    assert told["outcome"] == "flat"
    assert told["measured"]["early_ms"] == pytest.approx(40)


def test_an_optimiser_made_anew_goes_on_being_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "optimizers", tuple((lambda: None) for _ in range(5)))
    told = timed(monkeypatch, 1000, lambda _: 0.01, number=lambda i: i // 200)
    assert told["outcome"] == "flat"


def test_a_short_run_has_no_trend(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, 60, lambda _: 0.01)["outcome"] == "unclear"


@pytest.mark.parametrize(
    ("megabytes", "wanted"),
    [
        (lambda i: 400 + 0.2 * i, "grows"),
        (lambda i: 400 + 0.2 * i + 10 * math.sin(i), "grows"),
        (lambda i: 400 + 3 * math.sin(i), "flat"),
        (lambda i: 400 + (200 if i > 300 else 0), "flat"),
        (lambda i: 400 + (200 if i > 900 else 0), "flat"),
        (lambda i: 400 + 200 * (1 - math.exp(-i / 80)), "flat"),
        (lambda i: 400 + min(i, 20) * 20, "flat"),
        (lambda i: 400 - 0.1 * i, "flat"),
    ],
)
def test_memory_trend(monkeypatch: pytest.MonkeyPatch, megabytes: Callable[[int], float], wanted: str) -> None:
    held = [0.0]
    monkeypatch.setattr(memory_trend, "resident_bytes", lambda: held[0] * 1e6)

    def each(step: int) -> None:
        held[0] = megabytes(step)

    watch = memory_trend.MemoryTrend(Fake())
    assert drive(watch, 1200, each)["outcome"] == wanted


def test_a_list_that_keeps_what_memory_grows_by(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[torch.Tensor] = []
    monkeypatch.setattr(memory_trend, "resident_bytes", lambda: 4e8 + len(kept) * 2.5e5)
    monkeypatch.setattr(memory_trend, "ENVIRONMENTS", ())  # another test of this process may have loaded one

    def each(_: int) -> None:
        kept.append(torch.empty(50_000))

    answer = drive(memory_trend.MemoryTrend(Fake()), 400, each)
    assert answer["outcome"] == "kept", answer


def test_memory_of_a_short_run_is_unclear() -> None:
    assert drive(memory_trend.MemoryTrend(Fake()), 30, lambda _: None)["outcome"] == "unclear"


def test_resident_memory_is_read() -> None:
    assert memory_trend.resident_bytes() > 10e6


def test_bins_stay_few_and_keep_the_course() -> None:
    bins = Bins(width=2)
    for i in range(100_000):
        bins.add(float(i))
    early, middle, late = bins.tenths()
    assert len(bins.medians) < 256
    assert [early, middle, late] == pytest.approx([5_000, 50_000, 95_000], rel=0.1)
    assert bins.steadiness() == 1.0
