"""Operations whose derivative is not finite at the values they got, although what became of them in the loss is.

Backward meets the last one executed first. Beside roots, logarithms and divisions these are exponentials that have
overflowed where a mask hides it: the mask hands them a gradient of zero, and zero times infinity is no number.
"""

from __future__ import annotations

from typing import Any

import torch

from clew.observe.watches._loss_graph import bare, inputs
from clew.observe.watches._network_origin import Origin, armed, saved

OVERFLOWS = frozenset("Exp Exp2 Expm1 Sinh Cosh Square Pow Mul".split())


def hazard(nodes: list[Any]) -> Origin | None:
    """The last operation of this graph at which backward fails, None when there is none."""
    found = armed(nodes)
    with torch.no_grad():
        for node in nodes:
            number = _number(node)
            if bare(node) in OVERFLOWS and (found is None or number > found.at) and _infinite(node):
                found = Origin("in_overflow", str(node.name()), number)
    return found


def _infinite(node: Any) -> bool:
    """Whether the operation kept an infinity of its own making."""
    held = {name: value for name, value in saved(node).items() if value.is_floating_point()}
    made = [value for name, value in held.items() if name.startswith("result")]
    given = [value for name, value in held.items() if not name.startswith("result")]
    if any(not bool(torch.isfinite(value).all()) for value in given):
        return False
    return any(bool(torch.isinf(value).any()) for value in made)


def past_casts(found: Origin, nodes: list[Any]) -> Origin:
    """A cast to a type that reaches as far makes no infinity: what it was given had it already."""
    node = next((held for held in nodes if _number(held) == found.at), None)
    while node is not None and bare(node) == "ToCopy" and len(inputs(node)) == 1:
        below = inputs(node)[0]
        before, after = _kind(below), _kind(node)
        if before is None or after is None or torch.finfo(after).max < torch.finfo(before).max * 0.99:
            break
        if hasattr(below, "variable"):
            break
        node = below
        found = Origin("in_overflow", str(node.name()), _number(node))
    return found


def _number(node: Any) -> int:
    return -1 if hasattr(node, "variable") else int(node._sequence_nr())


def _kind(node: Any) -> torch.dtype | None:
    """The type of what an operation gave out, where this torch can say."""
    try:
        kind = node._input_metadata[0].dtype
    except (AttributeError, IndexError, RuntimeError):
        return None
    return kind if isinstance(kind, torch.dtype) and kind.is_floating_point else None
