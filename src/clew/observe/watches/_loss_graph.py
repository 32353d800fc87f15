"""Reading the autograd graph around a loss: what fed it, and what it became part of.

Only names, shapes and small constants of nodes are read. Nodes are remembered by name and sequence number, never by
reference, so that no graph outlives its step. Saved tensors are left alone wherever somebody hooked them, as
checkpointing and offloading do, because unpacking one of those runs the hook.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

Key = tuple[str, int]

MOVES = frozenset(
    "View UnsafeView ReshapeAlias Reshape Flatten Unflatten Transpose T Permute Movedim Squeeze Unsqueeze Clone ToCopy "
    "Alias Contiguous".split()
)
"""Nodes that carry every value on, at another place or in another type."""
PICKS = frozenset(
    "Select Slice Index IndexSelect Gather MaskedSelect Split SplitWithSizes Unbind Narrow Expand".split()
)
"""Nodes that carry some of the values on."""
LINEAR = frozenset("Add Sub Rsub Neg Mul Div Mean Sum Stack Cat Unbind Select".split()) | MOVES
"""Nodes a loss may pass on its way to backward without ceasing to be a weighted term of it."""
ENTIRE = LINEAR - PICKS | {"Clamp", "ClampMin", "ClampMax"}
DISTANCES = frozenset("Cdist CdistForward EuclideanDist PairwiseDistance".split())
SQUARES = frozenset("Pow LinalgVectorNorm Norm".split())
"""Of a difference these make a distance; the length of a vector may well be a score."""
BENT = frozenset("Sqrt Sum Mean Mul Clamp ClampMin".split()) | SQUARES
"""What stands between a difference and a score that is a distance."""
STRAIGHT = frozenset("Mul Div Neg Sub Rsub Add".split())
SQUASHES = {"Softmax": "softmax", "Sigmoid": "sigmoid", "LogSoftmax": "log_softmax", "LogSigmoid": "logsigmoid"}
WALKED = 4096
NEAR = 64
LARGE = 1_000_000


def bare(node: Any) -> str:
    """`NllLoss` for NllLossBackward0."""
    return re.sub(r"Backward\d*$", "", str(node.name()))


def key(node: Any) -> Key:
    return str(node.name()), int(node._sequence_nr())


def inputs(node: Any) -> list[Any]:
    """The nodes that fed this one; constants have none."""
    return [fed for fed, _ in node.next_functions if fed is not None]


def shape(node: Any) -> tuple[int, ...] | None:
    """The shape of what the operation gave out, where this torch can say."""
    try:
        return tuple(int(size) for size in node._input_metadata[0].shape)
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        return None


def saved(node: Any, name: str) -> torch.Tensor | None:
    """A tensor that a node kept, unless somebody hooked it: to unpack it would run the hook."""
    try:
        raw = getattr(node, f"_raw_saved_{name}", None)
        if raw is None or getattr(raw, "unpack_hook", None) is not None:
            return None
        held = raw.data
    except (AttributeError, RuntimeError):
        return None
    return held if isinstance(held, torch.Tensor) and held.layout == torch.strided and not held.is_meta else None


def origin(tensor: torch.Tensor, through: Collection[str] = MOVES | PICKS) -> Any:
    """The operation that computed these values, past those that only moved them; None for a leaf."""
    return walk(tensor.grad_fn, through) if tensor.grad_fn is not None else None


def walk(node: Any, through: Collection[str]) -> Any:
    """The first node below this one that is none of these, along a way without forks."""
    for _ in range(64):
        if bare(node) not in through:
            return node
        fed = inputs(node)
        if len(fed) != 1:
            return node
        node = fed[0]
    return node


def made_by(node: Any) -> str:
    """What kind of operation computed a loss's input."""
    if node is None:
        return ""
    name = bare(node)
    if name in SQUASHES:
        return SQUASHES[name]
    if name in ("Cat", "Stack"):
        kinds = {made_by(walk(fed, MOVES)) for fed in inputs(node)[:32]}
        return kinds.pop() if len(kinds) == 1 else ""
    return "affine" if is_affine(node) else ""


def is_affine(node: Any) -> bool:
    """A layer with weights of its own and nothing after it. A product of two computed things may be a mixture of
    probabilities, so a bare matrix product counts only with a parameter as one factor."""
    name = bare(node)
    fed = [operand for operand, _ in node.next_functions]
    if name == "Addmm":
        return len(fed) == 3 and fed[2] is not None
    if name in ("Linear", "Convolution", "CudnnConvolution", "MkldnnConvolution"):
        return len(fed) > 1 and fed[1] is not None
    if name == "Mm":
        return any(_is_leaf(walk(operand, MOVES)) for operand in fed if operand is not None)
    if name == "Add" and len(inputs(node)) == 2:
        first, second = (walk(operand, MOVES) for operand in inputs(node))
        return (_is_leaf(second) and bare(first) == "Mm") or (_is_leaf(first) and bare(second) == "Mm")
    return False


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")


class Made:
    """What a few recent calls gave out, by the node that stands for it."""

    def __init__(self, size: int = 256) -> None:
        self.size = size
        self._held: dict[Key, Any] = {}

    def note(self, result: Any, value: Any) -> None:
        node = result.grad_fn if isinstance(result, torch.Tensor) else None
        if node is not None:
            self._held[key(node)] = value
            if len(self._held) > self.size:
                del self._held[next(iter(self._held))]

    def get(self, node: Any) -> Any:
        return self._held.get(key(node)) if node is not None else None

    def under(self, root: torch.Tensor) -> Iterator[Any]:
        """The noted values whose nodes the graph of `root` holds."""
        if not self._held or root.grad_fn is None:
            return
        # A node is younger than what fed it, so nothing below the oldest noted node needs a look.
        oldest = min(number for _, number in self._held)
        waiting: list[Any] = [root.grad_fn]
        seen: set[Key] = set()
        while waiting and len(seen) < WALKED:
            node = waiting.pop()
            mark = key(node)
            if mark in seen or mark[1] < oldest:
                continue
            seen.add(mark)
            if mark in self._held:
                yield self._held[mark]
            waiting += inputs(node)


class Term(NamedTuple):
    """One part of what backward was called on. `factor` is the derivative of the whole with respect to it; it is None
    where that differs between the elements of the term. Use `node` at once and do not keep it."""

    node: Any
    factor: float | None
    known: Any


def terms(root: torch.Tensor, made: Made, most: int = 64) -> list[Term]:
    """The weighted terms of a loss, up to the factor of a gradient scaler."""
    if root.grad_fn is None or root.is_sparse or root.is_meta:
        return []
    found: list[Term] = []
    with torch.no_grad():
        waiting = [(root.grad_fn, torch.ones_like(root) / _scaling(root))]
        for _ in range(WALKED):
            if not waiting or len(found) >= most:
                break
            node, slope = waiting.pop()
            known = made.get(node)
            further = None if known is not None else _further(node, slope, made)
            if further is None:
                found.append(Term(node, _constant(slope), known))
            else:
                waiting += further
    return found[::-1]


class Divergence(NamedTuple):
    """A KL divergence of Gaussians from a standard one in a loss. Use `node` at once and do not keep it."""

    sign: int  # -1 where the loss holds minus that divergence, which has no lowest value
    node: Any
    variances: torch.Tensor | None
    means: torch.Tensor | None
    square: Any = None  # of the means, a node like the other


def divergence(root: torch.Tensor, most: int = 256) -> Divergence | None:
    """Known by s beside exp(s), or log(s) beside s, with opposite signs."""
    if root.grad_fn is None or root.is_sparse or root.is_meta or root.numel() != 1:
        return None
    signs: dict[Key, int] = {}
    bent: list[tuple[Any, Key]] = []
    squares: list[Any] = []
    with torch.no_grad():
        waiting: list[tuple[Any, torch.Tensor]] = [(root.grad_fn, torch.ones_like(root))]
        for _ in range(most):
            if not waiting:
                break
            node, slope = waiting.pop()
            name, fed = bare(node), inputs(node)
            one = walk(node, MOVES)
            signs[key(one)] = _sign(slope)
            if bare(one) in ("Exp", "Log") and inputs(one):
                bent.append((one, key(walk(inputs(one)[0], MOVES))))
            elif bare(one) == "Pow":
                squares.append(one)
            scaled = name not in ("Mul", "Div") or len(fed) == 1
            if name in ENTIRE and fed and scaled and slope.numel() <= LARGE and not hooked(node):
                slopes = node(slope)
                slopes = slopes if isinstance(slopes, tuple) else (slopes,)
                pairs = zip(node.next_functions, slopes, strict=False)
                waiting += [(n, held) for (n, _), held in pairs if n is not None and held is not None]
    for curve, line in bent:
        sign = signs[key(curve)] * (1 if bare(curve) == "Exp" else -1)
        if sign and signs.get(line) == -signs[key(curve)]:
            variances = saved(curve, "result" if bare(curve) == "Exp" else "self")
            alike = [node for node in squares if signs[key(node)] == sign and shape(node) == shape(curve)]
            square = alike[0] if alike else None
            return Divergence(sign, curve, variances, saved(square, "self") if square is not None else None, square)
    return None


def falls_without_end(root: torch.Tensor) -> bool:
    """Whether the loss holds minus a KL divergence."""
    found = divergence(root)
    return found is not None and found.sign < 0


def _sign(slope: torch.Tensor) -> int:
    low, high = (float(value) for value in torch.aminmax(slope.detach().float())) if slope.numel() else (0.0, 0.0)
    return 1 if low > 0 else -1 if high < 0 else 0


def _scaling(root: torch.Tensor) -> float:
    """The power of two that a GradScaler has put on top, else 1."""
    node: Any = root.grad_fn
    if node is None or bare(node) != "Mul" or len(inputs(node)) != 1 or hooked(node):
        return 1.0
    slopes = node(torch.ones_like(root))
    slope = next((s for s in (slopes if isinstance(slopes, tuple) else (slopes,)) if s is not None), None)
    value = _constant(slope) if slope is not None else None
    return value if value is not None and value >= 16 and math.frexp(value)[0] == 0.5 else 1.0


def _further(node: Any, slope: torch.Tensor, made: Made) -> list[tuple[Any, torch.Tensor]] | None:
    """The operands of a linear operation with their slopes; None when the operation is a term of its own."""
    name, fed = bare(node), inputs(node)
    if name not in LINEAR or not fed or slope.numel() > LARGE or hooked(node):
        return None
    if name in ("Mean", "Sum") and not _leads_on(fed[0], made):
        return None
    if name in ("Mul", "Div") and len(fed) > 1 and not any(made.get(operand) is not None for operand in fed):
        return None
    slopes = node(slope)
    slopes = slopes if isinstance(slopes, tuple) else (slopes,)
    pairs = [(n, s) for (n, _), s in zip(node.next_functions, slopes, strict=False) if n is not None and s is not None]
    if name in ("Mul", "Div") and len(fed) > 1:
        pairs = [(n, s) for n, s in pairs if made.get(n) is not None]
    return pairs


def _leads_on(node: Any, made: Made) -> bool:
    """Whether a reduction is taken over known losses and not over a formula written out by hand."""
    for _ in range(16):
        if made.get(node) is not None or bare(node) in ("Stack", "Cat"):
            return True
        fed = inputs(node)
        if bare(node) not in LINEAR or len(fed) != 1:
            return False
        node = fed[0]
    return False


def hooked(node: Any) -> bool:
    for name in ("_raw_saved_self", "_raw_saved_other"):
        try:
            raw = getattr(node, name, None)
        except RuntimeError:
            return True
        if raw is not None and getattr(raw, "unpack_hook", None) is not None:
            return True
    return False


def _constant(slope: torch.Tensor) -> float | None:
    if slope.numel() == 0:
        return None
    low, high = (float(value) for value in torch.aminmax(slope.detach().float()))
    return high if math.isclose(low, high, rel_tol=1e-3, abs_tol=0.0) else None


def distance_sign(scores: torch.Tensor) -> int:
    """1 where scores grow with a distance, -1 where they fall with one, 0 where they are something else."""
    node: Any = scores.grad_fn
    sign, squared = 1, False
    with torch.no_grad():
        for _ in range(16):
            if node is None or bare(node) in DISTANCES or (squared and bare(node) in ("Sub", "Rsub")):
                return 0 if node is None else sign
            name, fed = bare(node), inputs(node)
            same = len({key(operand) for operand in fed}) == 1
            squared = squared or name in SQUARES or (name == "Mul" and len(fed) == 2 and same)
            if name in STRAIGHT and len(fed) == 1 and not squared:
                if hooked(node):
                    return 0  # its sign cannot be read
                sizes = shape(node)
                slope = node(torch.ones(sizes, dtype=scores.dtype, device=scores.device)) if sizes else None
                slopes = [one for one in (slope if isinstance(slope, tuple) else (slope,)) if one is not None]
                if len(slopes) != 1 or not bool((slopes[0] > 0).all() or (slopes[0] < 0).all()):
                    return 0
                sign = sign if bool((slopes[0] > 0).all()) else -sign
            elif not same or name not in MOVES | BENT:
                return 0
            node = fed[0]
    return 0


def residual(node: Any) -> Any:
    """The subtraction whose square or absolute value this reduction is taken of, where it is one."""
    if bare(node) not in ("Mean", "Sum"):
        return None
    bent = False
    for _ in range(4):
        fed = inputs(node)
        if len({key(operand) for operand in fed}) != 1:
            return None
        bent = bent or bare(node) in ("Pow", "Abs") or (bare(node) == "Mul" and len(fed) == 2)
        node = fed[0]
        if bare(node) in ("Sub", "Rsub"):
            return node if bent else None
        if bare(node) not in ("Pow", "Abs", "Mul", "Mean", "Sum"):
            return None
    return None


def square_value(node: Any) -> float | None:
    """The value of a mean or sum of powers written by hand, from what the power saved; None where it cannot be read."""
    fed = inputs(node)
    name = str(node.name())
    if name not in ("MeanBackward0", "SumBackward0") or not fed or bare(fed[0]) != "Pow" or hooked(fed[0]):
        return None
    try:
        base, exponent = fed[0]._raw_saved_self.data, float(fed[0]._saved_exponent)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None
    if not isinstance(base, torch.Tensor) or base.is_complex() or base.layout != torch.strided:
        return None
    with torch.no_grad():
        powers = base.detach().float() ** exponent
        return float(powers.mean() if name == "MeanBackward0" else powers.sum())


def value_of(root: torch.Tensor) -> float:
    """The value that backward was called on, without the factor of a gradient scaler."""
    with torch.no_grad():
        return float(root.detach().float().sum()) / _scaling(root)


def parameters_under(tensors: list[torch.Tensor], told: Callable[[Any], None], most: int = 50_000) -> bool:
    """Tell every leaf that the graphs of these tensors end in; False when a graph was too large to see to its end."""
    waiting: list[Any] = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) > most:
            return False
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, torch.Tensor):
            told(leaf)
        waiting += inputs(node)
    return True


class Overlap(NamedTuple):
    """A share of two sums: of products of scores with a constant, and of the scores. Do not keep the nodes."""

    product: Any
    scores: Any


def overlap(root: torch.Tensor) -> Overlap | None:
    """The first Dice or intersection over union that the loss is made of, as written by hand."""
    waiting = [root.grad_fn] if root.grad_fn is not None else []
    seen: set[Key] = set()
    while waiting and len(seen) < NEAR:
        node = waiting.pop(0)
        if key(node) in seen or bare(node) not in LINEAR:
            continue
        seen.add(key(node))
        fed = [operand for operand, _ in node.next_functions]
        if bare(node) == "Div" and len(fed) == 2 and fed[0] is not None and fed[1] is not None:
            above = {key(scores): held for held, scores in _summed(fed[0], products=True)}
            for _, scores in _summed(fed[1], products=False):
                if key(scores) in above:
                    return Overlap(above[key(scores)], scores)
        waiting += inputs(node)
    return None


def _summed(top: Any, products: bool) -> Iterator[tuple[Any, Any]]:
    """What is summed up below a node, and what computed it: with a constant as a factor, or as it is."""
    waiting = [top]
    for _ in range(NEAR):
        if not waiting:
            return
        node = waiting.pop()
        name, fed = bare(node), inputs(node)
        if name in ("Sum", "Mean") and fed:
            held = walk(fed[0], MOVES)
            if products and bare(held) == "Mul" and len(inputs(held)) == 1:
                yield held, walk(inputs(held)[0], MOVES | PICKS)
            elif not products and bare(held) != "Mul":
                yield held, walk(held, MOVES | PICKS)
        elif name in LINEAR:
            waiting += fed
