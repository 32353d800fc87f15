"""What a watch is: a small instrument that follows events of a run and answers one test.

A watch is told what happens, keeps little, and at any time can be asked what it has seen. It never changes anything,
never draws a random number, never keeps a graph or a batch alive, and reads tensor values only when the recorder says
that the step is sampled (`sampled` in the event), because reading a value makes the machine wait for its device.

An exception in a watch, SystemExit among them, switches that watch off, and it then answers `Unclear` with the error: a
run is never broken by an instrument. What a signal raises while a watch looks belongs to the script (`guard`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from clew.records.clue import Answer, Reading, Saw, Unclear

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from clew.observe.recorder import Recorder
    from clew.records.place import Place

__all__ = ["Answer", "Reading", "Saw", "Unclear"]


class Batch(NamedTuple):
    """What a DataLoader gave out. `tensors` are all tensors in it, in order, however nested."""

    value: Any
    tensors: list[torch.Tensor]
    loader: int  # which loader, numbered as they were first used
    epoch: int  # how often this loader was started before, from 0
    position: int  # within the epoch, from 0
    step: int  # optimiser steps done so far
    sampled: bool
    place: Place | None
    source: Any = None  # the loader's iterator


class Forward(NamedTuple):
    """One call of an outermost module (a model). Only seen on sampled steps and around evaluation."""

    module: torch.nn.Module
    model: int  # which model, numbered as they were first called
    inputs: tuple[Any, ...]
    output: Any
    training: bool  # module.training
    grad: bool  # whether gradients were enabled
    step: int
    evaluation: bool  # made while gradients were off or after .eval(): no training forward
    place: Place | None


class ModuleCall(NamedTuple):
    """One call of a module inside a model, on sampled steps. `name` is its path in the model."""

    module: torch.nn.Module
    name: str
    model: int
    inputs: tuple[Any, ...]
    output: Any
    step: int
    evaluation: bool


# `aside` has the same form: a module without parameters that was called by itself, such as one that scales inputs.


class LossCall(NamedTuple):
    """One call of a loss function of torch.nn.functional (modules such as CrossEntropyLoss come through there too)."""

    name: str  # "cross_entropy", "mse_loss", "binary_cross_entropy_with_logits", …
    input: torch.Tensor
    target: Any
    options: dict[str, Any]  # the remaining arguments by name: reduction, ignore_index, weight, …
    result: torch.Tensor
    step: int
    grad: bool
    sampled: bool
    place: Place | None


class FunctionCall(NamedTuple):
    """One call of softmax, log_softmax, sigmoid, argmax … wherever it was spelled."""

    name: str
    input: torch.Tensor
    options: dict[str, Any]
    result: torch.Tensor
    step: int
    grad: bool
    sampled: bool
    place: Place | None


class Backward(NamedTuple):
    """One call of backward. `loss` is the tensor it was called on; its graph is still there before, gone after."""

    loss: torch.Tensor
    step: int
    sampled: bool
    place: Place | None


class OptimizerEvent(NamedTuple):
    """A step, a zero_grad, or the making of an optimiser. Optimisers are numbered as they were made."""

    optimizer: Any
    number: int
    step: int
    sampled: bool
    place: Place | None


class Clip(NamedTuple):
    kind: str  # "norm" | "value"
    parameters: Sequence[torch.Tensor]
    limit: float
    norm: (
        Any  # the norm before clipping as clip_grad_norm_ returned it (a tensor: read it only when sampled), else None
    )
    step: int
    sampled: bool
    place: Place | None
    norm_type: float = 2.0


class SchedulerStep(NamedTuple):
    scheduler: Any
    step: int
    epoch: int  # how often the first training loader was started before
    place: Place | None


class Mode(NamedTuple):
    module: torch.nn.Module
    training: bool
    step: int
    place: Place | None


class Raised(NamedTuple):
    """An exception left a loss, a backward or an optimiser step: whether the script caught it shows later."""

    error: str
    during: str
    step: int
    place: Place | None


class Judged(NamedTuple):
    """What became of a forward call of a model: a backward followed (training), or none did before the next batch."""

    model: int
    training: bool  # module.training at the call
    grad: bool
    backward: bool
    loader: int | None  # the loader whose batch came last before the call
    step: int
    place: Place | None


Handler = TypeVar("Handler")


def when_sampled(handler: Handler) -> Handler:
    """Marks a handler that has nothing to do between sampled steps: it is then not called there, which is far cheaper
    than to return at once. For events that say whether they are sampled."""
    handler.when_sampled = True  # type: ignore[attr-defined]  # a plain function takes any attribute
    return handler


class Watch:
    """Override the events that matter; the recorder calls nothing else. Set `test` to the id in the knowledge base."""

    test: ClassVar[str] = ""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def installed(self) -> None:
        """All is in place and the script has not begun: what it may import by name can still be replaced."""

    def forked(self) -> None:
        """This is a copy of the process, such as a worker of a loader: nothing of the watch may stay in its way."""

    def batch(self, event: Batch) -> None: ...
    def forward(self, event: Forward) -> None: ...
    def module(self, event: ModuleCall) -> None: ...
    def aside(self, event: ModuleCall) -> None: ...
    def loss(self, event: LossCall) -> None: ...
    def function(self, event: FunctionCall) -> None: ...
    def before_backward(self, event: Backward) -> None: ...
    def after_backward(self, event: Backward) -> None: ...
    def optimizer_made(self, event: OptimizerEvent) -> None: ...
    def zero_grad(self, event: OptimizerEvent) -> None: ...
    def before_step(self, event: OptimizerEvent) -> None: ...
    def after_step(self, event: OptimizerEvent) -> None: ...
    def clip(self, event: Clip) -> None: ...
    def scheduler(self, event: SchedulerStep) -> None: ...
    def mode(self, event: Mode) -> None: ...
    def raised(self, event: Raised) -> None: ...
    def judged(self, event: Judged) -> None: ...

    def read(self) -> Answer:
        """What was seen so far. Called at the end, and now and then before."""
        raise TypeError(f"{type(self).__name__} does not answer")


_NO_EVENTS = ("test", "read", "installed", "forked")
EVENTS = tuple(name for name in vars(Watch) if not name.startswith("_") and name not in _NO_EVENTS)
