"""The forward pass of training runs without gradients.

What it sees: backward, or the whole loss that backward is called on, under no_grad or inference_mode, as a block or
as a decorator.
Why it matters: no graph is recorded. Autograd raises, or, once requires_grad is forced on the loss, every step leaves
the parameters alone.
Silent when: only parts of the loss are computed without gradients (targets, teachers), or enable_grad lies between.
Fix: move the forward pass out of the block.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.conditions import Known
from clew.lint.flow import reaching
from clew.lint.gradient import ends
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Loop, trained, training


@rule(
    "CLW218", "no-grad-in-training", "train.no_grad_in_training", "certain", "no_grad inference_mode set_grad_enabled"
)
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason == "no_grad":
            yield Hit(end.cut.node, "the loss that backward is called on is computed here, without a graph.")
            continue
        off = script.grad_off(end.where) or switched(script, end.node, end.where)
        if off is not None and end.where.block.scope.name not in ("training_step", "compute_loss"):
            yield Hit(off, "backward is called under this: no gradient is recorded.")

    for loop in training(script).training():
        if loop.has("step", "scaler_step") and not any(event.through for event in loop.of("backward")):
            for name in sorted(trained(script, loop)):
                off = always_off(script, loop, name)
                if off is not None:
                    yield Hit(
                        off,
                        f"{name} is in the optimiser, and runs under this in every step: it gets no gradient.",
                        "likely",
                    )


def switched(script: Script, node: Any, where: Where) -> ast.AST | None:
    """The switch by a condition that the loss was computed under, when it is off on every way to backward."""
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    known = Known(where)
    for made in reaching(defs, where) if defs else []:
        for block in made.where.block.chain():
            for item in block.node.items if isinstance(block.node, ast.With) and block.kind == "with" else ():
                call = item.context_expr
                if not isinstance(call, ast.Call) or text(call.func).rsplit(".", 1)[-1] != "set_grad_enabled":
                    continue
                given = script.arg(call, 0, "mode")
                if given is not None and known.truth(given) is False:
                    return call
    return None


def always_off(script: Script, loop: Loop, name: str) -> ast.AST | None:
    """The no_grad that all applications of a trained model in a loop lie under."""
    found: ast.AST | None = None
    for node in script.loads(name):
        if not isinstance(node, ast.Name | ast.Attribute) or text(node) != name:
            continue
        where = script.where(node)
        if where.block.scope is not loop.block.scope or loop.block not in where.block.chain():
            continue
        above = script.module.up[node]
        if isinstance(above, ast.Attribute) and above.attr in ("train", "parameters", "zero_grad", "eval"):
            continue
        off = script.grad_off(where)
        if off is None or not (isinstance(above, ast.Call) and above.func is node):
            return None
        found = off
    return found
