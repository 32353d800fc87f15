"""Weight matrices and their fan-in: by the kind of module, or by how the graph multiplies them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from clew.observe.watches._loss_graph import MOVES, bare, inputs
from clew.observe.watches._network_graph import CONVOLUTIONS, readable, way
from clew.observe.watches._network_units import drops

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from clew.observe.watches._network_graph import Calls

TURNED = ("T", "Transpose", "Permute")
PRODUCTS = {"Mm": (0, 1), "Addmm": (1, 2)}
"""Where the two factors stand among the operands."""
ROWS, VALUES = 256, 200_000
DRAWN_VALUES, LEAST_DRAWN, DRAWN_SIGMAS = 50_000, 100, 3.0
ROWS_OF_A_TABLE, SIDES = 8192, 1024
EDGE = 1.1  # of the largest singular value of a random matrix


class Matrix(NamedTuple):
    """`units` is the axis of the outputs; `fans` are the possible fan-ins, two where the use leaves it open."""

    name: str
    units: int
    fans: tuple[int, int]
    rows: int


def by_module(module: nn.Module) -> Iterator[tuple[torch.Tensor, Matrix]]:
    weight = module._parameters.get("weight")
    if isinstance(module, nn.Linear) and weight is not None:
        yield weight, _matrix("weight", weight, 0)
    elif isinstance(module, CONVOLUTIONS) and weight is not None:
        if module.groups > 1:
            return
        field = math.prod(module.kernel_size)
        turned = module.transposed
        fans = (weight.shape[0] * field, weight.shape[1] * field) if turned else (weight.shape[1] * field,) * 2
        yield weight, Matrix("weight", 1 if turned else 0, fans, module.out_channels)
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase | nn.MultiheadAttention):
        for name, held in module._parameters.items():
            if held is not None and held.dim() == 2 and "weight" in name:
                yield held, _matrix(name, held, 0)


def by_graph(nodes: Iterable[Any]) -> Iterator[tuple[torch.Tensor, Matrix]]:
    """Parameters of hand-written layers: what a matrix product multiplies with."""
    for node in nodes:
        slots = PRODUCTS.get(bare(node))
        if slots is None or len(node.next_functions) <= slots[1]:
            continue
        left, right = (node.next_functions[slot][0] for slot in slots)
        leaf, turned = _leaf(right)
        if leaf is not None:
            yield leaf, _matrix("", leaf, 0 if turned else 1)
            continue
        leaf, turned = _leaf(left)
        if leaf is not None:
            yield leaf, _matrix("", leaf, 1 if turned else 0)


def _matrix(name: str, tensor: torch.Tensor, units: int) -> Matrix:
    fan = tensor.shape[1 - units]
    return Matrix(name, units, (fan, fan), tensor.shape[units])


def _leaf(node: Any) -> tuple[Any, bool]:
    """The parameter that this operand is, and whether it was transposed on the way."""
    turned = False
    for _ in range(3):
        if node is None:
            break
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter):
            return (leaf, turned) if leaf.dim() == 2 else (None, False)
        if bare(node) not in TURNED:
            break
        turned = not turned
        node = next(iter(inputs(node)), None)
    return None, False


def heads(root: Any, made: Calls, known: Container[int]) -> set[int]:
    """The matrices behind which no other one comes on the way to the loss, by id of the tensor."""
    found: set[int] = set()
    waiting: list[Any] = [root]
    seen: set[Any] = set()
    while waiting and len(seen) < 5000:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        mark = _multiplied(node, made, known)
        if mark is not None:
            found.add(mark)
        else:
            waiting += inputs(node)
    return found


def branch_ends(nodes: Iterable[Any], made: Calls, known: Container[int]) -> set[int]:
    """The matrices whose product is added to something else that was computed: the last of a residual branch."""
    found: set[int] = set()
    for node in nodes:
        fed = [held for held in inputs(node) if not hasattr(held, "variable")] if bare(node) == "Add" else []
        for start in fed if len(fed) > 1 else ():
            for held in way(start, lambda passed: bare(passed) in MOVES or drops(passed)):
                mark = _multiplied(held, made, known)
                if mark is not None:
                    found.add(mark)
                    break
    return found


def _multiplied(node: Any, made: Calls, known: Container[int]) -> int | None:
    """The matrix that this product is taken with."""
    mark = made.get(node)
    if mark is None and bare(node) in PRODUCTS:
        leaves = [_leaf(fed)[0] for fed in inputs(node)]
        mark = next((id(leaf) for leaf in leaves if leaf is not None and id(leaf) in known), None)
    return None if mark is None else int(mark)


def spread(tensor: torch.Tensor) -> tuple[float, float | None]:
    """The standard deviation of the entries, and their value when they are all equal."""
    if not readable(tensor):
        return 0.58, None
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        some = flat[:: -(-flat.numel() // VALUES)].double()
        low, high = float(some.min()), float(some.max())
        if low == high:
            return 0.0, low
        return float(some.std()) if some.numel() > 1 else 0.0, None


def rows_equal(tensor: torch.Tensor, units: int) -> bool:
    """Whether all units have the same incoming weights; all zeros count."""
    if not readable(tensor) or tensor.dim() < 2 or tensor.shape[units] < 2:
        return False
    with torch.no_grad():
        rows = tensor.detach().movedim(units, 0)
        rows = rows[:: -(-rows.shape[0] // ROWS)]
        return bool((rows == rows[:1]).all())


def as_drawn(weight: torch.Tensor) -> bool:
    """Whether the values look like an untouched draw, even or normal, around zero. Training gives them tails."""
    values = weight.detach().reshape(-1)[:DRAWN_VALUES].double()
    count = values.numel()
    if count < LEAST_DRAWN:
        return False
    std = float(values.std())
    if not 0 < std < math.inf or abs(float(values.mean())) > DRAWN_SIGMAS * std / math.sqrt(count):
        return False
    tails = float((values**4).mean()) / std**4
    even = abs(tails - 1.8) < 0.15 and float(values.abs().max()) < 1.78 * std
    return even or abs(tails - 3.0) < DRAWN_SIGMAS * math.sqrt(24 / count)


def without_structure(weight: torch.Tensor) -> bool:
    """Whether no direction of a matrix is stronger than in one of independent values: training, and most of all
    co-occurrence, leaves a few strong ones."""
    values = weight.detach().reshape(weight.shape[0], -1)[:ROWS_OF_A_TABLE].double()
    rows, columns = values.shape
    if min(rows, columns) > SIDES or min(rows, columns) < 2:
        return False
    product = values.T @ values if columns <= rows else values @ values.T
    largest = math.sqrt(max(0.0, float(torch.linalg.eigvalsh(product)[-1])))
    return largest < EDGE * float(values.std()) * (math.sqrt(rows) + math.sqrt(columns))
