"""Where an exam works: copies of the subject, training by a few steps, random states of its own, a clock.

Nothing that happens in a lab is seen outside it: models are copies, batches are never written to, and every random
state (Python, numpy, torch on all devices) is put back.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import nn

from clew.errors import ClewError
from clew.exams.batches import Batch, distinct
from clew.exams.subject import Seen, Subject
from clew.records.place import Place

FALLBACK_RATE = 1e-3


class OutOfTime(Exception):
    """The time given to an exam is over."""


class NotReplayed(ClewError):
    """The exam calls the model, and what the model would say is not what it said in the run."""


class Lab:
    """One exam's view of a subject. `limit` is the seconds it may take; `tell` is called with the share done (0..1);
    `keep` is a folder for what a person should look at, None when nobody will; `untrue` says why the model cannot be
    replayed, "" when it can."""

    def __init__(
        self,
        subject: Subject,
        limit: float = 60.0,
        seed: int = 0,
        tell: Callable[[float], None] | None = None,
        keep: str | None = None,
        untrue: str = "",
    ) -> None:
        self.subject = subject
        self.limit = limit
        self.seed = seed
        self.tell = tell
        self.keep = keep
        self.untrue = untrue
        self.differentiates = False
        self.began = time.monotonic()

    # --- what there is

    @property
    def batch(self) -> Batch:
        """The first training batch."""
        return self.subject.batches[0]

    @property
    def batches(self) -> list[Batch]:
        return self.subject.batches

    @cached_property
    def distinct(self) -> list[Batch]:
        """The training batches without those that only come again."""
        return distinct(self.subject.batches)

    @property
    def val_batches(self) -> list[Batch]:
        return self.subject.val_batches

    @cached_property
    def val_pairs(self) -> list[Batch]:
        """The held-out batches that a loss can be taken on: inputs may have been kept without their targets."""
        if all(batch.target is None for batch in self.batches):
            return self.val_batches
        return [batch for batch in self.val_batches if batch.target is not None]

    def place(self, name: str = "") -> Place | None:
        return self.subject.place(name)

    # --- trying

    def fresh(self, training: bool = True) -> nn.Module:
        """A copy of the model as it was given or captured."""
        if self.untrue:
            raise NotReplayed(self.untrue)
        return self.subject.copy().train(training)

    def late(self, training: bool = True) -> nn.Module:
        """A copy of the model late in its training where that is known, otherwise as it was given."""
        if self.untrue:
            raise NotReplayed(self.untrue)
        held = self.subject.trained()
        return (held if held is not None else self.subject.copy()).train(training)

    def output(self, model: nn.Module, batch: Batch) -> Any:
        return self.subject.call(model, batch.inputs)

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self.subject.value(self.output(model, batch), batch.target)

    def loss_value(self, model: nn.Module, batch: Batch) -> float:
        """The loss as a number, without a graph, in whatever mode the model is in.

        A model that differentiates on its way (the residual of a differential equation, a gradient penalty) cannot do
        without one: it gets it, and its random states as they were before the attempt."""
        if not self.differentiates:
            before = random_states()
            try:
                with torch.no_grad():
                    return float(self.loss(model, batch))
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                set_random_states(before)
                self.differentiates = True
        with torch.enable_grad():
            return float(self.loss(model, batch).detach())

    def walk(self, model: nn.Module, batch: Batch) -> tuple[Any, list[Seen]]:
        """The output, and what was computed on the way, with graphs."""
        return self.subject.walk(model, batch.inputs)

    def optimizer(self, model: nn.Module, rate: float | None = None) -> torch.optim.Optimizer:
        """The user's kind of optimiser with their settings over a copy, Adam where none is known; `rate` replaces
        the learning rate of every group."""
        made = self.subject.make_optimizer(model)
        if made is None:
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            made = torch.optim.Adam(trained or list(model.parameters()), lr=rate or FALLBACK_RATE)
        if rate is not None:
            for group in made.param_groups:
                group["lr"] = torch.tensor(rate) if isinstance(group["lr"], torch.Tensor) else rate
        return made

    def fit(
        self,
        model: nn.Module,
        batches: Sequence[Batch],
        steps: int,
        rate: float | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        until: Callable[[list[float]], bool] | None = None,
    ) -> list[float]:
        """Train the copy on the batches in turn; the loss before every step, and after the last one on its batch.

        Ends early when a loss is not finite, when `until(losses)` says so, and with OutOfTime when time is over.
        """
        optimizer = optimizer or self.optimizer(model, rate)
        losses: list[float] = []
        for step in range(steps):
            self.check(step / steps)
            losses.append(self.one_step(model, batches[step % len(batches)], optimizer))
            if losses[-1] != losses[-1] or abs(losses[-1]) == float("inf") or (until is not None and until(losses)):
                return losses
        losses.append(self.loss_value(model, batches[(steps - 1) % len(batches)]))
        return losses

    def one_step(self, model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        """One training step as the folklore writes it; the loss before it."""
        first: list[float] = []

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = self.loss(model, batch)
            if not first:
                first.append(float(loss.detach()))
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            return loss

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)  # type: ignore[no-untyped-call]
        else:
            closure()
            optimizer.step()
        return first[0]

    # --- randomness and time

    def generator(self, more: int = 0) -> torch.Generator:
        """A source of random numbers of the exam's own."""
        return torch.Generator().manual_seed(self.seed + more)

    @contextmanager
    def seeded(self, more: int = 0) -> Iterator[None]:
        """All random states set by the lab's seed inside, and as they were after it."""
        with apart(self.subject.torch_only):
            seed_all(self.seed + more, self.subject.torch_only)
            yield

    def left(self) -> float:
        return self.limit - (time.monotonic() - self.began)

    def check(self, done: float = 0.0) -> None:
        """Say how far the exam is. Raises OutOfTime when its time is over: let it pass."""
        if self.tell is not None:
            self.tell(min(max(done, 0.0), 1.0))
        if self.left() <= 0:
            raise OutOfTime


def random_states() -> list[torch.Tensor]:
    """Of torch: the CPU's, then those of the devices in use."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in _devices())]


def set_random_states(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(_devices(), states[1:], strict=False):
        torch.cuda.set_rng_state(state, device)


def _devices() -> list[int]:
    cuda: Any = torch.cuda
    return list(range(cuda.device_count())) if cuda.is_available() and cuda.is_initialized() else []


def seed_all(seed: int, torch_only: bool = False) -> None:
    if not torch_only:
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed % 2**32)
    if _accelerated():
        torch.manual_seed(seed)
    else:  # where there is no device, torch notes who asked for its seed, which takes a thousand times as long
        torch.default_generator.manual_seed(seed)


def _accelerated() -> bool:
    if hasattr(torch, "accelerator"):
        return torch.accelerator.is_available()
    return torch.cuda.is_available() or torch.backends.mps.is_available()


@contextmanager
def apart(torch_only: bool = False) -> Iterator[None]:
    """Every random state and the grad mode are afterwards as they were before. With `torch_only`, for what draws no
    other random numbers, it takes a tenth of the time."""
    numpy = sys.modules.get("numpy") if not torch_only else None
    held = None if torch_only else random.getstate(), numpy.random.get_state() if numpy is not None else None
    states = random_states()
    with torch.enable_grad():
        try:
            yield
        finally:
            set_random_states(states)
            if held[0] is not None:
                random.setstate(held[0])
            if numpy is not None:
                numpy.random.set_state(held[1])


__all__ = ["Batch", "Lab", "NotReplayed", "OutOfTime", "Seen", "Subject", "apart", "seed_all"]
