"""Division by the number of selected entries, which may be zero.

What it sees: a sum divided by the sum of a mask, or by a count of entries that fulfil a condition, with nothing that
keeps the count from zero: a mask per example, a comparison, entries that are picked by it.
Why it matters: a batch or an example without a marked entry divides zero by zero. One NaN in a mean makes the loss NaN,
and one step later all weights are.
Silent when: the count is clamped, something is added to it, or it is asked for first.
Fix: divide by mask.sum().clamp(min=1).
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.rules.clw603_division_by_spread import tested
from clew.lint.script import Hit, Script, text
from clew.lint.trail import root

MASK = re.compile(r"(^|_|\.)(masks?|valid|keep|visible|observed|pos|positives?|neg|negatives?|present)(_|$)", re.I)


@rule("CLW608", "division-by-count", "num.div_by_zero", "look", "sum count_nonzero")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch", "jnp"):
        return
    for node in script.module.nodes.get(ast.BinOp, []):
        if not isinstance(node.op, ast.Div) or not summed(script, node.left):
            continue
        where = script.where(node)
        call = count(script, node.right, where)
        if call is None or tested(script, node) or asked(node.right, where) or not trains(script, where):
            continue
        name = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        fix = Fix("keep away from zero", False, (script.after(node.right, ".clamp(min=1)"),))
        says = f"divides by the number of True entries in {name[:30]}, which may be zero."
        yield Hit(node, says, fix=fix)


def summed(script: Script, node: Any) -> bool:
    """(x * mask).sum(...): a sum, also by name."""
    if isinstance(node, ast.UnaryOp):
        return summed(script, node.operand)
    if isinstance(node, ast.Name):
        where = script.where(node)
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("sum", "sum_")


def count(script: Script, node: Any, where: Where) -> ast.Call | None:
    """mask.sum(...), directly or by name, where mask is one by its name or was made by a comparison."""
    if isinstance(node, ast.Name):
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        if len(made) != 1 or made[0].how != "=" or made[0].path:
            return None
        node, where = made[0].value, made[0].where
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    if node.func.attr != "sum" or (script.dotted(node.func) and script.dotted(node.func) != "torch.sum"):
        return None
    base: Any = node.func.value if not script.dotted(node.func) else (node.args[0] if node.args else None)
    while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr in PASS:
        base = base.func.value
    if isinstance(base, ast.Compare):
        return node
    name = text(base)
    if not name or "attention" in name or "attn" in name:
        return None
    per_row = bool(node.args or node.keywords) and not script.dotted(node.func)
    return node if by_comparison(base, where) or (MASK.search(name) and per_row) else None


PASS = ("float", "to", "type_as", "long", "int", "double", "bool", "detach", "type")


def by_comparison(node: Any, where: Where) -> bool:
    """Whether a name was set to a comparison, or to one of several joined by & or |."""
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    held = reaching(defs, where) if defs else []
    value = held[0].value if len(held) == 1 and held[0].how == "=" and not held[0].path else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in PASS:
        value = value.func.value
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd | ast.BitOr):
        value = value.left
    return isinstance(value, ast.Compare) and not of_itself(value)


def of_itself(node: ast.Compare) -> bool:
    """y[:, None] == y[None, :] holds at least where a row meets itself."""
    sides = [root(side.func if isinstance(side, ast.Call) else side) for side in (node.left, *node.comparators)]
    return isinstance(node.ops[0], ast.Eq) and len(set(sides)) == 1 and sides[0] != ""


def asked(node: Any, where: Where) -> bool:
    """Whether the function asks before if there is anything: mask.any(), n == 0, or repairs the result."""
    said = text(node).split(".")[0] if text(node) else ""
    for part in ast.walk(where.block.scope.node):
        if isinstance(part, ast.If | ast.IfExp | ast.While | ast.Assert):
            test = ast.unparse(part.test)
            if "any(" in test or "sum(" in test or "numel(" in test or (said and re.search(rf"\b{said}\b", test)):
                return True
        if isinstance(part, ast.Attribute) and part.attr in ("nan_to_num", "nanmean", "nan_to_num_", "isnan"):
            return True
    return False


def trains(script: Script, where: Where) -> bool:
    """A loss or a forward pass: in a metric a NaN is seen, and harms nothing."""
    scope = where.block.scope
    cls = script.class_of(scope)
    name = scope.name.lower()
    if script.grad_off(where) is not None:
        return False
    if any(word in name for word in ("acc", "metric", "eval", "iou", "score", "recall", "precision", "f1")):
        return False
    return scope.kind == "function" and (
        "loss" in name
        or name in ("forward", "training_step", "compute_loss")
        or (cls is not None and "loss" in cls.name.lower())
        or any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in scope.calls)
        or any(in_loss(text(call.func)) or backs(where) for call, where in script.project.callers(scope)[:3])
    )


def in_loss(name: str) -> bool:
    return "loss" in name.lower()


def backs(where: Where) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in where.block.scope.calls
    )
