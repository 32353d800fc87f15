"""An epsilon that the type rounds to zero.

What it sees: a constant below 6e-8 added or used as a lower bound, or as Adam's eps, for values or a model that were
cast to half precision in the same function.
Why it matters: the smallest positive number of float16 is about 6e-8, so 1e-8 becomes zero and protects nothing. With
Adam, eps = 1e-8 in half precision divides by zero on the first small gradient.
Silent when: the value is single precision or bfloat16, which has the range of single precision.
Fix: 1e-6 or larger, or compute in single precision.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

SMALLEST = 6e-8


@rule("CLW604", "eps-too-small", "num.low_precision", "likely", "half float16")
def check(script: Script) -> Iterator[Hit]:
    yield from added(script)
    yield from in_optimizer(script)


def added(script: Script) -> Iterator[Hit]:
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Add) and tiny(node.right) and halved(script, node.left):
            yield Hit(node.right, "is zero in float16, whose smallest positive number is about 6e-8.")
    for call in script.calls("clamp", "clamp_min"):
        given = script.arg(call, 0 if not script.dotted(call.func) else 1, "min")
        operand = script.operand(call)
        if given is not None and tiny(given) and operand is not None and halved(script, operand):
            yield Hit(given, "is zero in float16, whose smallest positive number is about 6e-8.")


def tiny(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value < SMALLEST


def halved(script: Script, node: ast.AST, deep: int = 4) -> bool:
    """Whether a value was cast to half precision, also some operations before."""
    if deep == 0:
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "half":
            return True
        if node.func.attr in ("float", "double"):
            return False
        if any(
            "float16" in text(arg) and "bfloat16" not in text(arg)
            for arg in (*node.args, *(word.value for word in node.keywords))
        ):
            return True
        return halved(script, node.func.value, deep - 1)
    if isinstance(node, ast.BinOp):
        return halved(script, node.left, deep - 1)
    if isinstance(node, ast.Name):
        scope = script.scope(node)
        defs = [made for made in scope.defs.get(node.id, []) if made.how == "=" and not made.path]
        return len(defs) == 1 and halved(script, defs[0].value, deep - 1)
    return False


def in_optimizer(script: Script) -> Iterator[Hit]:
    halves = {
        text(call.func.value)
        for call in script.calls("half")
        if isinstance(call.func, ast.Attribute) and isinstance(script.parent(call), ast.Expr | ast.Assign)
    }
    for call, dotted in script.calls_to("torch.optim.", "Adam", "AdamW", "RMSprop", "Adagrad"):
        given = script.arg(call, 0, "params")
        eps = script.arg(call, -1, "eps")
        owner = text(given.func.value) if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else ""
        if owner and owner in halves and (eps is None or tiny(eps)):
            yield Hit(
                call,
                f"{dotted.rsplit('.', 1)[-1]} works on half-precision weights with an eps that is zero in float16.",
            )
