"""Digests of examples: equal rows get equal numbers, in a table, an array, a sparse matrix or a tensor.

A row's digest is the sum, modulo 2**64, of a number made from each value times an odd weight of its column. Values are
rounded to 32-bit floats first, so that a float64 table and the float32 tensor made from it agree. Zeros add nothing, so
a sparse row and the same row written out agree too. No random numbers, nothing that differs by process.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    Digests = NDArray[np.int64]

ROWS = 4096
COLUMNS = 16384
CHUNK = 32768
EXACT = 2**24  # integers up to here survive the rounding to float32
_weights: dict[int, Digests] = {}


class Sampled(NamedTuple):
    """Digests of every `stride`-th row of a table of `total` rows."""

    digests: Digests
    stride: int
    total: int

    def share_of(self, wanted: Digests) -> float:
        """Which share of the wanted rows this table holds, allowing for the rows that were not looked at."""
        if not len(wanted):
            return 0.0
        return min(1.0, float(np.isin(wanted, self.digests).mean()) * self.stride)


def weights(count: int) -> Digests:
    """One fixed odd weight per column."""
    held = _weights.get(count)
    if held is None:
        number = np.arange(1, count + 1, dtype=np.uint64)
        with np.errstate(over="ignore"):
            number = number * np.uint64(0x9E3779B97F4A7C15)
            number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        if len(_weights) > 64:
            _weights.clear()
        held = _weights[count] = (number | np.uint64(1)).view(np.int64)
    return held


def _mixed(bits: NDArray[Any]) -> Digests:
    """Floats of small integers differ only in their upper bits: bring those down, or products would collide."""
    wide = bits.astype(np.int64)
    wide ^= wide >> np.int64(15)
    return wide


def _of_text(cell: Any) -> int:
    if isinstance(cell, int | float | np.number | np.bool_):
        return int(np.float32(cell).view(np.int32))
    return zlib.crc32(str(cell).encode("utf-8", "replace")) | 1 << 40


def codes(values: NDArray[Any]) -> Digests:
    """One integer per value, zero for zero."""
    kind = values.dtype.kind
    with np.errstate(all="ignore"):
        if kind == "f":
            return _mixed((values.astype(np.float32) + np.float32(0)).view(np.int32))
        if kind in "biu":
            found = _mixed(values.astype(np.float32).view(np.int32))
            if kind != "b" and values.dtype.itemsize > 2:
                whole = values.astype(np.int64)
                large = (whole >= EXACT) | (whole <= -EXACT)
                if large.any():
                    found[large] = whole[large]
            return found
        if kind == "c":
            return codes(values.real) + np.int64(3) * codes(values.imag)
        if kind in "mM":
            return _mixed(values.view(np.int64))
    flat = [_of_text(cell) for cell in values.ravel()]
    return _mixed(np.array(flat, dtype=np.int64).reshape(values.shape))


def of_array(values: NDArray[Any]) -> Digests:
    """Digests of the rows of an array; the first axis counts the rows. Very wide rows are thinned out."""
    table = values.reshape(values.shape[0], -1)
    thin = -(-table.shape[1] // COLUMNS)
    if thin > 1:
        table = table[:, ::thin]
    found = np.zeros(len(table), np.int64)
    if table.shape[1]:
        weight = weights(table.shape[1])
        step = max(1, CHUNK // table.shape[1])  # small pieces stay in the processor's cache: several times faster
        for start in range(0, len(table), step):
            found[start : start + step] = codes(table[start : start + step]) @ weight
    return found


def _of_sparse(matrix: Any) -> Digests:
    thin = -(-matrix.shape[1] // COLUMNS)
    column = matrix.indices
    products = codes(matrix.data) * weights(-(-matrix.shape[1] // thin))[column // thin]
    if thin > 1:
        products = products * (column % thin == 0)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(products, dtype=np.int64)])
    return np.asarray(sums[matrix.indptr[1:]] - sums[matrix.indptr[:-1]], np.int64)


def _of_frame(frame: Any) -> Digests:
    count = min(frame.shape[1], COLUMNS)
    weight = weights(count)
    total = np.zeros(frame.shape[0], np.int64)
    for number in range(count):
        total += codes(np.asarray(frame.iloc[:, number].to_numpy())) * weight[number]
    return total


def rows_in(table: Any) -> int:
    """How many rows a table has, 0 for what is no table."""
    shape = getattr(table, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return len(table) if isinstance(table, list | tuple) else 0


def sampled(table: Any, stride: int | None = None) -> Sampled | None:
    """Digests of some rows of whatever scikit-learn takes for a table; None for what has no rows."""
    total = rows_in(table)
    if total == 0:
        return None
    stride = stride or -(-total // ROWS)
    if hasattr(table, "iloc"):
        part = table.iloc[::stride]
        found = _of_frame(part if part.ndim == 2 else part.to_frame())
    elif hasattr(table, "indptr") and hasattr(table, "tocsr"):
        found = _of_sparse(table.tocsr()[::stride])
    elif hasattr(table, "layout") and hasattr(table, "detach"):
        array = array_of(table[::stride])
        if array is None:
            return None
        found = of_array(array)
    else:
        part = table[::stride]
        values = part if isinstance(part, np.ndarray) else np.asarray(part, _element(part))
        found = of_array(values)
    return Sampled(found, stride, total)


def _element(part: Any) -> Any:
    return object if part and isinstance(part[0], str) else None


def array_of(tensor: torch.Tensor, rows: int = ROWS) -> NDArray[Any] | None:
    """The first rows of a tensor as an array of two axes; None for what cannot be read (sparse, meta, inside vmap)."""
    import torch

    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.dim() == 0:
        return None
    if tensor.is_quantized or tensor.is_nested or tensor.numel() == 0:
        return None
    with torch.no_grad():
        try:
            held = tensor.detach()[:rows]
            held = held.reshape(held.shape[0], -1)
            thin = -(-held.shape[1] // COLUMNS)
            if thin > 1:
                held = held[:, ::thin]
            if held.is_floating_point() and held.dtype not in (torch.float16, torch.float32, torch.float64):
                held = held.float()
            array: NDArray[Any] = held.cpu().resolve_conj().resolve_neg().numpy()
        except (RuntimeError, TypeError, NotImplementedError):  # tensors inside vmap and the like hold no values
            return None
    return array
