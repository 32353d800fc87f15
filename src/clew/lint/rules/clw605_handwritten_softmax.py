"""A softmax or log-sum-exp written out by hand.

What it sees: exp(x) divided by its own sum, also with some positions masked, or log of a sum of exp, without
subtracting the maximum first; of unit vectors only when the temperature is so low that exp overflows.
Why it matters: exp overflows above about 88 in single precision and above about 11 in half precision. One large score
gives Inf / Inf, and NaN everywhere.
Silent when: a maximum is subtracted, or the argument is bounded (a cosine, a tanh, a negative distance).
Fix: torch.softmax, or torch.logsumexp.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Def
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import trail, verb

SMALL = re.compile(r"max|cos|tanh|sim|norm|logsumexp|clamp|sigmoid|clip|log[(_]|log$|dist")
EXPS = ("torch.exp", "jax.numpy.exp", "numpy.exp")


@rule("CLW605", "handwritten-softmax", "num.overflow", "likely", "exp")
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Div):
            top, summed = exponential(script, picked(script, node.left)), sum_of(script, node.right)
            if top is not None and summed is not None and same(top, summed) and not bounded(script, top):
                sure = "look" if script.dotted(top.func) == "numpy.exp" else ""
                yield Hit(node, "is a hand-written softmax: without subtracting the maximum, exp overflows.", sure)
    for call in script.calls("log"):
        operand = script.operand(call) if not script.dotted(call.func).startswith("jax") else script.arg(call, 0)
        inner = (
            sum_of(script, operand)
            if operand is not None and script.dotted(call.func) in ("", "torch.log", "jax.numpy.log")
            else None
        )
        if inner is not None and not bounded(script, inner):
            yield Hit(call, "is a hand-written log-sum-exp: without subtracting the maximum, exp overflows.")


def value(script: Script, node: Any) -> Any:
    """What a name stands for, when that is one expression."""
    if isinstance(node, ast.Name):
        where = script.where(node)
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        # `e = e * mask` is still the exponential, of fewer positions.
        made = [one for one in made if not masked(one, node.id)] if len(made) > 1 else made
        if len(made) == 1 and made[0].how == "=" and not made[0].path:
            return made[0].value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant):
        return value(script, node.left)  # the small number that guards a division
    return node


def picked(script: Script, node: Any) -> Any:
    """e of e.diag(), e[i, y], e.gather(1, y): some entries of the exponentials."""
    node = value(script, node)
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("diag", "diagonal", "gather", "squeeze", "sum")
            and not script.dotted(node.func)
        ):
            node = node.func.value
        else:
            return node


def masked(made: Def, name: str) -> bool:
    product = made.value
    return (
        made.how == "="
        and isinstance(product, ast.BinOp)
        and isinstance(product.op, ast.Mult)
        and name in (text(product.left), text(product.right))
    )


def exponential(script: Script, node: Any) -> ast.Call | None:
    """exp(...) of torch or jax, directly or by name, also with some positions set to zero."""
    node = value(script, node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "masked_fill":
        return exponential(script, node.func.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return exponential(script, node.left) or exponential(script, node.right)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "exp":
        return None
    dotted = script.dotted(node.func)
    return node if dotted in EXPS or (not dotted and not node.args) else None


def sum_of(script: Script, node: Any) -> ast.Call | None:
    """The exp in `exp(x).sum(...)` or `sum(exp(x))`."""
    node = value(script, node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sum":
        return None
    dotted = script.dotted(node.func)
    return exponential(script, node.func.value if not dotted else script.arg(node, 0))


def argument(call: ast.Call) -> Any:
    return call.args[0] if call.args else call.func.value  # type: ignore[attr-defined]


def same(first: ast.Call, second: ast.Call) -> bool:
    return ast.dump(argument(first)) == ast.dump(argument(second))


# exp(1 / t) leaves single precision below this temperature.
COLDEST = 1 / 88


def of_units(script: Script, node: ast.AST) -> bool:
    """Whether a product is one of unit vectors, and so between -1 and 1."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.MatMult):
        return False
    return any(verb(step.node) == "normalize" for step in trail(script, node.left, script.where(node), steps=40))


def bounded(script: Script, call: ast.Call) -> bool:
    """Whether the exponent has its maximum taken off, is a negative distance, or is small by nature."""
    inner = value(script, argument(call))
    said = ast.unparse(inner).lower() if isinstance(inner, ast.AST) else ""
    if isinstance(inner, ast.UnaryOp) or SMALL.search(said):
        return True
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Div) and of_units(script, inner.left):
        by = script.constant(inner.right)
        return not isinstance(by, float) or by > COLDEST
    return isinstance(inner, ast.BinOp) and (
        isinstance(inner.op, ast.Sub) or text(inner.left).startswith("-") or isinstance(inner.left, ast.UnaryOp)
    )
