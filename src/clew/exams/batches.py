"""Batches as exams see them: inputs and a target, each a tensor or anything that holds tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch


class Batch(NamedTuple):
    """`inputs` is what the model is called with: a tensor, a tuple of arguments, or a dict of named ones.
    `target` is what the loss compares with, None when it needs nothing."""

    inputs: Any
    target: Any = None


def batch_of(value: Any) -> Batch:
    """A batch as people give it: `(inputs, target)`, a Batch, a dict (all of it input), or inputs alone."""
    if isinstance(value, Batch):
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        return Batch(value[0], value[1])
    if isinstance(value, list | tuple) and len(value) > 2:
        return Batch(tuple(value[:-1]), value[-1])
    if isinstance(value, list | tuple) and len(value) == 1:
        return Batch(value[0])
    return Batch(value)


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    """All tensors in it, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict) or hasattr(tree, "items"):
        for value in tree.values():
            yield from tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from tensors(value)


def mapped(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same shape of nesting with every tensor changed. Other mappings (a tokenizer's output) become dicts."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, dict) or hasattr(tree, "items"):
        return {name: mapped(value, change) for name, value in tree.items()}
    if isinstance(tree, list):
        return [mapped(value, change) for value in tree]
    if isinstance(tree, tuple):
        held = [mapped(value, change) for value in tree]
        return type(tree)(*held) if hasattr(tree, "_fields") else tuple(held)
    return tree


def change_inputs(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    return Batch(mapped(batch.inputs, change), batch.target)


def change_target(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    return Batch(batch.inputs, mapped(batch.target, change))


def rows(batch: Batch) -> int:
    """The number of examples: the first dimension that the inputs agree on, 0 when they do not agree."""
    sizes = {tensor.shape[0] for tensor in tensors(batch.inputs) if tensor.dim()}
    return sizes.pop() if len(sizes) == 1 else 0


def take(batch: Batch, index: torch.Tensor) -> Batch:
    """The examples with these numbers. Tensors that do not go by example stay as they are."""
    count = rows(batch)

    def picked(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[index.to(tensor.device)] if tensor.dim() and tensor.shape[0] == count else tensor

    return Batch(mapped(batch.inputs, picked), mapped(batch.target, picked))


def to_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(
        mapped(batch.inputs, lambda tensor: tensor.to(device)), mapped(batch.target, lambda tensor: tensor.to(device))
    )


def is_values(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds measured values: not tokens, indices or masks."""
    return tensor.is_floating_point() or tensor.is_complex()


def distinct(batches: Sequence[Batch]) -> list[Batch]:
    """Training on the whole set shows the same batch again and again: that is one batch, not many examples."""
    found: list[Batch] = []
    for batch in batches:
        if not any(_equal(batch, other) for other in found):
            found.append(batch)
    return found


def _equal(one: Batch, other: Batch) -> bool:
    pairs = [(list(tensors(a)), list(tensors(b))) for a, b in ((one.inputs, other.inputs), (one.target, other.target))]
    return all(
        len(left) == len(right)
        and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(left, right, strict=True))
        for left, right in pairs
    )
