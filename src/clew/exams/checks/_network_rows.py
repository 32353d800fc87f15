"""Which axis of a batch counts the examples, and the same batch with other examples in the place of some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from clew.exams.batches import Batch, is_values, mapped, rows, tensors
from clew.exams.lab import Lab, Seen
from clew.exams.subject import Subject
from clew.records.place import Place


class Layout(NamedTuple):
    """`examples` of them along this axis of the inputs; `sure` when the target confirms that."""

    examples: int
    axis: int
    sure: bool


def layout(batch: Batch) -> Layout | str:
    """Where the examples lie; a sentence when that cannot be said."""
    shapes = [tensor.shape for tensor in tensors(batch.inputs) if tensor.dim()]
    if not shapes:
        return "the inputs hold no tensor with a batch axis"
    count = rows(batch)
    second = {shape[1] for shape in shapes if len(shape) > 1}
    target = next((tensor.shape for tensor in tensors(batch.target) if tensor.dim()), None)
    found: Layout | None = None
    if count == 1:
        return "the batch holds a single example"  # a target as long as the second axis goes by position then
    if target is not None and target[0] != count and second == {target[0]} and all(len(s) > 1 for s in shapes):
        found = Layout(target[0], 1, True)
    elif count:
        sure = target is not None and target[0] == count and (len(target) == 1 or target[1] not in second)
        found = Layout(count, 0, sure)
    elif len(second) == 1 and all(len(shape) > 1 for shape in shapes):
        found = Layout(second.pop(), 1, False)
    if found is None:
        return "the inputs disagree on the number of examples"
    if found.examples < 2:
        return "the batch holds a single example"
    return related(batch, found.examples) or found


def related(batch: Batch, examples: int) -> str:
    """Whether an input beside others says which examples go with which, as the edges of a graph do, in words."""
    shapes = [tuple(tensor.shape[:2]) for tensor in tensors(batch.inputs) if tensor.dim()]
    if len(shapes) > 1 and (examples, examples) in shapes:
        return f"an input of {examples} by {examples} relates the examples to each other"
    return ""


def by_row(value: torch.Tensor, held: Layout) -> torch.Tensor | None:
    """The values with the examples as first axis; None when they do not go by example."""
    axes = (0, 1) if held.axis == 0 else (1, 0)
    for axis in axes:
        if value.dim() > axis and value.shape[axis] == held.examples:
            return value.movedim(axis, 0)
    if value.dim() and value.shape[0] and value.shape[0] % held.examples == 0:
        if held.axis == 0:
            return value.reshape(held.examples, -1)
        return value.reshape(-1, held.examples, *value.shape[1:]).movedim(1, 0)
    return None


def outputs_by_row(output: Any, held: Layout) -> list[torch.Tensor]:
    """What the model says about each example, floating point only."""
    found = [by_row(value, held) for value in tensors(output) if is_values(value) and value.dim()]
    return [value for value in found if value is not None]


def picked(batch: Batch, index: torch.Tensor, held: Layout) -> Batch:
    """The examples with these numbers, along whatever axis they lie; targets flattened over positions too."""

    def pick(tensor: torch.Tensor) -> torch.Tensor:
        where = index.to(tensor.device)
        if tensor.dim() > held.axis and tensor.shape[held.axis] == held.examples:
            return tensor.index_select(held.axis, where)
        if held.axis == 0 and tensor.dim() and tensor.shape[0] and tensor.shape[0] % held.examples == 0:
            grouped = tensor.reshape(held.examples, -1, *tensor.shape[1:])
            return grouped.index_select(0, where).flatten(0, 1)
        return tensor

    def pick_target(tensor: torch.Tensor) -> torch.Tensor:
        if held.axis == 1 and tensor.dim() and tensor.shape[0] == held.examples:
            return tensor.index_select(0, index.to(tensor.device))
        return pick(tensor)

    return Batch(mapped(batch.inputs, pick), mapped(batch.target, pick_target))


def others_replaced(batch: Batch, row: int, held: Layout) -> Batch:
    """The same example at `row`, and in every other place the example that followed there. The number stays."""
    index = (torch.arange(held.examples) + 1) % held.examples
    index[row] = row
    return picked(batch, index, held)


def fewer(batch: Batch, most: int) -> Batch:
    """At most so many examples; the batch itself when the examples cannot be told apart."""
    held = layout(batch)
    if isinstance(held, str) or held.examples <= most:
        return batch
    return picked(batch, torch.arange(most), held)


def tolerance(value: torch.Tensor) -> float:
    """How far two computations of these values may lie apart by rounding."""
    if not value.numel():
        return 0.0
    size = float(value.detach().abs().max())
    return 64 * torch.finfo(value.dtype).eps * max(size, 1e-30)


def apart_by(first: torch.Tensor, second: torch.Tensor) -> float:
    """The largest difference where both are finite."""
    if first.shape != second.shape or not first.numel():
        return 0.0
    gap = (first.detach() - second.detach()).abs()
    return float(torch.nan_to_num(gap, nan=0.0, posinf=0.0, neginf=0.0).max())


def is_given(lab: Lab) -> bool:
    """Whether the subject runs the user's own code. A captured one repeats recorded operations, sizes included."""
    return type(lab.subject) is Subject


def both_ways(model: torch.nn.Module, name: str) -> Place | None:
    """A recurrent layer of this name that also reads the sequence from its end, by the names of its weights."""
    backwards = (held for held, _ in model.named_parameters() if held.endswith("_reverse"))
    found = any(held.rpartition(".")[0] == name for held in backwards)
    return Place(module=name, role="made bidirectional here") if found else None


def seeded_walk(lab: Lab, model: torch.nn.Module, batch: Batch) -> tuple[Any, list[Seen]]:
    """A walk with the lab's random numbers, for comparing two. Gradients stay on: without them some layers of torch
    take a short cut in eval mode that is not what is trained."""
    with lab.seeded():
        return lab.walk(model, batch)


def kept_by_training(lab: Lab, model: torch.nn.Module, one: Batch, other: Batch) -> str:
    """What a captured step writes into the model from its batch, by name: codes that are drawn from the first batch, a
    memory, statistics by hand. The replay repeats that in eval mode too, where the model itself would not, so that what
    passes from example to example through it is no fault. Nothing where there is no such value."""
    if is_given(lab):
        return ""
    with torch.no_grad():
        seeded_walk(lab, model, one)
        before = {name: value.clone() for name, value in _stored(model)}
        seeded_walk(lab, model, other)
        return next((name for name, value in _stored(model) if not _alike(value, before[name])), "")


def _stored(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_buffers()
    for slot, value in getattr(model, "constants", {}).items():
        yield f"a tensor of its own ({slot})", value


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)))


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Without cuDNN: its recurrent layers refuse a backward pass in eval mode."""
    backend: Any = torch.backends.cudnn
    with backend.flags(enabled=False):
        yield
