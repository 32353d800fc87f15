"""Finding NaN and infinite values in a tensor, and saying where they stand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.rows import array_of

if TYPE_CHECKING:
    from clew.records.place import Place

SHOWN = 8
LARGE = 20_000_000


class Hit(NamedTuple):
    """Bad values in one tensor."""

    part: str
    bad: int
    kind: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    epoch: int | None = None
    position: int | None = None
    loader: int | None = None
    place: Place | None = None


def look(tensor: torch.Tensor, part: str) -> Hit | None:
    """What is bad in a tensor; None when nothing is, or when it is a mask of minus infinity."""
    if finite(tensor):
        return None
    found = array_of(tensor)
    if found is None:
        return None
    bad = ~np.isfinite(found)
    if not bad.any() or _is_mask(found, bad):
        return None
    kind = "NaN" if np.isnan(found).any() else "infinite"
    columns = np.unique(np.nonzero(bad)[1]) if tensor.dim() == 2 else np.zeros(0, int)
    rows = np.unique(np.nonzero(bad)[0])
    return Hit(part, int(bad.sum()), kind, tuple(rows[:SHOWN].tolist()), tuple(columns[:SHOWN].tolist()))


def finite(tensor: torch.Tensor) -> bool:
    """A sum is one pass and finite unless a value is bad or the sum overflows; only then is each value looked at."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided:
        return True
    if tensor.device.type == "meta" or not tensor.numel():
        return True
    try:
        with torch.no_grad():
            held = tensor.detach()
            return math.isfinite(abs(held.sum().item())) or bool(torch.isfinite(held).all())
    except RuntimeError:  # tensors inside vmap and the like hold no values
        return True


def bad_rows(tensor: torch.Tensor) -> list[int]:
    if not tensor.is_floating_point() or tensor.device.type != "cpu" or tensor.numel() > LARGE:
        return []
    bad = torch.nonzero(~torch.isfinite(tensor.detach()))[:, 0].tolist()
    return [int(row) for row in bad]


def _is_mask(values: Any, bad: Any) -> bool:
    """Minus infinity beside nothing but 0 or 1 blocks attention."""
    if values.dtype.kind != "f" or not np.all(values[bad] == -np.inf):
        return False
    return bool(np.isin(values[~bad], (0.0, 1.0)).all())
