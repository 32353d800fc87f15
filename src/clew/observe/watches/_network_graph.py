"""What the watches of the network share: layers by kind, who made a tensor, norms in one go.

Nodes of the graph are remembered by their number in the order of execution and never by reference.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from clew.observe.watches._loss_graph import MOVES, bare, inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from clew.observe.recorder import Recorder
    from clew.observe.watch import ModuleCall

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
AFFINE = (nn.Linear, *CONVOLUTIONS)
LAYERS = (*AFFINE, nn.Bilinear, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
TABLES = (nn.Embedding, nn.EmbeddingBag)
WALKED = 50_000


def number(value: Any) -> int:
    """When the operation that made this tensor was executed, -1 for what no recorded operation made."""
    node = value.grad_fn if isinstance(value, torch.Tensor) else None
    return int(node._sequence_nr()) if node is not None else -1


def first_tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, list | tuple):
        return next((item for item in value if isinstance(item, torch.Tensor)), None)
    return None


def readable(tensor: torch.Tensor | None) -> bool:
    """Whether this holds real numbers that can be looked at."""
    return (
        tensor is not None
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and tensor.is_floating_point()
        and tensor.numel() > 0
    )


class Calls:
    """Which module made a tensor, within one step."""

    def __init__(self) -> None:
        self.step = -1
        self._held: dict[int, Any] = {}

    def note(self, event: ModuleCall, value: Any) -> None:
        """A container's output is that of its last part: the part, which returns first, keeps it."""
        if event.step != self.step or len(self._held) > WALKED:
            self.step = event.step
            self._held.clear()
        made = number(first_tensor(event.output))
        if made >= 0:
            self._held.setdefault(made, value)

    def get(self, node: Any) -> Any:
        return self._held.get(int(node._sequence_nr()))

    def has(self, node: Any) -> bool:
        return int(node._sequence_nr()) in self._held


def way(node: Any, through: Callable[[Any], bool]) -> Iterator[Any]:
    """The nodes from this one down, on along those that `through` lets pass, up to and with the first it does not."""
    for _ in range(64):
        if node is None:
            return
        yield node
        fed = inputs(node)
        if not fed or not through(node):
            return
        node = fed[0]


def layer_name(recorder: Recorder, layer: tuple[int, str]) -> str:
    """The path of a layer, with its model where there are several."""
    model, name = layer
    return f"model{model}.{name}".rstrip(".") if len(recorder.models) > 1 else name


def moves(node: Any) -> bool:
    return bare(node) in MOVES and len(inputs(node)) == 1


def whole_graph(root: Any, most: int = WALKED) -> list[Any] | None:
    """Every node under this one; None when there are too many to look at."""
    waiting = [root]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) > most:
            return None
        waiting += inputs(node)
    return list(seen)


def norms(tensors: Sequence[torch.Tensor]) -> list[float]:
    """The norm of each tensor, with one wait per device. What cannot be read counts as 0."""
    found = [0.0] * len(tensors)
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for at, tensor in enumerate(tensors):
        if readable(tensor):
            groups.setdefault((tensor.device, tensor.dtype), []).append(at)
    with torch.no_grad():
        for (_, kind), places in groups.items():
            held = [tensors[at].detach() for at in places]
            narrow = kind in (torch.float16, torch.bfloat16)
            each = torch._foreach_norm(held, 2, torch.float32) if narrow else torch._foreach_norm(held, 2)
            for at, value in zip(places, torch.stack(list(each)).double().tolist(), strict=True):
                found[at] = value
    return found


def median(values: Sequence[float]) -> float:
    """The middle one, the lower of two; infinities are values too."""
    ranked = sorted(values)
    return ranked[(len(ranked) - 1) // 2] if ranked else math.nan
