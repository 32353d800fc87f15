"""Poison: change what must not be seen, and follow where the change turns up.

NaN goes first, since nothing hides it but a filter. It is no proof by itself: a masked position weighs zero in
attention, and zero times NaN is NaN. What NaN reached is asked again with other finite values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from clew.errors import ClewError
from clew.exams.batches import Batch, mapped, rows
from clew.exams.checks._data_tables import prediction
from clew.exams.checks._network_rows import kept_by_training
from clew.exams.lab import Lab
from clew.records.place import Place

Part = Callable[[torch.Tensor], "torch.Tensor | None"]
"""The part of a value that must not change; None when the value does not have it."""


class Crossing(NamedTuple):
    """`by`: what crossed, "nan" for a value that only NaN could carry. `stage` is where it first shows."""

    by: str
    stage: str
    kind: str
    place: Place | None
    size: float


def trace(lab: Lab, batch: Batch, poisoned: Callable[[str], Batch], part: Part) -> Crossing | None:
    """Whether the poison reaches the protected part of the prediction, and where it first shows on the way."""
    model = lab.fresh(training=False)
    clean, before = _walk(lab, model, batch)
    if not any(held is not None and held.numel() for held in map(part, clean)):
        raise ClewError("the output has no part that can be followed by example and position.")
    if part_changed(clean, _walk(lab, model, batch)[0], part) is not None:
        raise ClewError("the model gives different outputs for the same inputs, so nothing can be traced.")
    with_nan = poisoned("nan")
    reached = None
    if _holds_nan(with_nan):
        spoiled, _ = _walk(lab, model, with_nan)
        reached = part_changed(clean, spoiled, part)
        if reached is None and any(bool(torch.isnan(held).any()) for held in spoiled if held.is_floating_point()):
            return None  # NaN was not filtered, and did not get there
    other, after = _walk(lab, model, poisoned("sentinel"))
    size = part_changed(clean, other, part)
    if size is None:
        return None
    name, kind, place = "the output", "", None
    for one, two in zip(before, after, strict=False):
        if part_changed([one.value], [two.value], part) is not None:
            name, kind, place = one.name, one.kind, one.place
            break
    with _Sorts() as sorts:  # type: ignore[no-untyped-call]
        again, _ = _walk(lab, model, batch, 1)
    if sorts.found and part_changed(clean, again, part) is not None:
        raise ClewError("examples are reordered, and each draws noise by its position.")
    if kept := kept_by_training(lab, model, batch, poisoned("sentinel")):
        raise ClewError(f"the captured step writes into {kept}, which lets examples affect one another.")
    return Crossing("nan and other values" if reached is not None else "other values", name, kind, place, size)


class _Sorts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Whether anything is put in order."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.found = self.found or "sort" in func.__name__
        return func(*args, **(kwargs or {}))


def _walk(lab: Lab, model: nn.Module, batch: Batch, more: int = 0) -> tuple[list[torch.Tensor], list[Any]]:
    with torch.no_grad(), lab.seeded(more):
        output, seen = lab.walk(model, batch)
    return prediction(output, rows(batch)), seen


def _holds_nan(batch: Batch) -> bool:
    found: list[bool] = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor.is_floating_point() and bool(torch.isnan(tensor).any()))
        return tensor

    mapped(batch.inputs, look)
    return any(found)


def part_changed(before: list[torch.Tensor], after: list[torch.Tensor], part: Part) -> float | None:
    """By how much, in units of its own spread, the protected part differs; None when it does not."""
    for one, two in zip(before, after, strict=False):
        if one.shape != two.shape:
            continue
        old, new = part(one.detach()), part(two.detach())
        if old is None or new is None or not old.numel():
            continue
        if not old.is_floating_point() and not old.is_complex():
            if bool((old != new).any()):
                return float((old != new).double().mean())
            continue
        exact = torch.finfo(old.dtype).eps * 64
        scale = float(torch.nan_to_num(one.detach().abs().double()).max()) or 1.0
        off = (old.double() - new.double()).abs() if not old.is_complex() else (old - new).abs()
        same_gap = torch.isnan(old) & torch.isnan(new) | (old == new)
        off = torch.where(same_gap, torch.zeros_like(off), torch.nan_to_num(off, nan=torch.inf))
        if float(off.max()) > exact * scale:
            return float(off.max()) / scale
    return None


def other_values(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Values of the same kind and range that differ from these: the sentinel."""
    if tensor.dtype == torch.bool:
        return ~tensor
    if tensor.is_floating_point() or tensor.is_complex():
        spread = float(tensor.abs().double().mean()) or 1.0
        noise = torch.randn(tensor.shape, generator=generator).to(device=tensor.device, dtype=tensor.real.dtype)
        return tensor + 3 * spread * (noise.sign() + noise).to(tensor.dtype)
    known = torch.unique(tensor)
    known = known[known >= 0]
    if len(known) < 2:
        return torch.where(tensor > 0, tensor - 1, tensor.new_ones(()))
    step = torch.randint(1, len(known), tensor.shape, generator=generator).to(tensor.device)
    changed = known[(torch.searchsorted(known, tensor.contiguous()) + step) % len(known)]
    return torch.where(tensor < 0, tensor, changed)


def spoiled(tensor: torch.Tensor, how: str, generator: torch.Generator) -> torch.Tensor:
    """All of it poisoned. What cannot hold NaN is left as it is when NaN is asked for."""
    if how == "nan":
        return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor
    return other_values(tensor, generator)


def row(index: int, count: int) -> Part:
    """One example, in values that hold the examples first, in the second place, or folded into the first."""

    def part(value: torch.Tensor) -> torch.Tensor | None:
        if value.dim() and value.shape[0] == count:
            return value[index]
        if value.dim() > 1 and value.shape[1] == count:
            return value[:, index]
        if value.dim() and value.shape[0] and value.shape[0] % count == 0:
            each = value.shape[0] // count
            return value[index * each : (index + 1) * each]
        return None

    return part


def up_to(position: int, length: int) -> Part:
    """The positions before `position`, along the first axis after the examples that is as long as the sequence."""

    def part(value: torch.Tensor) -> torch.Tensor | None:
        axes = [axis for axis in range(1, value.dim()) if value.shape[axis] == length]
        return value.narrow(axes[0], 0, position) if axes else None

    return part
