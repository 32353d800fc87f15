"""Calls of dropout and batch normalisation as functions, which read no mode but the one they are given.

Layers have a mode that can be looked up; `F.dropout(x)` has none and is always active, `F.dropout(x, training=…)` has
what the call says. The calls that torch's own layers make are left out.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe import hooks as observed
from clew.observe.patches import HIDDEN, unframe
from clew.observe.places import users_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
FUNCTIONS = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "batch_norm",
)
MOST = 256


class Call(NamedTuple):
    name: str
    on: bool
    said: bool  # whether the call itself says so, or leaves it to the default
    grad: bool
    place: Place | None

    def deliberate(self, training: bool) -> bool:
        """Active where its model is in eval mode, because the call says so: sampling with dropout is meant."""
        return self.on and self.said and not training


class Functional:
    """Collects the calls between two forward passes of models."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.calls: list[Call] = []
        self._on = False
        self.adapts = False  # weights that steps were made from are given to it: each task then has its own statistics

    def listen(self) -> None:
        """Begin to listen, once; the hooks take it off again with everything else."""
        if self._on:
            return
        self._on = True
        held = next((item for item in observed._installed if item.recorder is self.recorder), None)
        if held is not None:
            for name in FUNCTIONS:
                held.patches.replace(torch.nn.functional, name, functools.partial(self._tapped, held, name))

    def taken(self) -> list[Call]:
        """The calls since they were last asked for."""
        calls, self.calls = self.calls, []
        return calls

    def _tapped(self, held: observed.Hooks, name: str, original: Callable[..., Any]) -> Any:
        parameters = inspect.signature(original).parameters
        position = list(parameters).index("training")
        chance = list(parameters).index("p") if "p" in parameters else -1
        default = bool(parameters["training"].default)
        recorder, compiling = held.recorder, held.compiling

        def function(*args: Any, **kwargs: Any) -> Any:
            if recorder.busy or compiling() or not held.looking() or held.inside_backward:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                unframe(error)
                raise
            said = "training" in kwargs or len(args) > position
            on = kwargs["training"] if "training" in kwargs else args[position] if said else default
            rate = kwargs.get("p", args[chance] if 0 <= chance < len(args) else 0.5)
            if name == "batch_norm" and self._given(args, kwargs):
                return result
            if rate and len(self.calls) < MOST and not _by_torch():
                self.calls.append(Call(name, bool(on), said, held.grad_enabled(), users_place()))
            return result

        return function

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        weight = kwargs.get("weight", args[3] if len(args) > 3 else None)
        if not self.adapts and isinstance(weight, torch.Tensor) and weight.grad_fn is not None:
            self.adapts = True
            self.calls = [call for call in self.calls if call.name != "batch_norm"]
        return self.adapts


def _by_torch() -> bool:
    """Whether a layer of torch's made the call."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename == HIDDEN and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(TORCH)
