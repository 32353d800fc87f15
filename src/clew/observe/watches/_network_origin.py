"""Where in a graph the first value that is not finite arose.

Operations keep what their derivative needs. Read in the order of execution, the first operation that kept finite inputs
and a result that is not finite made it. Nothing is unpacked that somebody hooked, as checkpointing does: that would run
the forward pass again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from clew.observe.watches._loss_graph import bare, inputs

if TYPE_CHECKING:
    from collections.abc import Callable

IN_LOG = frozenset("Log Log2 Log10 Log1P Xlogy SpecialXlog1Py Logit Sqrt LogSigmoid Atanh Acosh KlDiv".split())
IN_DIVISION = frozenset(
    "Div Reciprocal Rsqrt Std Var StdMean VarMean Mean NllLoss NllLoss2D NativeLayerNorm NativeGroupNorm "
    "NativeBatchNorm CudnnBatchNorm CosineSimilarity CosineEmbeddingLoss".split()
)
SQUARING = ("Native", "Cudnn", "Std", "Var")
MASKS = frozenset("MaskedFill Where Add MaskedFillScalar".split())
MAY_BE_MINUS_INFINITY = frozenset(
    "Softmax LogSoftmax MaskedFill Where Clamp ClampMin ClampMax Logsumexp Max Min Maximum Minimum Amax Amin".split()
)
SLOTS = {
    "Addmm": {"mat1": 1, "mat2": 2},
    "Baddbmm": {"batch1": 1, "batch2": 2},
    "Convolution": {"input": 0, "weight": 1},
}
NEARLY = 1e-15
"""Below what is added to a number to keep it away from zero."""
STEEP = frozenset("Sqrt Rsqrt Pow Log Log2 Log10 Log1P Div Reciprocal Acos Asin".split())
LATER = frozenset(("other", "mat2", "target", "weight", "exponent", "tensor2", "value"))
"""Saved operands that stand second."""


class Origin(NamedTuple):
    """`outcome` as the test names it, "" when the operation says too little; `at` is its number in the graph."""

    outcome: str
    operation: str
    at: int


_kept_by: dict[str, tuple[str, ...]] = {}


def saved(node: Any) -> dict[str, torch.Tensor]:
    """What an operation kept, as far as it is there unhooked and unchanged."""
    kind_of_node = str(node.name())
    names = _kept_by.get(kind_of_node)
    if names is None:
        names = tuple(name for name in dir(node) if name.startswith("_raw_saved_"))
        _kept_by[kind_of_node] = names
    found = {}
    for name in names:
        try:
            raw = getattr(node, name)
            # Older versions of torch cannot say whether it is hooked: then it is left alone.
            if isinstance(raw, tuple) or getattr(raw, "unpack_hook", raw) is not None:
                continue
            value = getattr(node, name.replace("_raw", "", 1))
        except RuntimeError:
            continue  # released, or written over in place since
        if isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta:
            found[name.removeprefix("_raw_saved_")] = value.detach()
    return found


def origin(nodes: list[Any], loss: Any) -> Origin | None:
    """The operation that made the first bad value of this graph; None when nothing that was kept shows it."""
    with torch.no_grad():
        for node in sorted(nodes, key=lambda held: int(held._sequence_nr())):
            held = saved(node)
            name = bare(node)
            for operand, value in held.items():
                if not operand.startswith(("result", "output")) and bad(value, name, operand):
                    return _upstream(node, operand)
            made = any(bad(v, name, k) for k, v in held.items() if k.startswith(("result", "output")))
            if made or _makes_bad(node, name, held):
                return Origin(kind(node, held), str(node.name()), int(node._sequence_nr()))
        top = _top(loss)
        return Origin(kind(top, saved(top)), str(top.name()), int(top._sequence_nr())) if top is not None else None


def bad(value: torch.Tensor, name: str, operand: str) -> bool:
    if "mask" in operand or operand == "total_weight" or not (value.is_floating_point() or value.is_complex()):
        return False
    if name in MAY_BE_MINUS_INFINITY:
        return bool((torch.isnan(value) | (value == torch.inf)).any())
    return not bool(torch.isfinite(value).all())


def _makes_bad(node: Any, name: str, held: dict[str, torch.Tensor]) -> bool:
    """Whether finite operands make a result that is not, by the operation's own rule."""
    rules: dict[str, Callable[[], bool]] = {
        "Log": lambda: bool((held["self"] <= 0).any()),
        "Log2": lambda: bool((held["self"] <= 0).any()),
        "Log10": lambda: bool((held["self"] <= 0).any()),
        "Log1P": lambda: bool((held["self"] <= -1).any()),
        "Div": lambda: bool((held["other"] == 0).any()),
        "Pow": lambda: not bool(torch.isfinite(held["self"] ** _exponent(node, held)).all()),
        "Mul": lambda: not bool(torch.isfinite(held["self"] * held["other"]).all()),
        "NllLoss": lambda: bool((held["total_weight"] == 0).any()),
        "NllLoss2D": lambda: bool((held["total_weight"] == 0).any()),
        "MseLoss": lambda: not bool(torch.isfinite((held["self"] - held["target"]) ** 2).all()),
    }
    if name == "Mean":
        return 0 in (*getattr(node, "_saved_self_sym_sizes", ()), getattr(node, "_saved_self_sym_numel", 1))
    try:
        return rules[name]() if name in rules else False
    except (KeyError, RuntimeError, TypeError):
        return False


def _exponent(node: Any, held: dict[str, torch.Tensor]) -> Any:
    kept = held.get("exponent")
    return node._saved_exponent if kept is None else kept


def _upstream(node: Any, operand: str) -> Origin:
    """A bad value came into this operation, and nothing before it had kept one: the operand itself is the place."""
    slot = SLOTS.get(bare(node), {}).get(operand, 1 if operand in LATER else 0)
    edges = node.next_functions
    fed = edges[slot][0] if slot < len(edges) else None
    at = int(node._sequence_nr())
    if fed is None:
        return Origin("in_data", str(node.name()), at)
    if hasattr(fed, "variable"):
        return Origin("weights", str(node.name()), at)
    while bare(fed) in ("View", "UnsafeView", "T", "Transpose", "Permute", "Expand", "Clone", "ReshapeAlias"):
        below = inputs(fed)
        if len(below) != 1 or hasattr(below[0], "variable"):
            break
        fed = below[0]
    return Origin(kind(fed, {}), str(fed.name()), int(fed._sequence_nr()))


def kind(node: Any, held: dict[str, torch.Tensor]) -> str:
    name = bare(node)
    if name == "Pow":
        return _kind_of_power(node, held)
    if name in ("Softmax", "LogSoftmax"):
        near = {bare(fed) for fed in inputs(node)} | {bare(f) for fed in inputs(node) for f in inputs(fed)}
        return "in_division" if near & MASKS else "in_overflow"
    if name == "Div" and "other" in held and not bool((held["other"] == 0).any()):
        return "in_overflow"
    if name.startswith(SQUARING) and any(_squares_overflow(value) for value in held.values()):
        return "in_overflow"  # layers that normalise square what they are given
    if name in IN_LOG:
        return "in_log"
    return "in_division" if name in IN_DIVISION else "in_overflow"


def _squares_overflow(value: torch.Tensor) -> bool:
    if not value.is_floating_point() or not value.numel():
        return False
    return bool(float(value.abs().max()) > math.sqrt(torch.finfo(value.dtype).max))


def _kind_of_power(node: Any, held: dict[str, torch.Tensor]) -> str:
    exponent, base = _exponent(node, held), held.get("self")
    if base is None or isinstance(exponent, torch.Tensor):
        return "in_overflow"
    if exponent < 0 and bool((base == 0).any()):
        return "in_division"
    return "in_log" if exponent != int(exponent) and bool((base <= 0).any()) else "in_overflow"


def _top(loss: Any) -> Any:
    """The operation of the loss itself, below sums and factors with one operand."""
    node = loss
    for _ in range(16):
        fed = inputs(node)
        if bare(node) not in ("Mul", "Add", "Sub", "Rsub", "Neg", "ToCopy", "Sum", "Mean", "View") or len(fed) != 1:
            return None if len(fed) > 1 and bare(node) in ("Add", "Sub") else node
        node = fed[0]
    return node


def armed(nodes: list[Any]) -> Origin | None:
    """The last operation whose derivative is infinite at a value that it got."""
    found = None
    with torch.no_grad():
        for node in nodes:
            name = bare(node)
            if name not in STEEP:
                continue
            held = saved(node)
            if steep(node, name, held) and (found is None or int(node._sequence_nr()) > found.at):
                # The slope of a root at zero is one over zero.
                outcome = "in_log" if name.startswith("Log") else "in_division"
                found = Origin(outcome, str(node.name()), int(node._sequence_nr()))
    return found


def nearly_armed(nodes: list[Any]) -> tuple[float, Origin] | None:
    """The operation that came nearest to an infinite derivative, with the value that it got."""
    found = None
    with torch.no_grad():
        for node in nodes:
            name = bare(node)
            held = saved(node) if name in STEEP else {}
            values = held.get("result" if name == "Sqrt" else "other" if name == "Div" else "self")
            if name in ("Acos", "Asin", "Pow", "Log1P") or values is None or not values.is_floating_point():
                continue
            least = float(values.abs().min()) if values.numel() else 1.0
            least = least**2 if name == "Sqrt" else least
            if 0.0 < least < NEARLY and (found is None or least < found[0]):
                outcome = "in_log" if name.startswith("Log") else "in_division"
                found = (least, Origin(outcome, str(node.name()), int(node._sequence_nr())))
    return found


def steep(node: Any, name: str, held: dict[str, torch.Tensor]) -> bool:
    if name == "Sqrt":
        return "result" in held and bool((held["result"] == 0).any())
    if name in ("Acos", "Asin"):
        return "self" in held and bool((held["self"].abs() >= 1).any())
    if name == "Pow":
        exponent = _exponent(node, held) if "self" in held else 2
        return not isinstance(exponent, torch.Tensor) and exponent < 1 and bool((held["self"] == 0).any())
    if name in ("Reciprocal", "Rsqrt"):
        return "result" in held and bool(torch.isinf(held["result"]).any())
    return _makes_bad(node, name, held)
