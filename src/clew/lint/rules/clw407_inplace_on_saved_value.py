"""A value that autograd still needs is changed in place.

What it sees: `x += ...`, `x.add_(...)` or an assignment into a slice of x, after x was the output of exp, sigmoid,
tanh, softmax, sqrt or relu in a forward pass; an in-place update of a parameter outside of no_grad.
Why it matters: these operations compute their gradient from their own output. Autograd notices most of these cases
when backward runs; those through .data it does not, and the gradients are wrong.
Silent when: the value is a copy, or gradients are off.
Fix: write x = x + ..., or clone first.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

SAVES = frozenset("exp sigmoid tanh softmax log_softmax sqrt rsqrt reciprocal".split())


@rule("CLW407", "inplace-on-saved-value", "train.inplace_corruption", "look", " ".join(sorted(SAVES)))
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.AugAssign, []):
        if isinstance(node.target, ast.Name) and saved(script, node.target, node):
            left, op = node.target.id, OPS.get(type(node.op))
            fix = (
                Fix(
                    "compute a new tensor",
                    True,
                    (script.replace(node, f"{left} = {left} {op} ({script.source(node.value)})"),),
                )
                if op
                else None
            )
            yield Hit(node, f"changes {left} in place, but its gradient is computed from this very output.", fix=fix)


OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def saved(script: Script, target: ast.Name, node: ast.AugAssign) -> bool:
    where = script.where(node)
    scope = where.block.scope
    if scope.kind != "function" or script.grad_off(where) is not None or target.id not in scope.defs:
        return False
    made = reaching(scope.defs[target.id], where)
    made = [one for one in made if one.node is not target]
    if len(made) != 1 or made[0].how != "=" or made[0].path or not isinstance(made[0].value, ast.Call):
        return False
    cls = script.class_of(scope)
    if cls is None or not script.is_module(cls) or scope.name != "forward":
        return False
    value = script.value(made[0].value)
    direct = all(one.kind == "made" and one.name in SAVES and one.node is made[0].value for one in value)
    return direct and text(target) != ""
