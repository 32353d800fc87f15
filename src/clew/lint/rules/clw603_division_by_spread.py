"""Division by a deviation or norm that can be zero.

What it sees: `(x - x.mean()) / x.std()`, or x divided by its own norm or sum, in torch or jax code, with nothing
added.
Why it matters: a constant row, a batch of one or a reward that never varies has a deviation of zero (or, of one
sample, NaN). The division turns the whole batch into NaN.
Silent when: something is added to the divisor, it is clamped, or it is tested first.
Fix: add a small constant, 1e-8 for single precision.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.gradient import at as part_of
from clew.lint.index import Scope
from clew.lint.model import Fix
from clew.lint.reach import heavy
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW603", "division-by-spread", "num.div_by_zero", "look", "std norm")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch", "jnp", "jax"):
        return
    for node in script.module.nodes.get(ast.BinOp, []):
        if not isinstance(node.op, ast.Div):
            continue
        call = spread(script, node.right)
        if call is None or tested(script, node):
            continue
        subject = text(script.operand(call))
        if subject and subject in {text(part) for part in ast.walk(node.left)} and batch_of(script, node, call):
            fix = Fix(
                "keep away from zero", False, (script.replace(node.right, f"({script.source(node.right)} + 1e-8)"),)
            )
            yield Hit(
                node, f"divides by the spread of {subject}, which is zero when all its values are equal.", fix=fix
            )


def spread(script: Script, node: Any) -> ast.Call | None:
    """The std or norm that a divisor is, directly or by name."""
    if isinstance(node, ast.Name):
        where = script.where(node)
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        if len(made) != 1 or made[0].how != "=":
            return None
        node = part_of(made[0])
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Attribute)
        or node.func.attr not in ("std", "norm")
    ):
        return None
    dotted = script.dotted(node.func)
    return node if not dotted or dotted in ("torch.std", "torch.norm", "torch.linalg.norm", "jax.numpy.std") else None


def batch_of(script: Script, node: ast.BinOp, call: ast.Call) -> bool:
    """A normalisation of what comes in at run time: advantages, returns, rewards, a batch in a forward pass."""
    name = text(script.operand(call)).lower()
    words = ("adv", "return", "reward", "batch", "logit", "score", "value", "feat", "embed")
    deviation = isinstance(call.func, ast.Attribute) and call.func.attr == "std"
    scope = script.scope(call)
    in_forward = scope.name == "forward" and scope.cls is not None and bool(call.args or call.keywords)
    if deviation and in_forward and isinstance(node.left, ast.BinOp) and not layered(scope):
        return True
    if not deviation and scope.name == "forward" and scope.cls is not None:
        # x / x.norm(dim=1, keepdim=True): a row of zeros, after a ReLU or a padded one, has no length
        return bool(call.args or call.keywords) and text(node.left) == text(script.operand(call)) != ""
    return deviation and any(word in name for word in words) and isinstance(node.left, ast.BinOp)


def layered(scope: Scope) -> bool:
    """Whether the module has weights: what is normalised inside a network varies."""
    return scope.cls is not None and heavy(scope.cls)


def tested(script: Script, node: ast.AST) -> bool:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        if isinstance(at, ast.IfExp):
            return True
        at = script.parent(at)
    return any(block.kind in ("if", "else") for block in script.where(node).block.chain())
