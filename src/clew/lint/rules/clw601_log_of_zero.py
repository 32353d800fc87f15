"""The logarithm of something that can be zero.

What it sees: log of a softmax, a sigmoid, a mean or a clamp at zero, in torch or jax code, with nothing added and no
lower bound; log of one minus a probability, or of the one of both that the label picks.
Why it matters: softmax and sigmoid reach exactly zero in floating point once scores differ by about a hundred (in
half precision by about seventeen). One such number makes the loss infinite and the gradients NaN.
Silent when: something is added, the argument is clamped above zero, or the stable function is used.
Fix: log_softmax or logsigmoid, or a clamp with a lower bound that the type can hold.
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.value import Alternatives, Value

STABLE = {"softmax": "log_softmax", "sigmoid": "logsigmoid"}
LOGS = ("log", "log2", "log10")


@rule("CLW601", "log-of-zero", "num.log_of_zero", "likely", "log log2 log10")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls(*LOGS):
        dotted = script.dotted(call.func)
        if not dotted.startswith(("torch.log", "jax.numpy.log")) and (
            dotted or not isinstance(call.func, ast.Attribute)
        ):
            continue
        operand = script.operand(call) if not dotted.startswith("jax") else script.arg(call, 0)
        if operand is None:
            continue
        values = script.value(operand)
        if chosen(script, values) and in_graph(script, call):
            yield Hit(
                call,
                "a probability, or one minus it, can be exactly zero: clamp it, or compute from the logits.",
                "look",
            )
            continue
        names = {value.name.rsplit(".", 1)[-1] for value in values if value.kind == "made"}
        if len(names) != 1 or not all(value.kind == "made" for value in values):
            continue
        name = names.pop()
        if name in STABLE and in_graph(script, call):
            yield Hit(
                call,
                f"{name} can be exactly zero, and its logarithm is then infinite: {STABLE[name]} is the stable form.",
                "likely" if name == "softmax" and all(near(script, value, call) for value in values) else "look",
                fix(script, call, operand, name),
            )
        elif name == "relu" and in_graph(script, call):
            yield Hit(call, "relu outputs exact zeros, whose logarithm is infinite.")


def chosen(script: Script, values: Alternatives) -> bool:
    """`torch.where(y, p, 1 - p)` or `1 - p`, of what softmax or sigmoid gave."""
    return len(values) == 1 and picked(script, values[0])


def picked(script: Script, value: Value) -> bool:
    if value.where is None or value.where.block.scope.module is not script.module:
        return False
    if value.kind == "made" and value.const == "torch.where" and len(value.node.args) == 3:
        return all(probability(script, arg) for arg in value.node.args[1:])
    if value.kind == "binop" and isinstance(value.node, ast.BinOp) and isinstance(value.node.op, ast.Sub):
        return script.constant(value.node.left) == 1 and probability(script, value.node.right)
    return False


def probability(script: Script, node: ast.AST) -> bool:
    values = script.value(node)
    return all((value.kind == "made" and value.name in STABLE) or picked(script, value) for value in values)


def near(script: Script, value: Value, call: ast.Call) -> bool:
    """Whether the activation is applied in the same function; a model may have bounded its scores."""
    return value.where is not None and value.where.block.scope is script.scope(call)


def in_graph(script: Script, call: ast.Call) -> bool:
    """Whether gradients go through here; for an entropy that is only logged the infinity shows by itself."""
    if script.grad_off(script.where(call)) is not None:
        return False
    at: ast.AST | None = call
    while isinstance(at, ast.expr):
        if isinstance(at, ast.Attribute) and at.attr in ("item", "detach", "tolist", "numpy"):
            return False
        at = script.parent(at)
    return True


def fix(script: Script, call: ast.Call, operand: ast.AST, name: str) -> Fix | None:
    """torch.log(F.softmax(x, dim=1)) as F.log_softmax(x, dim=1)."""
    if name != "softmax" or not isinstance(operand, ast.Call) or not isinstance(operand.func, ast.Attribute):
        return None
    if operand.func.attr != "softmax" or script.dotted(call.func).startswith("jax"):
        return None
    made = script.source(operand)
    head = script.source(operand.func)
    return Fix(
        "use log_softmax", True, (script.replace(call, made.replace(head, head[: -len("softmax")] + "log_softmax", 1)),)
    )
