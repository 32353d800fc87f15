"""Softmax over the examples of a batch instead of over the classes.

What it sees: softmax or log_softmax with dim=0 on the output of a linear layer, or on logits beside others that the
same function takes over the last axis.
Why it matters: the examples of a batch then compete with each other. Each prediction depends on its neighbours, and
single examples always get probability one.
Silent when: the axis is not zero, or the input is not the output of a layer. A model that is fed single, unbatched
examples is right to use 0: then suppress this.
Fix: take the last axis, dim=-1.
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule("CLW106", "class-axis-is-batch-axis", "loss.wrong_dim", "look", "softmax log_softmax Softmax LogSoftmax")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("softmax", "log_softmax"):
        dotted = script.dotted(call.func)
        if dotted and not dotted.startswith("torch."):
            continue
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        if operand is None or given is None or script.constant(given) != 0 or script.constant(given) is False:
            continue
        values = script.value(operand)
        if beside(script, call, operand) or all(value.kind == "made" and value.name == "linear" for value in values):
            fix = Fix("take the last axis", False, (script.replace(given, "-1"),))
            yield Hit(
                call, "softmax over axis 0 lets the examples of a batch compete; classes lie on the last axis.", fix=fix
            )
    for call, _ in script.calls_to("torch.nn.", "Softmax", "LogSoftmax"):
        given = script.arg(call, 0, "dim")
        if given is not None and script.constant(given) == 0 and in_sequence(script, call):
            fix = Fix("take the last axis", False, (script.replace(given, "-1"),))
            yield Hit(
                call, "softmax over axis 0 lets the examples of a batch compete; classes lie on the last axis.", fix=fix
            )


def beside(script: Script, call: ast.Call, operand: ast.AST) -> bool:
    """Whether the same function takes other logits over the last axis, as when a student is held against a teacher."""
    if "logits" not in ast.unparse(operand).lower():
        return False
    for other in script.scope(call).calls:
        name = other.func.attr if isinstance(other.func, ast.Attribute) else ""
        if other is call or name not in ("softmax", "log_softmax"):
            continue
        dotted = script.dotted(other.func)
        axis = script.constant(script.arg(other, 1 if dotted else 0, "dim"))
        inner = script.operand(other)
        if axis in (1, -1) and axis is not True and inner is not None and "logits" in ast.unparse(inner).lower():
            return True
    return False


def in_sequence(script: Script, call: object) -> bool:
    """Whether the layer ends a Sequential that begins with others."""
    above = script.parent(call)  # type: ignore[arg-type]
    args = getattr(above, "args", [])
    return len(args) > 1 and args[-1] is call
