"""Facts about a DataLoader that its batches do not show: how large its data set is, in which order it is read, by whom.

Only attributes are read; nothing of the data set is called but its length, which the loader itself asks for as well.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor
from torch.utils.data import BatchSampler, SequentialSampler, Subset, TensorDataset

from clew.observe.rows import array_of

_LABELS = ("targets", "labels", "y")
_MOST = 50_000


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


def _class_numbers(held: Any) -> list[int] | None:
    if isinstance(held, Tensor):
        array = array_of(held, _MOST) if held.device.type == "cpu" and held.dim() == 1 else None
        held = None if array is None else array[:, 0]
    if isinstance(held, list | tuple) and held and all(type(item) is int for item in held[:_MOST]):
        held = np.asarray(held[:_MOST])
    if not isinstance(held, np.ndarray) or held.ndim != 1 or held.dtype.kind not in "biu":
        return None
    return [int(item) for item in held[:_MOST].tolist()]
