"""Does the analytic gradient agree with centred differences of the loss?

In float64, in eval mode and on a few examples, shifts some entries of every parameter both ways and compares the change
of the loss with the gradient. An entry counts only when two step sizes give the same difference, which leaves out kinks
and rounding.

Why it matters: a wrong backward pass of a custom function, or a value overwritten after use, trains on nonsense.
Cannot tell: whether the function is the right one; a gradient that is reversed on purpose. A captured step that
goes through an autograd function of the script cannot be replayed: such functions are checked in the run itself
(`custom_backward`).
Silent when: the loss is flat and the gradient is not, as with straight-through estimators, or values are detached on
purpose: both are unclear. Parameters without a gradient count only where the optimiser holds them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from clew.exams.batches import Batch, mapped
from clew.exams.checks._network_graph import graph
from clew.exams.checks._network_rows import fewer, plain_kernels
from clew.exams.exam import exam
from clew.exams.lab import Lab
from clew.records.clue import Answer, Reading, Unclear
from clew.records.place import Place
from clew.tape.slopes import relative_error, slope

ROWS = 4
PARAMETERS = 16


class Entry(NamedTuple):
    name: str
    gradient: float
    difference: float

    @property
    def error(self) -> float:
        return relative_error(self.gradient, self.difference)


@exam("gradient_check", needs=("loss",), seconds=2.0)
def examine(lab: Lab) -> Answer:
    batch = fewer(lab.batch, ROWS)
    model = lab.fresh(training=False)
    stops = Stops()
    with plain_kernels():
        try:
            plain = _loss(lab, model, batch, stops)
        except RuntimeError:
            batch = lab.batch  # a captured step may know one size only
            plain = _loss(lab, model, batch, stops)
        with lab.seeded(), torch.no_grad():
            batch_of_all = float(lab.loss(model, lab.batch)) if not bool(torch.isfinite(plain)) else None
        with lab.seeded(1):
            draws = float(lab.loss(model, batch).detach()) != float(plain.detach())
    with plain_kernels(), in_float64():
        model, batch = model.double(), _doubled(batch)
        fine = Stops()
        try:
            loss = _loss(lab, model, batch, fine)
        except RuntimeError as error:
            return Unclear(f"model or loss cannot be computed in float64: {str(error).splitlines()[0][:160]}")
        coarse = math.sqrt(torch.finfo(plain.dtype).eps) * max(abs(float(plain.detach())), 1e-3)
        # Random numbers are other ones in float64: then the two losses cannot be compared.
        if not draws and abs(float(plain.detach()) - float(loss.detach())) > coarse:
            return Unclear("the loss differs in float64, so part of it is not computed there")
        if loss.dtype is not torch.float64:
            return Unclear(f"the loss is computed in {loss.dtype}, too coarse for finite differences")
        value = float(loss.detach())
        if not math.isfinite(value) and batch_of_all is not None and math.isfinite(batch_of_all):
            return Unclear("so few examples have no loss, as in pair or triplet mining")
        if not math.isfinite(value):
            return Reading(largest_relative_error=math.nan, entries=0)
        if not loss.requires_grad:
            return Unclear("the loss has no graph, so there is no gradient to compare")
        custom = _custom(loss)
        loss.backward()  # type: ignore[no-untyped-call]
        entries = list(_entries(lab, model, batch, value))
    if not entries:
        return Unclear("no entry had a difference that two step sizes agree on")
    flat = [entry for entry in entries if entry.difference == 0 and entry.gradient != 0]
    counted = [entry for entry in entries if entry not in flat] if flat else entries
    if not counted or (flat and max(entry.error for entry in counted) < 1e-4):
        return Unclear(
            f"the loss is flat in {flat[0].name} and its gradient is {flat[0].gradient:.2g}: a "
            "straight-through estimator does this on purpose"
        )
    worst = max(counted, key=lambda entry: entry.error)
    if worst.error > 1e-4 and stops.seen and worst.gradient != 0:
        return Unclear(
            f"the gradient is detached on the way ({stops.seen[0]}), so gradient and difference need not agree; they "
            f"are {worst.error:.2g} apart in {worst.name}"
        )
    if worst.error > 1e-4 and fine.coarse:
        return Unclear(
            f"a part of the model computes in {fine.coarse[0]} whatever its input, too coarse for finite differences"
        )
    reading = Reading(
        largest_relative_error=worst.error,
        parameter=worst.name,
        gradient=worst.gradient,
        difference=worst.difference,
        entries=len(counted),
        custom_functions=", ".join(custom) or None,
    )
    return reading.at(Place(parameter=worst.name)) if worst.error > 1e-4 else reading


@contextmanager
def in_float64() -> Iterator[None]:
    """What the model makes on its way, masks for instance, is float64 too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.set_default_dtype(before)


def _doubled(batch: Batch) -> Batch:
    def double(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    return Batch(mapped(batch.inputs, double), mapped(batch.target, double))


def _loss(lab: Lab, model: nn.Module, batch: Batch, stops: Stops) -> torch.Tensor:
    with lab.seeded(), stops:
        return lab.loss(model, batch)


def _custom(loss: torch.Tensor) -> list[str]:
    kind = torch.autograd.function.BackwardCFunction
    found = [type(node).__name__.removesuffix("Backward") for node in graph([loss.grad_fn]) if isinstance(node, kind)]
    return list(dict.fromkeys(found))


def _entries(lab: Lab, model: nn.Module, batch: Batch, scale: float) -> Any:
    held = _held_by_optimizer(lab, model)
    named = [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.numel() and (parameter.grad is not None or name in held)
    ]
    step = max(1, -(-len(named) // PARAMETERS))
    for number, (name, parameter) in enumerate(named[::step]):
        lab.check(number / PARAMETERS)
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        chance = int(torch.randint(parameter.numel(), (1,), generator=lab.generator(number)))
        for at in {int(gradient.abs().argmax()), chance}:
            given = float(gradient.reshape(-1)[at])
            found = difference(lab, model, batch, parameter, at, max(abs(scale), 1e-3))
            if found is not None and max(abs(given), abs(found)) > 1e-7 * max(abs(scale), 1e-3):
                yield Entry(name, given, found)


def difference(lab: Lab, model: nn.Module, batch: Batch, parameter: Any, at: int, scale: float) -> float | None:
    """The centred difference of the loss in one entry; None when two step sizes do not agree on it."""
    flat = parameter.data.reshape(-1) if parameter.is_contiguous() else parameter.data.view(-1)
    before = float(flat[at])

    def loss(by: float) -> float:
        flat[at] = before + by
        # With gradients on, as some layers of torch take a short cut without them.
        with lab.seeded():
            return float(lab.loss(model, batch).detach())

    try:
        return slope(loss, before, scale)
    finally:
        flat[at] = before


def _held_by_optimizer(lab: Lab, model: nn.Module) -> set[str]:
    made = lab.subject.make_optimizer(model)
    held = (
        {id(parameter) for group in made.param_groups for parameter in group["params"]} if made is not None else set()
    )
    return {name for name, parameter in model.named_parameters() if id(parameter) in held}


def in_custom_function() -> bool:
    """Whether the forward of an autograd function is being executed, where gradients are always off."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        if names and isinstance(frame.f_locals.get(names[0]), torch._C._FunctionBase):
            return True
        frame = frame.f_back
    return False


class Stops(TorchFunctionMode):
    """Notes where the forward pass takes values out of the graph, and what it computes in less than float64."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.coarse: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        taken = [value for value in args if isinstance(value, torch.Tensor)]
        if any(value.requires_grad for value in taken):
            if name in ("detach", "detach_", "item", "numpy", "tolist"):
                self.seen.append(name)
            elif func is torch.Tensor.data.__get__:  # type: ignore[attr-defined]
                self.seen.append("data")
            elif not torch.is_grad_enabled() and any(value.grad_fn for value in taken) and not in_custom_function():
                self.seen.append("no_grad")
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.requires_grad and result.dtype is not torch.float64:
            self.coarse.append(str(result.dtype).removeprefix("torch."))
        return result
