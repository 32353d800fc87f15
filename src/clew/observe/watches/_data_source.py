"""Facts about a DataLoader that its batches do not show: how large its data set is, in which order it is read, by whom.

Only attributes are read; nothing of the data set is called but its length, which the loader itself asks for as well.
"""

from __future__ import annotations

import linecache
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler, Subset, TensorDataset

from clew.observe.places import shown, users_code
from clew.observe.rows import array_of
from clew.records.place import Place

if TYPE_CHECKING:
    import re

_LABELS = ("targets", "labels", "y")
_MOST = 50_000
_VALUES = 8_000_000
_LOOKED_UP = 4


class Source(NamedTuple):
    dataset: weakref.ref[Any] | None
    size: int | None  # examples in the data set
    batches: int | None  # batches per epoch
    workers: int
    in_order: bool  # read from the first example to the last
    setup: Any  # the function given as worker_init_fn


def source_of(iterator: Any) -> Source:
    dataset = getattr(iterator, "_dataset", None)
    sampler = getattr(iterator, "_index_sampler", None)
    inner = sampler.sampler if isinstance(sampler, BatchSampler) else sampler
    workers = getattr(iterator, "_num_workers", 0)
    mapped = hasattr(dataset, "__getitem__") and not hasattr(dataset, "__iter__")
    return Source(
        _weakly(dataset),
        length(dataset) if mapped or isinstance(dataset, TensorDataset | Subset) else None,
        length(sampler) if isinstance(sampler, BatchSampler) else None,
        workers if isinstance(workers, int) else 0,
        type(inner) is SequentialSampler,
        getattr(iterator, "_worker_init_fn", None),
    )


def put_together(iterator: Any, named: re.Pattern[str] | None = None) -> Place | None:
    """Where the user's own function puts a batch together: the first line that speaks of what is asked for, else where
    it gives back what it made of the examples."""
    code = users_code(getattr(iterator, "_collate_fn", None))
    if code is None:
        return None
    lines = sorted({line for _, _, line in code.co_lines() if line})
    found = (line for line in lines if named is not None and named.search(linecache.getline(code.co_filename, line)))
    line = next(found, lines[-1])
    return Place(shown(code.co_filename), line, symbol=code.co_qualname, role="batches are assembled here")


def _weakly(value: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(value)
    except TypeError:
        return None


def length(value: Any) -> int | None:
    try:
        return len(value)
    except (TypeError, NotImplementedError, AttributeError):
        return None


def stored_labels(dataset: Any, depth: int = 0) -> list[int] | None:
    """Class numbers in stored order, where the data set keeps them as a plain attribute."""
    if dataset is None or depth > 3:
        return None
    if isinstance(dataset, Subset):
        inner = stored_labels(dataset.dataset, depth + 1)
        indices = list(dataset.indices)[:_MOST]
        return [inner[i] for i in indices] if inner and indices and max(indices) < len(inner) else None
    held: Any = None
    if isinstance(dataset, TensorDataset):
        held = dataset.tensors[-1] if len(dataset.tensors) > 1 else None
    else:
        kept = getattr(dataset, "__dict__", {})
        held = next((kept[name] for name in _LABELS if name in kept), None)
    return _class_numbers(held)


def stored_pair(dataset: Any, inputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor] | None:
    """All inputs and targets in the order in which a data set keeps them, where rows of a batch are found there as they
    were given, each beside its target."""
    depth = 0
    while isinstance(dataset, Subset) and depth < 3:
        dataset, depth = dataset.dataset, depth + 1
    held = _tables(dataset)
    for x in held:
        if x.shape[1:] == inputs.shape[1:]:
            for y in held:
                same = len(y) == len(x) and y is not x and y[0].numel() == target[0].numel()
                if same and _beside(x, y, inputs, target):
                    return x, y
    return None


def _tables(dataset: Any) -> list[Tensor]:
    kept = dataset.tensors if isinstance(dataset, TensorDataset) else getattr(dataset, "__dict__", {}).values()
    found = []
    for item in kept:
        table = torch.from_numpy(item) if isinstance(item, np.ndarray) and _shareable(item) else item
        if not isinstance(table, Tensor) or table.device.type != "cpu" or table.layout is not torch.strided:
            continue
        if table.is_floating_point() and table.dim() and 0 < table.numel() <= _VALUES:
            found.append(table.detach())
    return found


def _shareable(array: Any) -> bool:
    """Others would be copied or warned about."""
    return array.dtype in (np.float32, np.float64) and array.flags.writeable and min(array.strides, default=1) > 0


def _beside(x: Tensor, y: Tensor, inputs: Tensor, target: Tensor) -> bool:
    for row, value in zip(inputs[:_LOOKED_UP].detach(), target[:_LOOKED_UP].detach(), strict=True):
        near = (x.flatten(1)[:, 0].to(row.dtype) == row.flatten()[0]).nonzero().flatten()
        equal = (x[near].to(row.dtype) == row).flatten(1).all(1)
        told = (y[near].reshape(len(near), -1).to(value.dtype) == value.flatten()).all(1)
        if not bool((equal & told).any()):
            return False
    return True


def _class_numbers(held: Any) -> list[int] | None:
    if isinstance(held, Tensor):
        array = array_of(held, _MOST) if held.device.type == "cpu" and held.dim() == 1 else None
        held = None if array is None else array[:, 0]
    if isinstance(held, list | tuple) and held and all(type(item) is int for item in held[:_MOST]):
        held = np.asarray(held[:_MOST])
    if not isinstance(held, np.ndarray) or held.ndim != 1 or held.dtype.kind not in "biu":
        return None
    return [int(item) for item in held[:_MOST].tolist()]
