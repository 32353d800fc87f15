"""Reading values at a loss: few of them, as floats, without touching the originals."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clew.observe.watch import LossCall

READ = 100_000
CLASSES = ("cross_entropy", "nll_loss")

ENDS, LEFT = 5, 0.25


def all_fell(looks: Sequence[Sequence[float]]) -> bool:
    """Whether the terms of a loss all end below a quarter of where they began: then none outweighs another."""
    alike = [look for look in looks if len(look) == len(looks[-1])]
    if len(alike) < 2 * ENDS:
        return False
    first, last = ([*map(statistics.median, zip(*ends, strict=True))] for ends in (alike[:ENDS], alike[-ENDS:]))
    return all(end <= LEFT * start for start, end in zip(first, last, strict=True))


def plain(value: Any) -> bool:
    """Whether the values of this can be read at all."""
    return (
        isinstance(value, torch.Tensor)
        and not value.is_meta
        and not value.is_complex()
        and value.layout == torch.strided
        and value.numel() > 0
    )


def some(tensor: torch.Tensor) -> torch.Tensor:
    """At most about a hundred thousand values, evenly spread, in one row."""
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        return flat[:: -(-flat.numel() // READ)]


def by_class(tensor: torch.Tensor) -> torch.Tensor:
    """What enters a classification loss as (positions, classes), as floats, at most about a hundred thousand."""
    with torch.no_grad():
        last = tensor.detach().movedim(1, -1) if tensor.dim() > 1 else tensor.detach()[None]
        rows = last.reshape(-1, last.shape[-1])
        return rows[:: max(1, -(-rows.numel() // READ))].float()


def integers(target: Any) -> bool:
    return plain(target) and not target.is_floating_point() and target.dtype != torch.bool and not target.requires_grad


def ignored(event: LossCall) -> int:
    """The label that this call leaves out."""
    value = event.options.get("ignore_index", -100)
    return int(value) if value is not None else -100


def reduction(event: LossCall) -> str:
    """ "mean", "sum", "none" or "batchmean", old spellings included."""
    if event.options.get("reduce") is False:
        return "none"
    if event.options.get("size_average") is False:
        return "sum"
    return str(event.options.get("reduction", "mean"))


def total(result: torch.Tensor) -> float:
    with torch.no_grad():
        return float(result.detach().float().sum())
