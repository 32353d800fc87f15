"""A loss is added up or collected as a tensor, with its graph.

What it sees: in a training loop, `total += loss`, `total = total + loss` or `losses.append(loss)` with a loss that
backward was called on, when the total is only reported.
Why it matters: each term keeps the graph that made it, so memory grows with every batch until it runs out, and each
step gets slower.
Silent when: the sum itself goes into backward, under no_grad, or the loss is detached or turned into a number.
Fix: loss.item(), or loss.detach() to avoid waiting for the device.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.gradient import HANDLERS
from clew.lint.index import Scope
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Loop, training


@rule("CLW216", "loss-kept-as-tensor", "train.graph_retained", "certain", "backward manual_backward")
def check(script: Script) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for loop in training(script).training():
        names = {text(given(event.node)) for event in loop.of("backward") if not event.through} - {""}
        if not names:
            continue
        scope = loop.block.scope
        for node, value, target in kept(script, loop):
            said = text(value)
            if said not in names or target in names or node in seen or differentiated(script, scope, target):
                continue
            if script.grad_off(script.where(node)) is None:
                seen.add(node)
                fix = Fix("keep only the number", True, (script.after(value, ".item()"),))
                yield Hit(node, f"{said} keeps its graph in {target}: memory grows with every batch.", fix=fix)

    yield from handed_over(script)


def handed_over(script: Script) -> Iterator[Hit]:
    """meter.add(loss, n), where the project's own method adds what it is given to an attribute."""
    for loop in training(script).training():
        names = {text(given(event.node)) for event in loop.of("backward") if not event.through} - {""}
        for call in loop.block.scope.calls:
            if call not in script.module.up or loop.block not in script.where(call).block.chain():
                continue
            for at, arg in enumerate(call.args):
                if (
                    text(arg) in names
                    and at < 4
                    and keeps(script, call, at)
                    and script.grad_off(script.where(call)) is None
                ):
                    fix = Fix("keep only the number", True, (script.after(arg, ".item()"),))
                    yield Hit(
                        call,
                        f"{text(arg)} keeps its graph in {text(call.func)}: memory grows with every batch.",
                        fix=fix,
                    )


def keeps(script: Script, call: ast.Call, at: int) -> bool:
    """Whether a method of the project adds its argument to an attribute, or appends it, as it is."""
    func = helper(script, call, script.where(call))
    if func is None and isinstance(call.func, ast.Name | ast.Attribute):
        owners = [value.cls for value in script.value(call.func) if value.kind == "instance" and value.cls is not None]
        func = owners[0].methods.get("__call__") if len(owners) == 1 else None
    if func is None or not func.me or at + 1 >= len(func.params):
        return False
    name = func.params[at + 1]
    if len(func.defs[name]) != 1:
        return False
    for node in ast.walk(func.node):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add) and text(node.target).startswith("self."):
            held = terms(node.value)
        elif isinstance(node, ast.Call) and text(node.func).startswith("self.") and text(node.func).endswith(".append"):
            held = node.args[:1]
        else:
            continue
        if any(text(part) == name for part in held):
            return True
    return False


def given(call: Any) -> Any:
    """What backward is called on."""
    base = call.func.value
    if call.args and HANDLERS.search(text(base)):
        return call.args[0]
    if isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr == "scale" and base.args:
        return base.args[0]
    return base


def kept(script: Script, loop: Loop) -> Iterator[tuple[ast.AST, Any, str]]:
    """Places in the loop where a name is added to another or collected, outside of calls that may detach it."""
    module = script.module
    for node in module.statements.get(ast.AugAssign, []):
        if isinstance(node.op, ast.Add) and loop.block in module.where(node).block.chain():
            for part in terms(node.value):
                yield node, part, text(node.target)
    for node in module.statements.get(ast.Assign, []):
        if (
            isinstance(node.value, ast.BinOp)
            and isinstance(node.value.op, ast.Add)
            and loop.block in module.where(node).block.chain()
        ):
            target = text(node.targets[0])
            if target and text(node.value.left) == target:
                yield node, node.value.right, target
        smoothed = node.value.orelse if isinstance(node.value, ast.IfExp) else node.value
        if isinstance(smoothed, ast.BinOp) and isinstance(smoothed.op, ast.Add):
            target = text(node.targets[0])
            sides = [side for side in (smoothed.left, smoothed.right) if isinstance(side, ast.BinOp)]
            inner = [[text(side.left), text(side.right)] for side in sides if isinstance(side.op, ast.Mult)]
            if target and len(inner) == 2 and target in inner[0] and loop.block in module.where(node).block.chain():
                yield from ((node, part, target) for part in (sides[1].left, sides[1].right) if text(part))
    for call in module.calls.get("append", []):
        if len(call.args) == 1 and loop.block in module.where(call).block.chain():
            yield call, call.args[0], text(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def terms(node: Any) -> list[Any]:
    """The loss itself, or scaled: `loss * n`, `loss / n`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return [node.left]
    return [node]


def differentiated(script: Script, scope: Scope, name: str) -> bool:
    """Whether the total itself is needed for gradients, or is detached after all."""
    if not name:
        return True
    for node in script.loads(name):
        if isinstance(node, ast.Name | ast.Attribute) and text(node) == name and isinstance(node.ctx, ast.Load):
            above = script.module.up[node]
            if isinstance(above, ast.Attribute) and above.attr in ("backward", "detach", "detach_", "data"):
                return True
            if isinstance(above, ast.Call) and above.func is not node and learned_from(script, above):
                return True
            if (
                isinstance(above, ast.Return)
                and scope.kind == "function"
                and scope.name in ("forward", "loss", "compute_loss", "closure")
            ):
                return True
            if isinstance(above, ast.BinOp) and into_loss(script, above):
                return True
    return False


def learned_from(script: Script, call: ast.Call) -> bool:
    """Whether what a call makes of the total, `torch.stack(losses)`, goes into backward, or out of sight."""
    name = text(call.func)
    if name.endswith((".backward", ".grad")):
        return True
    if not name.endswith((".stack", ".cat", "sum")) or name.startswith(("np.", "numpy.")):
        return False
    at: ast.AST | None = call
    while isinstance(at, ast.expr):
        if isinstance(at, ast.Attribute) and at.attr == "backward":
            return True
        at = script.parent(at)
    return isinstance(at, ast.Return) or into_loss(script, call)


def into_loss(script: Script, node: ast.AST) -> bool:
    statement = script.statement(node)
    names = [text(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    return any(name and any(text(given(call)) == name for call in script.calls("backward")) for name in names)
