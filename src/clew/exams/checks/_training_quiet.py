"""A model without its dropout: as a module, a function, or an argument of attention and recurrent layers."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from clew.exams.batches import Batch
from clew.exams.lab import Lab

DROPPING = frozenset(
    "dropout dropout_ dropout1d dropout2d dropout3d feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ "
    "feature_alpha_dropout feature_alpha_dropout_".split()
)
RECURRENT = frozenset(("lstm", "gru", "rnn_tanh", "rnn_relu"))
ALIKE = 1e-6


class NoDropout(TorchFunctionMode):
    """Torch calls as they are made, those that drop values left out."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name in DROPPING:
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            args, kwargs = _with(args, kwargs, "dropout_p", 4, 0.0)
        elif name == "multi_head_attention_forward":
            args, kwargs = _with(args, kwargs, "dropout_p", 10, 0.0)
        elif name in RECURRENT and len(args) > 6:
            place = 5 if isinstance(args[3], bool) else 6  # packed sequences bring their sizes along
            args = (*args[:place], 0.0, *args[place + 1 :])
        return func(*args, **kwargs)


def _with(
    args: tuple[Any, ...], kwargs: dict[str, Any], name: str, place: int, value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if place < len(args):
        return (*args[:place], value, *args[place + 1 :]), kwargs
    return args, {**kwargs, name: value}


@contextmanager
def quiet(model: nn.Module) -> Iterator[None]:
    """Training mode as it is, without dropout. Batch norm and what else follows the mode are not touched."""
    dropping = [part for part in model.modules() if "drop" in type(part).__name__.lower() and part.training]
    for part in dropping:
        part.training = False
    try:
        with NoDropout():
            yield
    finally:
        for part in dropping:
            part.training = True


def repeating() -> Callable[[], None]:
    """A function that sets every random state to what it is now. Setting states is far cheaper than seeding, which
    outside of CUDA's own start writes down the stack each time."""
    numpy = sys.modules.get("numpy")
    held = random.getstate(), numpy.random.get_state() if numpy is not None else None, torch.get_rng_state()
    cuda: Any = torch.cuda
    devices = cuda.get_rng_state_all() if cuda.is_available() and cuda.is_initialized() else None

    def again() -> None:
        random.setstate(held[0])
        if numpy is not None:
            numpy.random.set_state(held[1])
        torch.set_rng_state(held[2])
        if devices is not None:
            cuda.set_rng_state_all(devices)

    return again


def quiet_loss(lab: Lab, model: nn.Module, batch: Batch, seed: int = 0) -> float:
    """The loss in training mode without dropout. Gradients stay on, for losses that differentiate on their way, and
    running statistics end as they were."""
    held = {name: value.clone() for name, value in model.named_buffers()}
    with lab.seeded(seed), quiet(model.train()):
        value = float(lab.loss(model, batch).detach())
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(held[name])
    return value


def mean_loss(lab: Lab, model: nn.Module, batches: list[Batch]) -> float:
    return sum(quiet_loss(lab, model, batch, number) for number, batch in enumerate(batches)) / len(batches)


def has_dropout(lab: Lab, model: nn.Module, batch: Batch) -> bool:
    """Whether the loss of a training pass changes when dropout is left out."""
    held = {name: value.clone() for name, value in model.named_buffers()}
    with lab.seeded():
        loud = float(lab.loss(model.train(), batch).detach())
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(held[name])
    return abs(loud - quiet_loss(lab, model, batch)) > ALIKE * abs(loud)
