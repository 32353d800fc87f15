"""A penalty on the weights that is written into the loss: how much of each gradient is its doing.

A square, an absolute value or a norm that is taken of a parameter itself, and enters the loss by sums and factors only,
is such a penalty. What the backward hands to that node is the penalty's weight, and with the parameter it makes the
penalty's part of the gradient. The node is listened to for one backward; nothing of the graph is kept.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from clew.observe.watches._loss_graph import LINEAR, bare, inputs

MOST = 512
ACCUMULATOR = "torch::autograd::AccumulateGrad"
NORMS = frozenset(("LinalgVectorNorm", "Norm"))


class Penalties:
    """The parts that penalties had in the gradients of the last backward, by parameter."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._handles: list[Any] = []

    def listen(self, loss: torch.Tensor) -> None:
        self.done()
        self.parts.clear()
        for node, kind, parameter in _found(loss):
            self._handles.append(node.register_prehook(_hook(self.parts, kind, parameter)))

    def done(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _found(loss: torch.Tensor) -> list[tuple[Any, str, torch.Tensor]]:
    node = loss.grad_fn
    found: list[tuple[Any, str, torch.Tensor]] = []
    waiting, met = deque([node] if node is not None else []), {node}
    while waiting and len(met) < MOST:
        node = waiting.popleft()
        kind, fed = bare(node), inputs(node)
        leaves = [held for held in fed if held.name() == ACCUMULATOR]
        if leaves and len(leaves) == len(fed) and all(held is leaves[0] for held in leaves):
            if _squares(node, kind, len(fed)) or kind in NORMS or kind == "Abs":
                parameter = leaves[0].variable
                if parameter.dim() > 1:
                    found.append((node, kind, parameter))
        elif kind in LINEAR:
            waiting.extend(held for held in fed if held not in met)
            met.update(fed)
    return found


def _squares(node: Any, kind: str, operands: int) -> bool:
    return (kind == "Pow" and getattr(node, "_saved_exponent", 0) == 2) or (kind == "Mul" and operands == 2)


def _hook(parts: dict[int, tuple[torch.Tensor, torch.Tensor]], kind: str, parameter: torch.Tensor) -> Any:
    def hook(handed: tuple[torch.Tensor | None, ...]) -> None:
        weight = handed[0]
        if weight is None:
            return
        held = parameter.detach()
        with torch.no_grad():
            if kind in NORMS:
                part = weight * held / torch.linalg.vector_norm(held).clamp_min(1e-30)
            elif kind == "Abs":
                part = weight * held.sign()
            else:
                part = 2 * weight * held
            known = parts.get(id(parameter))
            parts[id(parameter)] = (parameter, part if known is None else known[1] + part)

    return hook
