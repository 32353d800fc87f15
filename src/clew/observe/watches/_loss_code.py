"""Whether what is rebuilt from a code sends a gradient back to what makes the code.

A loss that holds the divergence of a Gaussian code from its prior trains what makes the code twice: by the divergence,
and by the terms that come of the code. Where no such term reaches it, the code was cut off on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.observe.watches._loss_graph import Made, divergence, inputs, terms

if TYPE_CHECKING:
    import torch

MOST = 20_000


def code_cut_off(loss: torch.Tensor) -> bool | None:
    """None where the loss holds no such divergence, no other term, or its graph is too large."""
    held = divergence(loss)
    if held is None or held.sign < 0:
        return None
    makes, means = _leaves(held.node), _leaves(held.square) if held.square is not None else set()
    parts = [_leaves(part.node) for part in terms(loss, Made(1))]
    if not makes or means is None or None in parts:
        return None
    makes |= means
    others = [part for part in parts if part and not part <= makes]
    return all(not part & makes for part in others) if others else None


def _leaves(root: Any) -> set[int] | None:
    waiting, seen, found = [root], {root}, set()
    while waiting:
        node = waiting.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        for below in inputs(node):
            if below not in seen:
                if len(seen) > MOST:
                    return None
                seen.add(below)
                waiting.append(below)
    return found
