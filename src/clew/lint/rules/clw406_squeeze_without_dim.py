"""squeeze() without an axis on a batch.

What it sees: squeeze() with no argument on the output of a model or a layer, in a training or validation loop, on its
way into a loss, or in a module whose last layer has one unit.
Why it matters: it drops every axis of size one, the batch axis too. The last batch of an epoch may hold one example;
then shapes change, a loss broadcasts silently, or the run stops after hours.
Silent when: an axis is given, or the value does not come from a model.
Fix: squeeze(-1), or the intended axis.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.index import Where
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
        dotted = script.dotted(call.func)
        method = isinstance(call.func, ast.Attribute) and not dotted and not call.args and not call.keywords
        function = dotted == "torch.squeeze" and len(call.args) == 1 and not call.keywords
        if not method and not function:
            continue
        base = call.args[0] if function else call.func.value  # type: ignore[attr-defined]
        direct = isinstance(base, ast.Call) and bool(applied(script, base))
        named = id(call) in losses and all(
            value.kind == "made" and value.name == "linear" for value in script.value(base)
        )
        given_back = single(script, call, base)
        looped = bool(script.where(call).block.loops())
        used = from_model(script, base, call)
        if (direct and id(call) in losses) or named or given_back or ((direct or used) and looped):
            whole = f"torch.squeeze({script.source(base)}, -1)" if function else f"{script.source(base)}.squeeze(-1)"
            fix = Fix("squeeze only the last axis", False, (script.replace(call, whole),))
            yield Hit(call, "drops every axis of size one, including the batch axis of a batch of one.", fix=fix)


def from_model(script: Script, base: ast.expr, call: ast.Call) -> bool:
    """out = model(x); out.squeeze(), where nothing else made it."""
    where = script.where(call)
    scope = where.block.scope
    defs = reaching(scope.defs[base.id], where) if isinstance(base, ast.Name) and base.id in scope.defs else []
    return bool(defs) and all(
        made.how == "=" and not made.path and isinstance(made.value, ast.Call) and bool(applied(script, made.value))
        for made in defs
    )


def single(script: Script, call: ast.Call, base: ast.expr) -> bool:
    """A method of a module squeezes what its last layer gave, and that layer has one unit."""
    scope = script.scope(call)
    if scope.kind != "function" or scope.cls is None or not script.is_module(scope.cls):
        return False
    if pooled(script, base, script.where(call)):
        return True
    values = script.value(base)
    owner = values[0].owner if len(values) == 1 and values[0].name == "linear" else None
    if owner is None or not isinstance(owner.node, ast.Call):
        return False
    at = 1 if owner.name.endswith("Linear") else -1
    home = script.at_home(owner.where) if owner.where is not None else script
    return bool(home.constant(script.arg(owner.node, at, "out_features")) == 1)


def pooled(script: Script, node: ast.expr, where: Where) -> bool:
    """self.pool(x).squeeze() with AdaptiveAvgPool2d(1): (B, C, 1, 1), and (1, C, 1, 1) for one example."""
    if isinstance(node, ast.Name):
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else node
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    values = script.value(node.func)
    return bool(values) and all(
        value.kind == "instance"
        and value.name.rsplit(".", 1)[-1].startswith(("AdaptiveAvgPool", "AdaptiveMaxPool"))
        and isinstance(value.node, ast.Call)
        and one_wide(script.arg(value.node, 0, "output_size"))
        for value in values
    )


def one_wide(node: object) -> bool:
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return all(isinstance(part, ast.Constant) and part.value == 1 for part in parts)


def squeezed(node: object) -> bool:
    """Two sides that are squeezed alike keep shapes that fit each other."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "squeeze"
