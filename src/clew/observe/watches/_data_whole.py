"""Whole sets of examples by their sums: which of them, or which together, have mean 0 and deviation 1 in every column.

Standardised columns have exactly that over the very rows that the statistics were taken of, and over no others. So the
values themselves tell which rows those were, however the statistics were computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset

from clew.observe.hooks import tensors_in
from clew.observe.watches._data_source import length

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from clew.observe.recorder import Recorder
    from clew.observe.watch import Batch, Forward
    from clew.observe.watches._data_feed import Feed
    from clew.records.place import Place

VALUES = 20_000_000
FEWEST = 16
SETS = 16
COLUMNS, SHARE = 2, 0.6
EXACT = 1e-4
APART = 10 * EXACT


class Whole(NamedTuple):
    """Sums over all rows of one set, column by column."""

    rows: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    place: Place | None

    def joined(self, other: Whole) -> Whole:
        return Whole(self.rows + other.rows, self.total + other.total, self.squares + other.squares, self.place)

    def off(self) -> NDArray[np.float64]:
        """How far each column is from mean 0 and deviation 1, NaN for one that does not vary."""
        mean = self.total / self.rows
        variance = np.maximum(self.squares / self.rows - mean**2, 0.0)
        spread = np.sqrt(variance)
        unbiased = spread * np.sqrt(self.rows / (self.rows - 1))
        off = np.maximum(np.abs(mean), np.minimum(np.abs(spread - 1), np.abs(unbiased - 1)))
        return np.where(spread > 1e-6, off, np.nan)


class Standard(NamedTuple):
    together: tuple[Whole, Whole] | None  # standard only when taken together
    apart: tuple[Whole, Whole] | None  # each of them standard by itself


class WholeSets:
    """The sets that loaders read and that models are called on."""

    def __init__(self) -> None:
        self.loaders: dict[int, Whole | None] = {}
        self.trained: dict[int, Whole | None] = {}  # by the tensor they are
        self.evaluated: dict[int, Whole | None] = {}

    def batch(self, event: Batch) -> None:
        if event.loader in self.loaders or len(self.loaders) >= SETS:
            return
        self.loaders[event.loader] = whole(_held(getattr(event.source, "_dataset", None)), event.place)

    def forward(self, event: Forward, recorder: Recorder) -> None:
        """Calls that no loader is behind: on a set as it is, or on rows that were picked from one."""
        if self.loaders:
            return
        kept = self.evaluated if event.evaluation else self.trained
        first = next((held for held in tensors_in(event.inputs, torch) if held.dim() > 1), None)
        if first is None or first.requires_grad:
            return
        source = recorder.picked.source_of(first)
        first = source if source is not None and source.dim() > 1 and len(source) > len(first) else first
        mark = first.data_ptr()
        if mark not in kept and len(kept) < SETS:
            kept[mark] = whole(first, event.place)

    def standard(self, feed: Feed) -> Standard:
        """Which sets have standard columns, and how."""
        training = [held for number, held in self.loaders.items() if held and _is(feed, number, "trained")]
        others = [held for number, held in self.loaders.items() if held and _is(feed, number, "evaluated")]
        if not self.loaders and not set(self.trained) & set(self.evaluated):
            training = [held for held in self.trained.values() if held]
            others = [held for held in self.evaluated.values() if held]
        together = apart = None
        for own in training:
            fitting = [held for held in others if len(held.total) == len(own.total) and not _same(held, own)]
            for other in fitting:
                if _standard(own) and _standard(other):
                    apart = (own, other)
                elif _only(own.joined(other), own):
                    together = (own, other)
            if len(fitting) > 1 and together is None:
                every = fitting[0]
                for held in fitting[1:]:
                    every = every.joined(held)
                together = (own, fitting[0]) if _only(own.joined(every), own) else None
        return Standard(together, apart)


def whole(tensor: Any, place: Place | None) -> Whole | None:
    if isinstance(tensor, np.ndarray) and tensor.dtype.kind == "f":
        tensor = torch.from_numpy(tensor)
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point() or tensor.dim() not in (2, 4):
        return None
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or not 0 < tensor.numel() <= VALUES:
        return None
    with torch.no_grad():
        held = tensor.detach().double()
        axes = (0,) if held.dim() == 2 else (0, 2, 3)
        rows = held.numel() // held.shape[1]
        total, squares = held.sum(axes).numpy(), held.square().sum(axes).numpy()
    return Whole(rows, total, squares, place) if rows >= FEWEST and np.isfinite(squares).all() else None


def _held(dataset: Any, depth: int = 0) -> Any:
    """The inputs that a data set keeps as one tensor or array, where it does."""
    if isinstance(dataset, Subset) and depth < 3:
        inner = _held(dataset.dataset, depth + 1)
        return inner[list(dataset.indices)] if inner is not None and len(inner) else None
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[0] if dataset.tensors else None
    count = length(dataset)
    if count is None:
        return None
    kept = getattr(dataset, "__dict__", {}).values()
    arrays = [held for held in kept if isinstance(held, torch.Tensor | np.ndarray) and held.ndim in (2, 4)]
    return next((held for held in arrays if len(held) == count), None)


def _is(feed: Feed, number: int, what: str) -> bool:
    loader = feed.loaders.get(number)
    return loader is not None and bool(getattr(loader, what))


def _same(one: Whole, other: Whole) -> bool:
    return one.rows == other.rows and bool(np.allclose(one.squares, other.squares, rtol=1e-6))


def _standard(held: Whole) -> bool:
    off = held.off()
    varied = ~np.isnan(off)
    exact = varied & (off < EXACT)
    return int(exact.sum()) >= COLUMNS and float(exact.sum()) >= SHARE * float(varied.sum())


def _only(both: Whole, own: Whole) -> bool:
    """Whether the columns are standard over both sets and not over the first alone."""
    joined, alone = both.off(), own.off()
    varied = ~np.isnan(joined)
    exact = varied & (joined < EXACT) & (np.nan_to_num(alone, nan=1.0) > APART)
    return int(exact.sum()) >= COLUMNS and float(exact.sum()) >= SHARE * float(varied.sum())
