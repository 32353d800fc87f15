"""A value that autograd still needs is changed in place.

What it sees: `x += ...`, `x.add_(...)` or an assignment into a slice of x, after x was the output of exp, sigmoid,
tanh, softmax, sqrt or relu in a forward pass; `x -= ...` on an example that __getitem__ took out of a stored array.
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


@rule("CLW407", "inplace-on-saved-value", "train.inplace_corruption", "look", " ".join(sorted(SAVES | {"__getitem__"})))
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

        elif isinstance(node.target, ast.Name) and (kept := stored(script, node.target, node)):
            yield Hit(
                node,
                f"{node.target.id} is a view of {kept}: the stored example changes each time it is read.",
                "likely",
            )


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


def stored(script: Script, target: ast.Name, node: ast.AugAssign) -> str:
    """The array of a data set that a name in its __getitem__ is a view of: x = self.data[index]."""
    where = script.where(node)
    scope = where.block.scope
    if scope.name != "__getitem__" or scope.cls is None or len(scope.params) != 2 or target.id not in scope.defs:
        return ""
    # Only the first change: those after it are of the same view.
    made = [one for one in reaching(scope.defs[target.id], where) if one.node is not target]
    value = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if not isinstance(value, ast.Subscript) or text(value.slice) != scope.params[1]:
        return ""
    base = text(value.value)
    arrays = script.value(value.value) if base.startswith(f"{scope.me}.") and base.count(".") == 1 else ()
    if not arrays or not all(array_of(one.const) for one in arrays):
        return ""
    return base


def array_of(made: object) -> bool:
    return isinstance(made, str) and made.startswith(("torch.", "numpy.")) and made not in ("torch.load", "numpy.load")
