"""Checks the backward of one autograd function against differences of its forward, on copies of what it was given.

In float64, on a random projection of its outputs. Every call draws the same random numbers, and all random states,
defaults and streams are afterwards as they were.
"""

from __future__ import annotations

import io
import math
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

import torch

from clew.observe.watches._custom_hazards import hazard
from clew.tape.slopes import relative_error, slope

ENTRIES = 8
"""Of each input: the one with the largest gradient, and some by chance."""
SLOW = 0.1
"""Of the time there is. A function of which one call takes longer cannot be checked."""
AGREES = 1e-4


class Kept(NamedTuple):
    """What an autograd function was given. Tensors are copies; `wanted` says of each of them, in order, whether a
    gradient was asked for; `names` are the names of the arguments."""

    kind: type
    args: tuple[Any, ...]
    wanted: tuple[bool, ...]
    names: tuple[str, ...]


class Entry(NamedTuple):
    argument: str
    at: int
    gradient: float
    difference: float

    @property
    def error(self) -> float:
        return relative_error(self.gradient, self.difference)

    @property
    def flat(self) -> bool:
        return self.difference == 0 and self.gradient != 0


class Checked(NamedTuple):
    """`worst` is the entry that differs most; None when `why` says why there is none."""

    worst: Entry | None
    entries: int = 0
    apart: int = 0
    why: str = ""


def check(kept: Kept, limit: float) -> Checked:
    """Never raises: whatever goes wrong is the reason why there is no answer."""
    for name in ("forward", "setup_context", backward_name(kept.kind)):
        said = hazard(getattr(kept.kind, name)) if name in _defined(kept.kind) else ""
        if said:
            return Checked(None, why=f"its {name} {said}, so it was not called again")
    try:
        with _as_before():
            return _judged(list(_entries(kept, time.monotonic(), limit)))
    except _Unfit as error:
        return Checked(None, why=str(error))
    except BaseException as error:  # noqa: BLE001  # the run is over; whatever the function does must not spoil its end
        first = str(error).splitlines()[0][:160] if str(error) else ""
        return Checked(None, why=f"it cannot be called again in float64: {type(error).__name__}: {first}")


def backward_name(kind: Any) -> str:
    return "vjp" if kind.vjp is not torch.autograd.Function.vjp else "backward"


def _defined(kind: type) -> set[str]:
    own = kind.__mro__[: kind.__mro__.index(torch.autograd.Function)]
    return {name for part in own for name in vars(part)}


class _Unfit(Exception):
    """Why a function cannot be checked."""


def _judged(entries: list[Entry]) -> Checked:
    if not entries:
        return Checked(None, why="finite differences at two step sizes agree on none of its inputs")
    flat = [entry for entry in entries if entry.flat]
    for entry in flat:
        if all(other.flat for other in entries if other.argument == entry.argument):
            return Checked(
                None,
                why=(
                    f"its forward is constant in {entry.argument}, and its backward gives "
                    f"{entry.gradient:.2g} as a straight-through estimator does"
                ),
            )
    counted = [entry for entry in entries if not entry.flat]
    worst = max(counted, key=lambda entry: entry.error)
    if flat and worst.error < AGREES:
        return Checked(
            None,
            why=(
                f"its backward is right where forward has a slope, and gives {flat[0].gradient:.2g} where forward "
                f"is flat in {flat[0].argument}: a deliberate straight-through gradient or a forgotten mask"
            ),
        )
    return Checked(worst, len(counted), sum(entry.error > AGREES for entry in counted))


def _entries(kept: Kept, began: float, limit: float) -> Iterator[Entry]:
    function = _Function(kept)
    before = time.monotonic()
    outputs = function.outputs()
    if time.monotonic() - before > SLOW * limit:
        raise _Unfit("one call of it is too slow to repeat")
    function.project(outputs)
    gradients = function.gradients(outputs)
    if all(gradient is None for gradient in gradients):
        raise _Unfit("its backward returns None for every input")
    for number, gradient in enumerate(gradients):
        if gradient is None:  # the author takes this input for a constant
            continue
        for at in _chosen(gradient, number):
            if time.monotonic() - began > limit:
                return
            given = float(gradient.reshape(-1)[at])
            found = function.difference(number, at)
            if not math.isfinite(given):
                raise _Unfit(f"its backward gives {given} for {function.names[number]}")
            if found is not None and max(abs(given), abs(found)) > 1e-7 * function.scale:
                yield Entry(function.names[number], at, given, found)


def _chosen(gradient: torch.Tensor, number: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    chance = torch.randint(gradient.numel(), (ENTRIES - 1,), generator=generator).tolist()
    return list(dict.fromkeys([int(gradient.abs().argmax()), *chance]))


class _Function:
    """An autograd function with what it was given, in float64. `names` are those of the inputs that want a gradient."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self.leaves: list[torch.Tensor] = []
        self.names: list[str] = []
        self.scale = 1.0
        self._wanted = iter(kept.wanted)
        self.args = [self._own(value, name) for value, name in zip(kept.args, kept.names, strict=True)]
        if not self.leaves:
            raise _Unfit("no floating-point input requires a gradient")

    def _own(self, value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            wanted = next(self._wanted)
            if value.is_complex():
                raise _Unfit("it uses complex numbers")
            if not value.is_floating_point():
                return value
            value = value.double()
            if wanted and value.numel():
                value.requires_grad_()
                self.leaves.append(value)
                self.names.append(name)
            return value
        if isinstance(value, list | tuple):
            held = [self._own(item, name) for item in value]
            return held if isinstance(value, list) else tuple(held)
        if isinstance(value, dict):
            return {key: self._own(item, name) for key, item in value.items()}
        return value

    def outputs(self) -> list[torch.Tensor]:
        """What it makes of its inputs. They are copied for each call, as it may write to them."""
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        torch.manual_seed(0)
        with torch.enable_grad():
            made = self.kept.kind.apply(*_again(self.args))  # type: ignore[attr-defined]
        outputs = [made] if isinstance(made, torch.Tensor) else list(made)
        return [held for held in outputs if isinstance(held, torch.Tensor) and held.requires_grad]

    def project(self, outputs: list[torch.Tensor]) -> None:
        if not outputs:
            raise _Unfit("none of its outputs is differentiable")
        for made in outputs:
            if made.dtype is not torch.float64:
                raise _Unfit(
                    f"it always computes in {str(made.dtype).removeprefix('torch.')}, which is too coarse for "
                    "finite differences"
                )
            if not bool(torch.isfinite(made).all()):
                raise _Unfit("its output is not finite")
            if any(made.shape == leaf.shape and torch.equal(made, leaf) for leaf in self.leaves):
                raise _Unfit("its forward returns its input unchanged, so its backward changes the gradient on purpose")
        generator = torch.Generator().manual_seed(0)
        self.weights = [
            torch.randn(made.shape, generator=generator, dtype=torch.float64).to(made.device) for made in outputs
        ]
        pairs = zip(outputs, self.weights, strict=True)
        self.scale = max(sum(float((made.detach() * weight).abs().sum()) for made, weight in pairs), 1e-12)

    def gradients(self, outputs: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad(outputs, self.leaves, self.weights, allow_unused=True)

    def difference(self, number: int, at: int) -> float | None:
        flat = self.leaves[number].data.view(-1)
        before = float(flat[at])

        def value(by: float) -> float:
            flat[at] = before + by
            pairs = zip(self.outputs(), self.weights, strict=True)
            return sum(float((made.detach() * weight).sum()) for made, weight in pairs)

        try:
            return slope(value, before, self.scale)
        finally:
            flat[at] = before


def _again(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, list | tuple):
        held = [_again(item) for item in value]
        return held if isinstance(value, list) else tuple(held)
    if isinstance(value, dict):
        return {key: _again(item) for key, item in value.items()}
    return value


@contextmanager
def _as_before() -> Iterator[None]:
    """Random states, the default type, warnings and streams are afterwards as they were."""
    numpy = sys.modules.get("numpy")
    held = random.getstate(), numpy.random.get_state() if numpy is not None else None
    kind = torch.get_default_dtype()
    cuda: Any = torch.cuda
    devices = list(range(cuda.device_count())) if cuda.is_available() and cuda.is_initialized() else []
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(redirect_stdout(io.StringIO()))
        stack.enter_context(redirect_stderr(io.StringIO()))
        warnings.simplefilter("ignore")
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(kind)
            random.setstate(held[0])
            if numpy is not None:
                numpy.random.set_state(held[1])
