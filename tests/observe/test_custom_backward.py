"""Autograd functions of the script: wrong ones are found at their line, right ones pass, others are unclear."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import functions_custom as own
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from launching import answers, clew_run, script, troubles
from torch import nn

from clew.knowledge import load
from clew.observe.hooks import watching
from clew.observe.watch import Answer
from clew.observe.watches._custom_hazards import hazard
from clew.observe.watches.custom_backward import CustomBackward
from clew.records.clue import Saw, Unclear
from clew.tape.slopes import relative_error, slope

Apply = Callable[[torch.Tensor], Any]

WEIGHT = nn.Parameter(torch.randn(5, 4))
BIAS = nn.Parameter(torch.zeros(5))
FIXED = torch.randn(5, 4)

RIGHT: dict[str, Apply] = {
    "plain": own.Cube.apply,
    "context apart": lambda x: own.Square.apply(x, 0.5)[0],
    "a default": lambda x: own.Square.apply(x)[0],
    "three inputs": lambda x: own.Linear.apply(x, WEIGHT, BIAS),
    "some constant": lambda x: own.Linear.apply(x, FIXED, None),
    "in place": lambda x: own.InPlace.apply(x * 1),
    "random": own.Noisy.apply,
    "kinked": own.Kinked.apply,
}
WRONG: dict[str, tuple[Apply, str, str]] = {
    "factor": (own.WrongFactor.apply, "x", "WrongFactor.backward"),
    "sign": (lambda x: own.WrongSign.apply(x, 1.0)[0], "x", "WrongSign.backward"),
    "one of three": (lambda x: own.WrongWeight.apply(x, WEIGHT, BIAS), "weight", "WrongWeight.backward"),
}
UNCLEAR: dict[str, tuple[Apply, str]] = {
    "reversal": (lambda x: own.Reversed.apply(x, 1.0), "input unchanged"),
    "straight-through": (own.StraightThrough.apply, "straight-through"),
    "surrogate": (own.Surrogate.apply, "straight-through estimator"),
    "mask or not": (own.ClampedThrough.apply, "a forgotten mask"),
    "prints": (own.Printing.apply, "its forward calls print"),
    "remembers": (own.Remembering.apply, "calls remember, which changes KEPT"),
    "coarse": (own.Coarse.apply, "always computes in float32"),
    "stopped": (lambda x: own.Stopped.apply(x) + x, "returns None for every input"),
    "no double": (own.Failing.apply, "SystemExit: no kernel for double"),
    "an object": (lambda x: own.OfAnObject.apply(x, nn.Linear(1, 1)), "takes a Linear"),
}


def trained(folder: Path, apply: Apply, steps: int = 2) -> Answer:
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    with watching(folder, [CustomBackward]) as recorder, contextlib.redirect_stdout(io.StringIO()):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(steps):
            optimizer.zero_grad()
            apply(model(torch.randn(6, 4))).float().pow(2).mean().backward()
            optimizer.step()
    assert not recorder.broken, recorder.broken
    (watch,) = recorder.watches
    early = watch.read()
    assert isinstance(early, Unclear) or (isinstance(early, Saw) and early.outcome == "none")
    recorder.ending = True
    return watch.read()


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_passes(tmp_path: Path, name: str) -> None:
    found = trained(tmp_path, RIGHT[name])
    assert isinstance(found, Saw), found
    assert found.outcome == "right"
    assert float(dict(found.measured)["largest_relative_error"] or 0) < 1e-6


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_one_is_found_at_its_line(tmp_path: Path, name: str) -> None:
    apply, argument, symbol = WRONG[name]
    found = trained(tmp_path, apply)
    assert isinstance(found, Saw), found
    assert found.outcome == "wrong"
    assert dict(found.measured)["input"] == argument
    (place,) = found.where
    assert place.symbol == symbol
    assert place.file is not None
    assert place.line is not None
    assert "def backward" in Path(place.file).read_text().splitlines()[place.line - 1]
    assert f"of {argument} it gives" in found.says


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_cannot_be_told_is_said(tmp_path: Path, name: str) -> None:
    apply, why = UNCLEAR[name]
    before = list(own.KEPT)
    found = trained(tmp_path, apply, steps=1)
    assert isinstance(found, Unclear), found
    assert why in found.why
    assert len(own.KEPT) == len(before) + (name == "remembers")  # the one call of the loop


def test_a_small_error_is_uncomfortable(tmp_path: Path) -> None:
    found = trained(tmp_path, own.SlightlyOff.apply)
    assert isinstance(found, Saw)
    assert found.outcome == "uncomfortable"


def test_what_talks_to_other_processes_is_left_alone() -> None:
    assert "communicates with other processes" in hazard(own.Gathering.forward)
    assert hazard(own.Cube.forward) == ""


def test_functions_of_libraries_do_not_count(tmp_path: Path) -> None:
    from torch.utils.checkpoint import checkpoint

    found = trained(tmp_path, lambda x: checkpoint(torch.tanh, x, use_reentrant=True))
    assert isinstance(found, Saw)
    assert found.outcome == "none"


def test_nothing_of_the_users_is_changed(tmp_path: Path) -> None:
    forward = vars(own.Noisy)["forward"]
    with watching(tmp_path, [CustomBackward]) as recorder:
        x = nn.Parameter(torch.randn(3, 3))
        optimizer = torch.optim.SGD([x], lr=0.1)
        own.Noisy.apply(x).sum().backward()
        optimizer.step()
        assert vars(own.Noisy)["forward"] is forward  # one call is enough
    states = torch.get_rng_state(), random.getstate(), torch.get_default_dtype()
    recorder.ending = True
    recorder.watches[0].read()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), torch.get_default_dtype())
    assert all(vars(kind)["forward"].__func__.__code__.co_filename == own.__file__ for kind in (own.Noisy, own.Cube))


PROGRAM = """
import torch
from torch import nn

class Softer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return torch.log1p(torch.exp(beta * x)) / beta

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.sigmoid(x), None

softer = Softer.apply
torch.manual_seed(0)
model = nn.ModuleList([nn.Linear(4, 16), nn.Linear(16, 1)])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(20):
    x = torch.randn(32, 4)
    loss = nn.functional.mse_loss(model[1](softer(model[0](x), 2.0)), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_in_a_run_of_its_own(tmp_path: Path) -> None:
    ran = clew_run(tmp_path, "--quiet", script(tmp_path, PROGRAM))
    assert ran.status == 0, ran.err
    (held,) = answers(tmp_path)
    (found,) = (answer for answer in held["answers"] if answer["test"] == "custom_backward")
    assert found["outcome"] == "wrong"
    (place,) = found["where"]
    assert (place["file"], place["line"]) == ("train.py", 13)
    assert "train.py:23 comes from the autograd function Softer, which cannot be called again" in troubles(tmp_path)


def test_the_outcomes_are_those_of_the_knowledge_base() -> None:
    test = load().tests["custom_backward"]
    assert [outcome.name for outcome in test.outcomes] == ["wrong", "uncomfortable", "right", "none"]


@settings(max_examples=60, deadline=None)
@given(st.floats(-3, 3), st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_slopes_of_smooth_functions_are_found_or_refused(at: float, a: float, b: float, c: float) -> None:
    def value(by: float) -> float:
        return a * (at + by) ** 3 + b * (at + by) ** 2 + c * (at + by)

    found = slope(value, at, 500.0)
    exact = 3 * a * at**2 + 2 * b * at + c
    assert found is None or relative_error(found, exact) < 1e-3 or abs(exact) < 1e-9


@given(st.floats(0.1, 10))
def test_a_kink_has_no_slope(steep: float) -> None:
    assert slope(lambda by: steep * max(by, 0.0), 0.0, 1.0) is None
