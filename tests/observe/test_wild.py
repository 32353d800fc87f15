"""Sound loops of kinds that training scripts in the wild have, and that an instrument once misread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from loops_network import answer, judged
from torch import Tensor, nn

from clew.app.logs import spread
from clew.observe.watch import OptimizerEvent
from clew.observe.watches import step_time_trend
from clew.observe.watches.decay_against_gradient import DecayAgainstGradient
from clew.observe.watches.event_order import EventOrder
from clew.observe.watches.gradient_explodes import GradientExplodes
from clew.observe.watches.update_ratio import UpdateRatio
from clew.records.clue import Saw, Unclear
from clew.records.trace import Series
from clew.symptoms.names import main_loss
from clew.symptoms.scale import as_printed

# --- event_order: a wrapper that looks like an optimiser leaves the step to the one it holds


class Delegate:
    """Passes for the optimiser that it holds, clears gradients itself and hands the step on."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.__class__ = type("Delegate", (Delegate, type(inner)), {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.parametrize(("steps", "outcome"), [(True, "usual"), (False, "no_step")])
def test_a_wrapper_takes_no_step_of_its_own(tmp_path: Path, steps: bool, outcome: str) -> None:
    def train() -> Any:
        model, other = nn.Linear(4, 1), nn.Linear(4, 1)
        inner = torch.optim.Adam(model.parameters())
        optimizer: Any = Delegate(inner)
        second = torch.optim.SGD(other.parameters(), lr=0.01)
        for _ in range(30):
            optimizer.zero_grad()
            second.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean() + other(torch.randn(8, 4)).square().mean()
            loss.backward()
            if steps:
                optimizer.step()
            second.step()
        return model, other, inner, optimizer, second

    assert answer(tmp_path, EventOrder, train, "every")["outcome"] == outcome


# --- decay_against_gradient: a branch that starts at zero, while the rate warms up


@pytest.mark.parametrize(("decay", "outcome"), [(2e-5, "small"), (50.0, "decay_dominates")])
def test_decay_that_takes_nothing_off_does_not_dominate(tmp_path: Path, decay: float, outcome: str) -> None:
    def train() -> Any:
        branch, gain = nn.Linear(8, 8, bias=False), nn.Parameter(torch.zeros(8))
        optimizer = torch.optim.SGD([*branch.parameters(), gain], lr=1e-5, momentum=0.9, weight_decay=decay)
        x = torch.randn(32, 8)
        for _ in range(10):
            optimizer.zero_grad()
            loss = (x + gain * branch(x) - 2 * x).square().mean()
            loss.backward()
            optimizer.step()
        return branch

    assert answer(tmp_path, DecayAgainstGradient, train)["outcome"] == outcome


# --- update_ratio: one step of LBFGS is many updates


@pytest.mark.parametrize(("inner", "outcome"), [(20, "healthy"), (1, "huge")])
def test_a_step_of_many_evaluations_counts_by_the_update(tmp_path: Path, inner: int, outcome: str) -> None:
    def train() -> Any:
        model = nn.Linear(8, 1)
        x = torch.randn(64, 8)
        y = 0.2 * x.sum(1, keepdim=True)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5 if inner > 1 else 8.0, max_iter=inner)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return model

    assert answer(tmp_path, UpdateRatio, train)["outcome"] == outcome


# --- gradient_explodes: a gradient that was next to nothing is no level to measure from


@pytest.mark.parametrize(("early", "late", "outcome"), [(1e-6, 1e-3, "bounded"), (1e-6, 1e4, "explodes")])
def test_a_gradient_that_wakes_up_does_not_explode(tmp_path: Path, early: float, late: float, outcome: str) -> None:
    def train() -> Any:
        model = nn.Linear(16, 16)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        x = torch.randn(32, 16)
        for step in range(12):
            optimizer.zero_grad()
            loss = model(x).square().mean() * (early if step < 8 else late)
            loss.backward()
            optimizer.step()
        return model

    assert answer(tmp_path, GradientExplodes, train, "every")["outcome"] == outcome


# --- step_time_trend: on a busy machine a step waits longer and works no longer


class Idle:
    """A recorder of a run without an environment."""

    optimizers: tuple[Any, ...] = ()


@pytest.mark.parametrize(
    ("work", "waits", "outcome"),
    [
        (lambda _: 0.01, lambda i: float(i > 150) * 8, "unclear"),
        (lambda i: 0.01 * (1 + i / 100), lambda i: float(i > 150) * 8, "works_more"),
        (lambda _: 0.01, lambda _: 0.0, "grows"),
    ],
)
def test_waiting_for_a_busy_processor_is_no_slowdown(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[int], float], waits: Callable[[int], float], outcome: str
) -> None:
    clock, used = [0.0], [(0.0, 0.0)]
    monkeypatch.setattr("clew.observe.watches.step_time_trend.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(step_time_trend, "usage", lambda: used[0])
    watch = step_time_trend.StepTimeTrend(Idle())
    for step in range(300):
        clock[0] += 0.012 * (1 + step / 100)
        used[0] = used[0][0] + work(step), used[0][1] + waits(step)
        watch.after_step(OptimizerEvent(None, 0, step, step < 10, None))
    read = watch.read()
    table: dict[str, Any] = {"unclear": read.why} if isinstance(read, Unclear) else {"measured": dict(read.measured)}
    table |= {"outcome": read.outcome} if isinstance(read, Saw) else {}
    assert judged({"test": watch.test, **table})["outcome"] == outcome


# --- the loss that went through backward, on the scale on which the script prints it


def curve(*values: float) -> Series:
    return Series("loss", tuple(range(len(values))), values)


FALLING = [3.0 * 0.97**step for step in range(100)]


@pytest.mark.parametrize(
    ("printed", "factor"),
    [
        ([4.02 * value for value in FALLING[::10]], 4.0),  # divided by four for accumulation
        ([value / 128 for value in FALLING[::10]], 1 / 128),  # summed over the batch
        (FALLING[::10], 1.0),
        ([sum(FALLING[i : i + 23]) / 46 for i in range(0, 100, 23)], 1.0),  # something else, and no whole number
        ([2 * FALLING[0], *FALLING[10::10]], 1.0),  # a first figure that is off, and the rest is not
        ([float("inf"), 1.0], 1.0),
        ([float("nan"), float("nan")], 1.0),
        ([4.0], 1.0),
    ],
)
def test_the_printed_loss_shows_the_scale(printed: list[float], factor: float) -> None:
    seen = curve(*FALLING)
    scaled = as_printed(seen, {"train_loss": curve(*printed)})
    assert scaled.values[0] / seen.values[0] == pytest.approx(factor)
    assert scaled.steps == seen.steps
    assert as_printed(seen, {}) == seen


# --- which printed loss stands for validation, and where it lies among the steps


def test_validation_stands_before_the_test_at_the_end() -> None:
    assert main_loss(["test_loss", "val_loss"], held_out=True)[0] == "val_loss"
    assert main_loss(["test_loss"], held_out=True)[0] == "test_loss"


@pytest.mark.parametrize(
    ("epochs", "point", "step"),
    [((0,), 1, 100), ((), 1, 99), ((), 0, 0), ((), 60, 60)],  # 0 may come before training, 60 is a step
)
def test_one_evaluation_after_the_only_epoch_lies_at_its_end(epochs: tuple[int, ...], point: int, step: int) -> None:
    line = Series("val_loss", (point,), (1.0,))
    made = spread({"train_loss": curve(*FALLING), "val_loss": line}, [], epochs)
    assert made["val_loss"].steps == (step,)
