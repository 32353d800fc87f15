"""The watches on the training loop: each fires on its fault in several spellings, all are silent on sound loops."""

# mypy: disable-error-code="no-untyped-call"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import faults_training as faults
import pytest
import torch
import torch.nn.functional as F
from faults_training import FAULTY, schedulers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loops_training import SOUND, Loop, accumulated, amp, answers, frozen, in_order, loader, mlp, text_at

from clew.archive.metrics import read_numbers
from clew.knowledge import load
from clew.observe.hooks import watching
from clew.observe.watch import Watch
from clew.observe.watches._training_values import fingerprint
from clew.observe.watches.accumulation_scaling import AccumulationScaling
from clew.observe.watches.batch_norm_batch import BatchNormBatch
from clew.observe.watches.clip_activity import ClipActivity
from clew.observe.watches.clip_position import ClipPosition
from clew.observe.watches.decay_against_gradient import DecayAgainstGradient
from clew.observe.watches.event_order import EventOrder
from clew.observe.watches.grad_mode_in_training import GradModeInTraining
from clew.observe.watches.gradient_explodes import GradientExplodes
from clew.observe.watches.graph_growth import GraphGrowth
from clew.observe.watches.half_precision import HalfPrecision
from clew.observe.watches.inplace_writes import InplaceWrites
from clew.observe.watches.mode_in_training import ModeInTraining
from clew.observe.watches.mode_in_validation import ModeInValidation
from clew.observe.watches.optimizer_coverage import OptimizerCoverage
from clew.observe.watches.optimizer_rebuilt import OptimizerRebuilt
from clew.observe.watches.parameters_changed import ParametersChanged
from clew.observe.watches.rank_parameters import RankParameters
from clew.observe.watches.requires_grad_flags import RequiresGradFlags
from clew.observe.watches.scheduler_steps import SchedulerSteps
from clew.observe.watches.swallowed_exceptions import SwallowedExceptions
from clew.observe.watches.update_ratio import UpdateRatio

WATCHES: list[type[Watch]] = [
    AccumulationScaling,
    BatchNormBatch,
    ClipActivity,
    ClipPosition,
    DecayAgainstGradient,
    EventOrder,
    GradModeInTraining,
    GradientExplodes,
    GraphGrowth,
    HalfPrecision,
    InplaceWrites,
    ModeInTraining,
    ModeInValidation,
    OptimizerCoverage,
    OptimizerRebuilt,
    ParametersChanged,
    RankParameters,
    RequiresGradFlags,
    SchedulerSteps,
    SwallowedExceptions,
    UpdateRatio,
]
TESTS = load().tests
pytestmark = [
    pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step"),
    pytest.mark.filterwarnings("ignore:`parameters` is an empty generator"),
]


def name(loop: Any) -> str:
    if isinstance(loop, partial):
        return f"{loop.func.__name__} {' '.join(map(str, loop.args))}".strip()
    return str(loop.__name__)


def alarms(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The outcomes that speak for a fault."""
    seen = {}
    for test, answer in found.items():
        outcome = TESTS[test].outcome(answer["outcome"])
        if outcome is not None and outcome.kind == "seen":
            seen[test] = (answer["outcome"], answer["measured"])
    return seen


@pytest.mark.parametrize(("test", "outcome", "loop", "line"), FAULTY, ids=[f"{f[0]} {name(f[2])}" for f in FAULTY])
def test_a_fault_is_seen(tmp_path: Path, test: str, outcome: str, loop: Loop, line: str) -> None:
    answer = answers(tmp_path, loop, *WATCHES)[test]
    assert answer["outcome"] == outcome, answer
    if line:
        assert line in text_at(answer)
    assert TESTS[test].outcome(outcome) is not None


@pytest.mark.parametrize("loop", SOUND, ids=name)
def test_sound_loops_raise_no_alarm(tmp_path: Path, loop: Loop) -> None:
    assert alarms(answers(tmp_path, loop, *WATCHES)) == {}


def clipped_under_adam(limit: float) -> Any:
    steps = "zero forward backward clip step"
    return in_order(steps, optimizer=lambda model: torch.optim.Adam(model.parameters()), epochs=15, limit=limit)


QUIET: list[tuple[str, str, Loop]] = [
    ("accumulation_scaling", "scaled_or_none", partial(accumulated, divide=False, by_hand=True)),
    ("accumulation_scaling", "scaled_or_none", partial(accumulated, divide=False, reduction="sum")),
    ("accumulation_scaling", "unclear", partial(accumulated, divide=False, kind=torch.optim.AdamW)),
    ("optimizer_rebuilt", "unclear", partial(faults.built_each_epoch, 3, falling=0.1)),  # stages
    ("clip_activity", "sometimes", partial(in_order, "zero forward backward clip step", epochs=6, limit=0.7)),
    ("clip_activity", "never", partial(in_order, "zero forward backward clip step", limit=float("inf"))),
    ("clip_activity", "unclear", partial(clipped_under_adam, 0.02)),  # which evens it out
    ("clip_activity", "always", partial(clipped_under_adam, 1e-6)),
    ("clip_position", "right", partial(in_order, "zero forward backward step clip", limit=float("inf"))),
    ("clip_position", "right", partial(amp, fused=True)),
    ("half_precision", "fine", partial(faults.small_gradients_in_half, scaled=True)),
    ("half_precision", "fine", partial(faults.half_weights, torch.bfloat16, 3.0)),
    ("optimizer_coverage", "complete", partial(frozen, "everything")),
    ("parameters_changed", "all", partial(frozen, "everything")),
    ("swallowed_exceptions", "none", partial(faults.errors_caught, "nowhere")),
    ("swallowed_exceptions", "none", partial(faults.errors_caught, "first call")),
    ("requires_grad_flags", "trainable", partial(faults.table_of_scores, False)),
    ("requires_grad_flags", "trainable", partial(faults.table_of_scores, True, True)),  # an adapter trains alone
    ("scheduler_steps", "plausible", partial(faults.warm_up_per_epoch, 20, 14)),
    ("decay_against_gradient", "small", faults.decays(lambda p: torch.optim.AdamW(p, 1e-3, weight_decay=0.1))),
    ("optimizer_coverage", "complete", lambda: faults.freed_after_the_optimizer_was_made(later=True)),
    ("batch_norm_batch", "enough", partial(in_order, model=mlp(norm=True), batches=loader(12))),
]


@pytest.mark.parametrize(("test", "outcome", "loop"), QUIET, ids=[f"{q[0]} {name(q[2])}" for q in QUIET])
def test_what_looks_like_a_fault_and_is_none(tmp_path: Path, test: str, outcome: str, loop: Loop) -> None:
    answer = answers(tmp_path, loop, *WATCHES)[test]
    assert answer["outcome"] == outcome, answer


def nothing() -> None:
    torch.zeros(3).sum()


@pytest.mark.parametrize("watch", WATCHES, ids=lambda watch: watch.test)
def test_what_was_not_looked_at_is_unclear(tmp_path: Path, watch: type[Watch]) -> None:
    answer = answers(tmp_path, nothing, watch)[watch.test]
    assert answer["outcome"] == "unclear"
    assert answer["unclear"]


@pytest.mark.parametrize(
    ("test", "order"),
    [
        ("no_zero_grad", "forward backward step"),
        ("zeroed_before_step", "forward backward zero step"),
        ("step_before_backward", "zero forward step backward"),
    ],
)
def test_a_wrong_order_is_known_after_two_steps(tmp_path: Path, test: str, order: str) -> None:
    two = partial(in_order, order, epochs=1, batches=loader(12, 24))
    assert answers(tmp_path, two, EventOrder)["event_order"]["outcome"] == test


def test_a_step_before_backward_is_known_after_many_steps_too(tmp_path: Path) -> None:
    many = partial(in_order, "zero forward step backward", epochs=40, batches=loader(12, 60))
    assert answers(tmp_path, many, EventOrder)["event_order"]["outcome"] == "step_before_backward"


def test_a_few_backwards_without_a_step_are_no_fault_yet(tmp_path: Path) -> None:
    few = partial(in_order, "forward backward", epochs=1, batches=loader(12, 36))
    assert answers(tmp_path, few, EventOrder)["event_order"]["outcome"] == "unclear"


def test_one_error_that_ends_training_is_not_swallowed(tmp_path: Path) -> None:
    def loop() -> None:
        with pytest.raises(IndexError):
            in_order(batches=[(torch.randn(4, 6), torch.tensor([0, 1, 2, 9]))])

    assert answers(tmp_path, loop, SwallowedExceptions)["swallowed_exceptions"]["outcome"] == "none"


@pytest.mark.parametrize("order", ["schedule zero forward backward step", "zero forward backward schedule step"])
def test_a_slow_schedule_that_is_one_batch_ahead_is_no_fault(tmp_path: Path, order: str) -> None:
    """The step before is as good a rate as the step's own: nobody could tell the two runs apart."""

    def cosine(held: Any) -> Any:
        return schedulers.CosineAnnealingLR(held, 6 * len(loader()))

    loop = partial(in_order, order, scheduler=cosine, epochs=6)
    assert answers(tmp_path, loop, SchedulerSteps)["scheduler_steps"]["outcome"] == "plausible"


@pytest.mark.parametrize(("base", "factor", "outcome"), [
    (1e-2, 1e-2, "far_below"),
    (1.0, 1e-2, "plausible"),  # a schedule that gives the rate itself
    (1e-2, 1.0, "plausible"),
])  # fmt: skip
def test_a_schedule_that_gives_a_rate_where_a_factor_is_wanted(
    tmp_path: Path, base: float, factor: float, outcome: str
) -> None:
    def decaying(step: int) -> float:
        return factor * min((step + 1) / 10, 0.99**step)

    loop = partial(
        in_order,
        "zero forward backward step schedule",
        optimizer=lambda held: torch.optim.SGD(held.parameters(), lr=base),
        scheduler=lambda held: schedulers.LambdaLR(held, decaying),
        epochs=20,
    )
    said = answers(tmp_path, loop, SchedulerSteps)["scheduler_steps"]
    assert said["outcome"] == outcome, said
    if outcome == "far_below":
        assert "def decaying" in text_at(said)


class Twice(torch.optim.Optimizer):
    """Climbs a little, asks for the gradient there, and lets another optimiser step with it."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.base = torch.optim.SGD(self.param_groups, lr=lr)

    @torch.no_grad()
    def climb(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(1e-3 * parameter.grad)
        self.zero_grad()

    def back(self) -> None:
        self.base.step()
        self.zero_grad()


def test_an_optimiser_that_is_built_around_another_need_not_step_itself(tmp_path: Path) -> None:
    def loop() -> None:
        model = mlp()
        optimizer = Twice(model.parameters(), lr=1e-2)
        for _ in range(6):
            for x, y in loader():
                F.cross_entropy(model(x), y).backward()
                optimizer.climb()
                F.cross_entropy(model(x), y).backward()
                optimizer.back()

    assert answers(tmp_path, loop, EventOrder)["event_order"]["outcome"] != "no_step"


def test_the_run_is_not_changed(tmp_path: Path) -> None:
    """Dropout, momentum, clipping and a schedule, with all watches and without: equal to the last bit."""

    def run() -> tuple[list[torch.Tensor], torch.Tensor]:
        torch.manual_seed(3)
        model = mlp(norm=True)
        in_order(
            "zero forward backward clip step schedule",
            model,
            lambda held: torch.optim.AdamW(held.parameters(), lr=1e-2, weight_decay=0.1),
            lambda held: schedulers.StepLR(held, 7),
        )
        return [value.clone() for value in model.state_dict().values()], torch.get_rng_state()

    seen: list[Any] = []
    answers(tmp_path, lambda: seen.append(run()))
    bare, state = seen.pop()
    answers(tmp_path, lambda: seen.append(run()), *WATCHES)
    watched, watched_state = seen[0]
    assert all(torch.equal(one, other) for one, other in zip(bare, watched, strict=True))
    assert torch.equal(state, watched_state)


def test_no_graph_or_batch_is_kept(tmp_path: Path) -> None:
    """When the script lets go of its tensors they are gone, whatever the watches noted of them."""
    held: list[weakref.ref[Any]] = []

    class Noted(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, i: int) -> Any:
            return torch.randn(6), i % 3

    def loop() -> None:
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in torch.utils.data.DataLoader(Noted(), batch_size=4):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            held.extend(weakref.ref(tensor) for tensor in (x, loss))
        held.append(weakref.ref(model))
        held.append(weakref.ref(optimizer))

    with watching(tmp_path, WATCHES) as recorder:
        loop()
        gc.collect()
        assert not [reference() for reference in held if reference() is not None]
        assert recorder.broken == {}


def test_update_ratio_and_norms_are_kept_as_series(tmp_path: Path) -> None:
    with watching(tmp_path, [UpdateRatio, GradientExplodes]) as recorder:
        in_order(epochs=1)
    recorder.stream.flush()
    numbers = read_numbers(recorder.stream.path)
    ratios = [value for series, of, _, value in numbers if (series, of) == ("update_ratio", "0.weight")]
    assert len(ratios) == 10
    assert all(0 < value < 0.1 for value in ratios)
    assert len([value for series, of, _, value in numbers if (series, of) == ("gradient_norm", "0")]) == 10


def test_ranks_write_a_fingerprint_only_when_there_are_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "one process" in answers(tmp_path, in_order, RankParameters)["rank_parameters"]["unclear"]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "one process" in answers(tmp_path, in_order, RankParameters)["rank_parameters"]["unclear"], "never met"
    monkeypatch.setattr("clew.observe.watches.rank_parameters._world", lambda: 2)
    with watching(tmp_path, [RankParameters]) as recorder:
        in_order(epochs=1)
    recorder.stream.flush()
    assert {series for series, *_ in read_numbers(recorder.stream.path)} >= {"fingerprint"}


@given(
    st.lists(st.sampled_from(["forward", "backward", "step", "zero"]), min_size=1, max_size=6),
    st.integers(0, 2**16),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_order_of_calls_gets_an_answer(tmp_path: Path, order: list[str], seed: int) -> None:
    """Whatever a loop does in whatever order, the watches answer and none breaks."""

    def loop() -> None:
        torch.manual_seed(seed)
        with contextlib.suppress(RuntimeError, UnboundLocalError):
            in_order(" ".join(order), epochs=1, batches=loader(12, 36))

    for test, answer in answers(tmp_path, loop, *WATCHES).items():
        assert answer["outcome"] == "unclear" or TESTS[test].outcome(answer["outcome"]) is not None


@pytest.mark.parametrize("shape", [(2,), (3, 4), (1,)])
def test_a_change_up_and_down_by_as_much_leaves_another_print(shape: tuple[int, ...]) -> None:
    """As a softmax moves the biases of two scores."""
    held = torch.full(shape, 0.25)
    before = fingerprint(held)
    flat = held.view(-1)
    flat[0] += 2.0**-20
    flat[-1] -= 2.0**-20 if len(flat) > 1 else 0.0
    assert fingerprint(held) != before
