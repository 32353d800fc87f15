"""A square root at zero, where its derivative is infinite.

What it sees: torch.sqrt of a squared error, a sum of squares or a variance in a loss, with nothing added under the
root.
Why it matters: at zero the derivative of the root is infinite, and infinity times the zero derivative of its argument
is NaN. It strikes when a prediction becomes exact, often late in training, or on padded, all-zero rows.
Silent when: something is added below the root, or gradients are off.
Fix: torch.sqrt(x + eps).
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.gradient import ends
from clew.lint.index import Scope
from clew.lint.model import Fix
from clew.lint.reach import heavy
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

BELOW = ("mse_loss", "var", "square")


@rule("CLW602", "sqrt-of-zero", "num.div_by_zero", "look", "sqrt")
def check(script: Script) -> Iterator[Hit]:
    told = script.mentions("backward", "training_step")
    told = told or any(LOSS.search(scope.name) for scope in script.module.scopes)
    if not told and not any("forward" in cls.methods and not heavy(cls) for cls in script.module.classes):
        return
    for call in script.calls("sqrt"):
        dotted = script.dotted(call.func)
        if dotted and dotted != "torch.sqrt":
            continue
        operand = script.operand(call)
        if operand is None or not risky(script, operand) or script.grad_off(script.where(call)) is not None:
            continue
        if reaches_loss(script, call):
            fix = (
                Fix("keep away from zero", False, (script.replace(operand, f"{script.source(operand)} + 1e-8"),))
                if dotted
                else None
            )
            yield Hit(call, "the derivative of sqrt at zero is infinite, and the gradient becomes NaN.", fix=fix)


def risky(script: Script, node: ast.AST) -> bool:
    values = script.value(node)
    return all(
        value.kind == "made"
        and (value.name in BELOW or (value.name == "torch.nn.MSELoss()") or squares(value.node, value.name))
        for value in values
    )


def squares(node: object, name: str) -> bool:
    """`((a - b) ** 2).sum()`."""
    return (
        name in ("sum", "mean")
        and isinstance(node, ast.Call)
        and any(word in ast.unparse(node) for word in ("** 2", ".pow(2)", ".square()", "square("))
        and "+ 1e" not in ast.unparse(node)
        and "eps" not in ast.unparse(node)
    )


def reaches_loss(script: Script, call: ast.Call) -> bool:
    """Whether the root is what backward is called on, directly or by name."""
    statement = script.statement(call)
    if isinstance(statement, ast.Return) and called_for_loss(script, script.scope(call)):
        return True
    if isinstance(statement, ast.Return | ast.Assign) and feeds(script, script.scope(call)):
        return True
    targets = {target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)}
    return any(
        call in set(ast.walk(end.node))
        or (isinstance(end.node, ast.Name) and end.node.id in targets and end.where.block.scope is script.scope(call))
        for end in ends(script)
    )


def feeds(script: Script, scope: Scope, deep: int = 3) -> bool:
    """Whether a function of the program computes a loss, or is called by one that does, or by the loop that steps."""
    if scope.kind != "function" or scope.name == "__init__":
        return False
    if scope.cls is not None and scope.name in ("forward", "__call__"):
        return bool(LOSS.search(scope.cls.name)) or (not heavy(scope.cls) and judged(scope))
    if LOSS.search(scope.name) and scope.returns and scope.cls is None:
        return True
    for call, where in script.project.callers(scope) if deep else ():
        if script.at_home(where).grad_off(where) is not None or METRIC.search(where.block.scope.name):
            continue
        kept = script.at_home(where).statement(call)
        named = kept.targets[0] if isinstance(kept, ast.Assign) else None
        if isinstance(named, ast.Name) and LOSS.search(named.id):
            return True
        if feeds(script, where.block.scope, deep - 1):
            return True
    return False


def judged(scope: Scope) -> bool:
    """A forward without layers of its own that is given two things and gives back one number is a loss."""
    last = scope.returns[-1][0] if scope.returns else None
    ends_so = isinstance(last, ast.Call) and isinstance(last.func, ast.Attribute) and last.func.attr in ("mean", "sum")
    return len(scope.params) > 2 and ends_so


LOSS = re.compile(r"loss|objective|criterion|penalty|stress|energy", re.I)
METRIC = re.compile(r"metric|eval|rmse|report|valid|test", re.I)


def called_for_loss(script: Script, scope: Scope) -> bool:
    """Whether backward is called on what a function returns, at once or by name."""
    for end in ends(script):
        node = end.node
        if isinstance(node, ast.Name):
            defs = end.where.block.scope.defs.get(node.id, [])
            node = defs[-1].value if defs and defs[-1].how == "=" and not defs[-1].path else node
        if helper(script, node, end.where) is scope:
            return True
    return False
