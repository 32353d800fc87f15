"""A non-differentiable step is between the model and the loss.

What it sees: all of what `backward` is called on comes through argmax, sign, rounding, a comparison or a cast to
integers.
Why it matters: such a step has no slope, or none but zero. Either autograd refuses, or, once requires_grad is forced,
it does nothing at all: the loss is printed and never falls.
Silent when: the step is only used for a metric. When other terms of the sum have a gradient, only the term without
one is named.
Fix: compute the loss on scores or probabilities, and keep argmax for the metric.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.gradient import cut, ends
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

SAYS = {
    "argmax": "argmax has no gradient",
    "round": "rounding has no gradient",
    "integer": "integers carry no gradient",
    "compare": "a comparison has no gradient",
}


@rule("CLW110", "loss-not-differentiable", "loss.disconnected", "certain", "backward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason in SAYS:
            yield Hit(
                loss_line(end.cut.node, end.node, script),
                f"{SAYS[end.cut.reason]}, and the whole loss passes through it.",
            )
        elif end.cut is None:
            for part in terms(script, end.node, end.where):
                stopped = cut(script, part, script.where(part))
                if stopped is not None and stopped.reason in SAYS:
                    yield Hit(stopped.node, f"{SAYS[stopped.reason]}: this loss term trains no parameter.", "likely")


def terms(script: Script, node: Any, where: Where, deep: int = 4) -> list[Any]:
    """The terms of a loss that is a sum, in this function."""
    scope = where.block.scope
    if deep and isinstance(node, ast.Name) and node.id in scope.defs:
        made = reaching(scope.defs[node.id], where)
        if len(made) == 1 and made[0].how == "=" and not made[0].path and isinstance(made[0].value, ast.BinOp):
            return terms(script, made[0].value, made[0].where, deep - 1)
    if deep and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return terms(script, node.left, where, deep - 1) + terms(script, node.right, where, deep - 1)
    return [node] if node in script.module.up else []


def loss_line(node: object, end: object, script: Script) -> object:
    """The statement that computes the loss from what has no gradient reads better than the cut itself."""
    where = script.where(end)  # type: ignore[arg-type]
    name = getattr(end, "id", "")
    if name in where.block.scope.defs:
        made = reaching(where.block.scope.defs[name], where)
        if len(made) == 1 and made[0].how == "=":
            return made[0].value
    return node
