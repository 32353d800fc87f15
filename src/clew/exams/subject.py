"""What is examined: a model, its loss, and batches. Given by the user, or captured from a run."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import nn

from clew.errors import ClewError
from clew.exams.batches import Batch, batch_of, mapped, tensors
from clew.records.place import Place

MOST_BATCHES = 64


class Seen(NamedTuple):
    """One value on the way from the inputs to the output. `kind` is the module's class or the function that made it."""

    name: str
    kind: str
    value: torch.Tensor
    place: Place | None = None


class Clipping(NamedTuple):
    """How gradients are clipped before a step: by their norm or value by value; of which parameters, all when none is
    named."""

    limit: float
    kind: str = "norm"
    norm_type: float = 2.0
    names: frozenset[str] = frozenset()


class Subject:
    """`Subject(model, loss, batches)`.

    model       a torch module
    loss        loss(output, target) -> a scalar tensor; None when the model's output has a `.loss` of its own
    batches     batches for training, each `(inputs, target)`; inputs may be a tensor, a tuple, or a dict of arguments
    optimizer   an optimiser over the model's parameters, or a function parameters -> optimiser; exams make copies of it
    val_batches held-out batches
    predict     predict(output) -> predictions comparable with the target (class numbers, values); for metrics
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., torch.Tensor] | None,
        batches: Iterable[Any],
        optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
        val_batches: Iterable[Any] | None = None,
        predict: Callable[[Any], torch.Tensor] | None = None,
        name: str = "",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ClewError(f"a subject's model is a torch module; {type(model).__name__} was given.")
        if loss is not None and not callable(loss):
            raise ClewError(f"a subject's loss is a function of output and target; {type(loss).__name__} was given.")
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.predict = predict
        self.name = name or type(model).__name__
        self.batches = _some(batches)
        self.val_batches = _some(val_batches) if val_batches is not None else []
        # What is done around a step, where it is known: how gradients are clipped, the factor of the rate by step, over
        # how many steps, and the first batches without what is put on them by chance.
        self.clip: float | Clipping | None = None
        self.schedule: Callable[[int], float] | None = None
        self.horizon = 0
        self.plain_batches: list[Batch] = []
        if not self.batches:
            raise ClewError("a subject needs at least one batch: Subject(model, loss, batches=[(inputs, target), …]).")

    torch_only = False
    """Whether nothing but torch draws random numbers in it."""

    # A captured subject knows more; these are what a given one can say.

    def place(self, name: str = "") -> Place | None:
        """Where a module, a parameter or, without a name, the loss stands in the user's source."""
        return Place(module=name) if name else None

    def parts(self) -> list[str]:
        """What could not be replayed and why, each a sentence."""
        return []

    def beyond(self) -> str:
        """Augmentation that is known of and cannot be left out, with the reason; nothing when there is none."""
        return ""

    def trained(self) -> nn.Module | None:
        """A copy of the model late in its training; None when there is only the one that was given."""
        return None

    def uses(self) -> list[tuple[str, str]] | None:
        """The parameters in order of use, each with the function that used it; None when modules tell that."""
        return None

    def call(self, model: nn.Module, inputs: Any) -> Any:
        """The model's output."""
        if isinstance(inputs, dict):
            return model(**inputs)
        if isinstance(inputs, tuple):
            return model(*inputs)
        return model(inputs)

    def value(self, output: Any, target: Any) -> torch.Tensor:
        """The loss of an output."""
        if self.loss is None:
            held = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
            if held is None:
                raise ClewError("the subject has no loss, and its model's output has no .loss either.")
        else:
            held = self.loss(output, target)
        return held if held.dim() == 0 else held.mean()

    def walk(self, model: nn.Module, inputs: Any) -> tuple[Any, list[Seen]]:
        """The output, and every module's output on the way, in order. Graphs are kept: gradients can be taken."""
        names = {id(part): name for name, part in model.named_modules()}
        seen: list[Seen] = []

        def note(part: nn.Module, _: Any, output: Any) -> None:
            for tensor in islice(tensors(output), 4):
                name = names.get(id(part), "?")
                seen.append(Seen(name, type(part).__name__, tensor, self.place(name)))

        handles = [part.register_forward_hook(note) for part in model.modules() if not list(part.children())]
        try:
            return self.call(model, inputs), seen
        finally:
            for handle in handles:
                handle.remove()

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer | None:
        """The user's optimiser over a copy of the model, without its history; None when none was given."""
        if self.optimizer is None:
            return None
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            return self.optimizer(model.parameters())
        named = dict(model.named_parameters())
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        groups = []
        for group in self.optimizer.param_groups:
            held = [named[names[id(parameter)]] for parameter in group["params"] if id(parameter) in names]
            if held:
                groups.append({**group, "params": held})
        return remade(type(self.optimizer), groups, self.optimizer.defaults)

    def copy(self) -> nn.Module:
        """The model once more, apart from the first, without gradients."""
        made = copy.deepcopy(self.model)
        for parameter in made.parameters():
            parameter.grad = None
        return made


def remade(
    kind: type[torch.optim.Optimizer], groups: list[dict[str, Any]], defaults: dict[str, Any]
) -> torch.optim.Optimizer | None:
    """An optimiser of the same kind and settings; None when its class takes something else than its defaults say."""
    taken = inspect.signature(kind.__init__).parameters
    known = {name: value for name, value in defaults.items() if name in taken}
    groups = [{name: value for name, value in group.items() if name not in ("initial_lr",)} for group in groups]
    try:
        return kind(groups, **known)
    except (TypeError, ValueError):
        return None


def _some(batches: Iterable[Any]) -> list[Batch]:
    """The first batches, as values of their own: what the user does to theirs later does not matter here."""
    return [
        Batch(mapped(batch.inputs, _own), mapped(batch.target, _own))
        for batch in map(batch_of, islice(batches, MOST_BATCHES))
    ]


def _own(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone()
