"""Which softmax values a loss chooses with its labels, where these have more than two axes.

A gather takes one value along an axis for each position. Its index is brought back to the layout of the softmax below,
past what only moves axes, so that both can be compared axis by axis.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from clew.observe.watches._loss_graph import bare, inputs, saved, shape

SOFTMAXES = ("Softmax", "LogSoftmax")
KEEPS = frozenset("Log Clamp ClampMin ClampMax Add Clone ToCopy Alias Contiguous".split())
"""What leaves every axis where it is."""
VIEWS = frozenset("View UnsafeView ReshapeAlias Reshape".split())
FAR = 12


class Chosen(NamedTuple):
    node: Any
    over: int  # the axis the softmax ran over
    along: int  # the axis along which one value is taken
    sizes: tuple[int, ...]
    labels: torch.Tensor

    def apart(self) -> bool:
        """Whether the values that are chosen between were not normalised together. Where the choice is the same all
        along the softmax, whole distributions are taken: those of the last step, for one."""
        if self.over == self.along or self.sizes[self.over] < 2 or self.sizes[self.along] < 2:
            return False
        with torch.no_grad():
            return bool((self.labels != self.labels.narrow(self.over, 0, 1)).any())


def chosen(gather: Any) -> Chosen | None:
    """What a gather takes of a softmax, one value for each position; None where the way there is not clear."""
    index = saved(gather, "index")
    if index is None or index.dim() < 3 or not inputs(gather):
        return None
    along = axis_of(getattr(gather, "_saved_dim", None), index.dim())
    node = inputs(gather)[0]
    for _ in range(FAR):
        if along is None or index.shape[along] != 1:
            return None
        name = bare(node)
        if name in SOFTMAXES:
            return _at(node, along, index)
        if len(inputs(node)) != 1:
            return None
        moved = (along, index) if name in KEEPS else _undone(name, node, along, index)
        if moved is None:
            return None
        along, index = moved
        node = inputs(node)[0]
    return None


def _at(node: Any, along: int, index: torch.Tensor) -> Chosen | None:
    sizes = shape(node) or ()
    over = axis_of(getattr(node, "_saved_dim", None), len(sizes))
    rest = tuple(1 if axis == along else size for axis, size in enumerate(sizes))
    return Chosen(node, over, along, sizes, index) if over is not None and tuple(index.shape) == rest else None


def _undone(name: str, node: Any, along: int, index: torch.Tensor) -> tuple[int, torch.Tensor] | None:
    """The axis and the index as they are before a node that moves axes."""
    dims = index.dim()
    if name == "Permute":
        order = [axis_of(axis, dims) for axis in getattr(node, "_saved_dims", ())]
        if sorted(axis for axis in order if axis is not None) != list(range(dims)):
            return None
        back = [order.index(axis) for axis in range(dims)]
        return back.index(along), index.permute(back)
    if name == "Transpose":
        one, other = (axis_of(getattr(node, f"_saved_dim{which}", None), dims) for which in (0, 1))
        if one is None or other is None:
            return None
        return {one: other, other: one}.get(along, along), index.transpose(one, other)
    if name in VIEWS:
        after, before = shape(node), shape(inputs(node)[0])
        if not after or not before or along != dims - 1 or after[-1] != before[-1]:
            return None
        whole = tuple(index.shape[:-1]) == after[:-1]
        return (len(before) - 1, index.reshape(*before[:-1], 1)) if whole else None
    return None


def axis_of(axis: Any, dims: int) -> int | None:
    """An axis from 0; nodes keep negative ones as unsigned numbers."""
    if not isinstance(axis, int):
        return None
    signed = axis - 2**64 if axis >= 2**63 else axis
    return signed + dims if signed < 0 else signed
