"""Patterns of known incidents: each is seen with its line, and what looks like it stays silent."""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# torch leaves Tensor.backward without types, and these loops call little else.

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import loops_incidents as loops
import pytest
import torch
from loops_nonfinite import FAILS, network
from loops_training import Loop, answers, text_at

from clew.observe.watch import Watch
from clew.observe.watches.clip_strength import ClipStrength
from clew.observe.watches.discarded_result import DiscardedResult
from clew.observe.watches.distance_travelled import DistanceTravelled
from clew.observe.watches.first_nonfinite import FirstNonfinite
from clew.observe.watches.loss_log_filtered import LossLogFiltered
from clew.observe.watches.mode_in_training import ModeInTraining
from clew.observe.watches.mode_in_validation import ModeInValidation
from clew.observe.watches.optimizer_coverage import OptimizerCoverage
from clew.observe.watches.optimizer_trains import OptimizerTrains
from clew.observe.watches.spectral_norm_ready import SpectralNormReady
from clew.observe.watches.step_thrown import StepThrown
from clew.observe.watches.update_by_depth import UpdateByDepth


def told(folder: Path, watch: type[Watch], loop: Loop) -> dict[str, Any]:
    return answers(folder, loop, watch)[watch.test]


def ids(cases: Any) -> list[str]:
    return [f"{outcome} {number}" for number, (outcome, *_) in enumerate(cases)]


# --- the line of the first value that is not finite


@pytest.mark.parametrize(("outcome", "loop"), FAILS, ids=ids(FAILS))
def test_the_line_that_made_the_first_bad_value(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, FirstNonfinite, loop)
    assert answer["outcome"] == outcome, answer
    assert text_at(answer).endswith("# here"), answer["where"]


def test_nothing_is_traced_after_the_first_steps_and_a_debugger_is_left_alone(tmp_path: Path) -> None:
    def loop() -> None:
        loops.train(loops.net(), epochs=2)
        assert sys.gettrace() is None
        frame = sys._getframe()
        assert frame.f_trace is None

    def traced(*_: Any) -> None:
        return None

    def under_a_debugger() -> None:
        before = sys.gettrace()
        sys.settrace(traced)
        try:
            loops.train(loops.net())
            assert sys.gettrace() is traced
        finally:
            sys.settrace(before)

    told(tmp_path, FirstNonfinite, loop)
    told(tmp_path, FirstNonfinite, under_a_debugger)


def test_weights_that_were_not_finite_to_begin_with_are_no_update(tmp_path: Path) -> None:
    def loop() -> None:
        model = network()
        mask = torch.nn.Parameter(torch.full((4,), -torch.inf), requires_grad=False)
        optimizer = torch.optim.SGD([*model.parameters(), mask], lr=0.01)
        for _ in range(4):
            loss = model(torch.randn(8, 6)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert told(tmp_path, FirstNonfinite, loop)["outcome"] == "none"


# --- dropout and batch normalisation as functions


@pytest.mark.parametrize(("outcome", "loop"), loops.VALIDATED, ids=ids(loops.VALIDATED))
def test_functions_that_ask_for_no_mode_in_validation(tmp_path: Path, outcome: str, loop: Loop) -> None:
    assert told(tmp_path, ModeInValidation, loop)["outcome"] == outcome


def test_dropout_that_is_always_on_is_named_by_its_line(tmp_path: Path) -> None:
    answer = told(tmp_path, ModeInValidation, lambda: loops.with_validation(loops.Dropped("default")))
    assert text_at(answer) == "h = F.dropout(h)"


@pytest.mark.parametrize(("outcome", "loop"), loops.TRAINED, ids=ids(loops.TRAINED))
def test_functions_that_are_told_of_eval_mode_in_training(tmp_path: Path, outcome: str, loop: Loop) -> None:
    assert told(tmp_path, ModeInTraining, loop)["outcome"] == outcome


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("back", "outcome"), [(True, "train"), (False, "eval")])
def test_evaluations_with_gradients_between_full_batches(tmp_path: Path, kept: bool, back: bool, outcome: str) -> None:
    """No loader says when evaluation ends: what a backward trains on is what its graph holds."""
    x, y = torch.randn(40, 6), torch.randint(3, (40,))

    def loop() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3))
        optimizer = torch.optim.Adam(model.parameters())
        held: list[torch.Tensor] = []
        for _ in range(300):
            if back:
                model.train()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            model.eval()
            scores = model(x)
            held = [scores] if kept else held
            (scores.argmax(1) == y).float().mean().item()
            del scores

    assert told(tmp_path, ModeInTraining, loop)["outcome"] == outcome


def test_functions_are_themselves_again_afterwards(tmp_path: Path) -> None:
    before = torch.nn.functional.dropout
    told(tmp_path, ModeInValidation, lambda: loops.with_validation(loops.Dropped("mode")))
    assert torch.nn.functional.dropout is before


# --- teachers, targets and what was really forgotten


@pytest.mark.parametrize(("outcome", "loop"), loops.COVERED, ids=ids(loops.COVERED))
def test_what_no_optimiser_holds(tmp_path: Path, outcome: str, loop: Loop) -> None:
    assert told(tmp_path, OptimizerCoverage, loop)["outcome"] == outcome


# --- an optimiser that can train nothing, a norm that was never estimated


@pytest.mark.parametrize(("outcome", "loop"), loops.FROZEN, ids=ids(loops.FROZEN))
def test_an_optimiser_over_frozen_layers(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, OptimizerTrains, loop)
    assert answer["outcome"] == outcome
    if outcome == "nothing":
        assert "optim." in text_at(answer)


def test_what_should_have_been_optimised_instead_is_missed_too(tmp_path: Path) -> None:
    answer = told(tmp_path, OptimizerCoverage, loops.inverted_filter)
    assert answer["outcome"] == "missing"
    assert answer["measured"]["parameters"] == 2


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*:FutureWarning")
@pytest.mark.parametrize(("outcome", "loop"), loops.SPECTRAL, ids=ids(loops.SPECTRAL))
def test_spectral_norm_first_used_in_eval(tmp_path: Path, outcome: str, loop: Loop) -> None:
    assert told(tmp_path, SpectralNormReady, loop)["outcome"] == outcome


# --- results that nobody takes


@pytest.mark.parametrize(("outcome", "loop", "line"), loops.DROPPED, ids=ids(loops.DROPPED))
def test_a_result_that_is_thrown_away(tmp_path: Path, outcome: str, loop: Loop, line: str) -> None:
    before = torch.Tensor.masked_fill
    answer = told(tmp_path, DiscardedResult, loop)
    assert answer["outcome"] == outcome
    assert not line or text_at(answer) == line
    assert torch.Tensor.masked_fill is before


# --- how far steps go


@pytest.mark.parametrize(("outcome", "loop"), loops.THROWN, ids=ids(loops.THROWN))
def test_first_updates_that_replace_the_weights(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, StepThrown, loop)
    assert answer["outcome"] == outcome, answer
    if outcome == "by_summed_loss":
        assert "reduction=reduction" in text_at(answer)


@pytest.mark.parametrize(("outcome", "loop"), loops.TRAVELLED, ids=ids(loops.TRAVELLED))
def test_weights_that_stay_where_they_began(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, DistanceTravelled, loop)
    assert answer["outcome"] == outcome, answer


@pytest.mark.parametrize(("outcome", "loop"), loops.CLIPPED, ids=ids(loops.CLIPPED))
def test_clipping_that_sets_the_step(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, ClipStrength, loop)
    assert answer["outcome"] == outcome, answer
    if outcome == "sets_the_step":
        assert "clip_grad_norm_" in text_at(answer)


@pytest.mark.parametrize(("outcome", "loop"), loops.DEPTHS, ids=ids(loops.DEPTHS))
def test_first_layers_that_stand_still(tmp_path: Path, outcome: str, loop: Loop) -> None:
    answer = told(tmp_path, UpdateByDepth, loop)
    assert answer["outcome"] == outcome, answer


# --- a log that leaves out what is not finite


@pytest.mark.parametrize(
    ("filters", "bad", "outcome"), [(True, True, "filtered"), (False, True, "honest"), (True, False, "honest")]
)
def test_a_trainer_that_leaves_nan_out_of_its_log(tmp_path: Path, filters: bool, bad: bool, outcome: str) -> None:
    transformers = pytest.importorskip("transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            loss = (self.layer(x).squeeze(1) - labels).pow(2).mean()
            return {"loss": loss / (0 * loss) if bad else loss}

    def loop() -> None:
        rows = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(32)]
        settings = transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            max_steps=4,
            per_device_train_batch_size=8,
            logging_nan_inf_filter=filters,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            save_strategy="no",
        )
        transformers.Trainer(Model(), settings, train_dataset=rows).train()

    answer = told(tmp_path, LossLogFiltered, loop)
    assert answer["outcome"] == outcome, answer
    if outcome == "filtered":
        assert "Trainer(Model()" in text_at(answer)


def test_a_loss_that_is_not_finite_without_a_trainer_is_unclear(tmp_path: Path) -> None:
    answer = told(tmp_path, LossLogFiltered, lambda: loops.regress(loops.sgd(1e3), steps=20))
    assert answer["outcome"] == "unclear"
