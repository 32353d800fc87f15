"""Which parameters work together in one network, by the graph of a loss.

A parameter enters an operation as it is, or through operations with one operand (a transpose, a cast, an exponential).
Two parameters stand in series when one of them enters an operation whose other operand depends on the other: a layer on
top of a layer. A teacher and its student only meet in the loss, where neither enters as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

MOST = 50_000
HELD, LEFT = 1, 2


class Series(NamedTuple):
    """Of the parameters asked about: those that the loss reaches, and those in series with an optimised one; and
    whether it reaches any optimised one."""

    reached: set[int]
    joined: set[int]
    held: bool


def series(root: Any, held: AbstractSet[int], left: AbstractSet[int]) -> Series | None:
    """`held` and `left` are ids of parameters, optimised ones and others; None when the graph is too large."""
    order = _bottom_up(root)
    if order is None:
        return None
    below: dict[Any, int] = {}
    entering: dict[Any, int] = {}  # the parameter that comes through a chain of operations with one operand
    reached: set[int] = set()
    for node in order:
        variable = getattr(node, "variable", None)
        if variable is not None:
            mark = id(variable)
            below[node] = HELD if mark in held else LEFT if mark in left else 0
            entering[node] = mark
            reached |= {mark} & left
            continue
        fed = [operand for operand, _ in node.next_functions]
        below[node] = 0
        for operand in fed:
            below[node] |= below.get(operand, 0)
        if len(fed) == 1 and fed[0] in entering:
            entering[node] = entering[fed[0]]
    joined: set[int] = set()
    for node in order if reached else []:
        fed = [operand for operand, _ in node.next_functions if operand is not None]
        if len(fed) > 1 and below[node] == HELD | LEFT:
            joined |= _joined(fed, below, entering, held, left)
    return Series(reached, joined, bool(below[root] & HELD))


def _joined(
    fed: list[Any], below: dict[Any, int], entering: dict[Any, int], held: AbstractSet[int], left: AbstractSet[int]
) -> set[int]:
    found: set[int] = set()
    for at, operand in enumerate(fed):
        mark = entering.get(operand)
        others = [other for index, other in enumerate(fed) if index != at]
        if mark in left and any(below[other] & HELD for other in others):
            found.add(mark)  # type: ignore[arg-type]  # None is in no set of ids
        elif mark in held:
            for other in others:
                if below[other] & LEFT:
                    found |= _under(other) & left
    return found


def _under(root: Any) -> set[int]:
    found = set()
    for node in _bottom_up(root) or ():
        if hasattr(node, "variable"):
            found.add(id(node.variable))
    return found


def _bottom_up(root: Any) -> list[Any] | None:
    """Every node under this one, each after those that feed it; None when there are too many."""
    order: list[Any] = []
    seen = {root}
    waiting = [(root, iter([fed for fed, _ in root.next_functions if fed is not None]))]
    while waiting:
        node, rest = waiting[-1]
        fresh = next((fed for fed in rest if fed not in seen), None)
        if fresh is None:
            order.append(node)
            waiting.pop()
            continue
        seen.add(fresh)
        if len(seen) > MOST:
            return None
        waiting.append((fresh, iter([fed for fed, _ in fresh.next_functions if fed is not None])))
    return order
