"""squeeze() without an axis on a batch.

What it sees: squeeze() with no argument on the output of a model or a layer, in a training or validation loop, or on
its way into a loss.
Why it matters: it drops every axis of size one, the batch axis too. The last batch of an epoch may hold one example;
then shapes change, a loss broadcasts silently, or the run stops after hours.
Silent when: an axis is given, or the value does not come from a model.
Fix: squeeze(-1), or the axis that is meant.
"""

import ast
from collections.abc import Iterator

from clew.lint.losses import loss_calls
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.validation import applied


@rule("CLW406", "squeeze-without-dim", "loss.broadcast", "look", "squeeze")
def check(script: Script) -> Iterator[Hit]:
    losses = {
        id(part)
        for loss in loss_calls(script)
        for side, other in ((loss.prediction, loss.target), (loss.target, loss.prediction))
        if side is not None and not squeezed(other)
        for part in ast.walk(side)
    }
    for call in script.calls("squeeze"):
        if not isinstance(call.func, ast.Attribute) or call.args or call.keywords or script.dotted(call.func):
            continue
        base = call.func.value
        direct = isinstance(base, ast.Call) and bool(applied(script, base))
        named = id(call) in losses and all(
            value.kind == "made" and value.name == "linear" for value in script.value(base)
        )
        given_back = isinstance(script.parent(call), ast.Return) and single(script, call, base)
        if (direct and id(call) in losses) or named or given_back or (direct and script.where(call).block.loops()):
            fix = Fix(
                "squeeze the last axis only", False, (script.replace(call, f"{script.source(base)}.squeeze(-1)"),)
            )
            yield Hit(
                call, "drops every axis of size one: with a batch of one example the batch axis goes too.", fix=fix
            )


def single(script: Script, call: ast.Call, base: ast.expr) -> bool:
    """forward returns self.head(x).squeeze(), where the last layer has one unit."""
    scope = script.scope(call)
    if scope.name != "forward" or scope.cls is None or not script.is_module(scope.cls):
        return False
    values = script.value(base)
    made = values[0].owner.node if len(values) == 1 and values[0].name == "linear" and values[0].owner else None
    return isinstance(made, ast.Call) and script.constant(script.arg(made, 1, "out_features")) == 1


def squeezed(node: object) -> bool:
    """Two sides that are squeezed alike keep shapes that fit each other."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "squeeze"
