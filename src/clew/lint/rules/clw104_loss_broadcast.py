"""A column of predictions meets a flat row of targets.

What it sees: one side of a regression loss, of a difference that is squared or averaged, or of a comparison that is
counted, of shape (B, 1) and the other of shape (B,), as far as layers, unsqueeze, view, reductions, datasets and frames
in the file tell.
Why it matters: the two broadcast to (B, B). Every prediction is pulled towards the mean of all targets, the loss
still falls, and the model ends up predicting a constant.
Silent when: one of the two shapes is not certain.
Fix: squeeze the prediction along its last axis, or unsqueeze the target.
"""

import ast
from collections.abc import Iterator

from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.shapes import form

SHAPE = {"column": "(B, 1)", "flat": "(B,)"}
AFTER = ("pow", "square", "abs", "mean", "sum", "sqrt")


@rule("CLW104", "loss-broadcast", "loss.broadcast", "likely", "Linear unsqueeze view reshape gather keepdim backward")
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        if loss.wants == "values" and loss.prediction is not None and loss.target is not None:
            yield from compare(script, loss.node, loss.prediction, loss.target)
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Sub) and becomes_loss(script, node):
            yield from compare(script, node, node.left, node.right)
    for node in script.module.nodes.get(ast.Compare, []):
        if isinstance(node.ops[0], ast.Eq) and len(node.ops) == 1 and counted(script, node):
            yield from compare(script, node, node.left, node.comparators[0])
    for call in script.calls("eq"):
        if isinstance(call.func, ast.Attribute) and len(call.args) == 1 and counted(script, call):
            yield from compare(script, call, call.func.value, call.args[0])


def counted(script: Script, node: ast.AST) -> bool:
    """(pred == labels).sum(), .float().mean()"""
    above = script.parent(node)
    while isinstance(above, ast.Attribute) and above.attr in ("float", "double", "long", "int", "cpu", "detach"):
        above = script.parent(script.parent(above) or above)
    if isinstance(above, ast.Attribute):
        return above.attr in ("sum", "mean")
    return isinstance(above, ast.Call) and script.dotted(above.func) in ("torch.sum", "torch.mean", "numpy.mean")


def flat_label(script: Script, node: ast.AST) -> bool:
    """Whether a batch's labels, of which nothing else is known, are stood up for the loss elsewhere in the file, or met
    with predictions that were laid flat."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not script.dotted(node.func):
        if node.func.attr not in ("to", "cuda", "cpu", "float", "long", "int", "bool", "double", "byte"):
            return False
        node = node.func.value
    if not isinstance(node, ast.Name):
        return False
    for call in script.calls("unsqueeze", "view", "reshape"):
        base: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
        numbers = tuple(script.constant(arg) for arg in call.args)
        stands = isinstance(call.func, ast.Attribute) and call.func.attr == "unsqueeze"
        up = numbers in ((1,), (-1,)) if stands else numbers == (-1, 1)
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            base = base.func.value
        if up and isinstance(base, ast.Name) and base.id == node.id:
            return True
    for loss in loss_calls(script):
        if isinstance(loss.prediction, ast.Call) and isinstance(loss.prediction.func, ast.Attribute):
            laid = loss.prediction.func.attr in ("squeeze", "flatten", "ravel")
            target = loss.target
            while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                target = target.func.value
            if laid and isinstance(target, ast.Name) and target.id == node.id:
                return True
    return False


def compare(script: Script, node: ast.AST, left: ast.AST, right: ast.AST) -> Iterator[Hit]:
    where = script.where(node)
    first, second = form(script, left, where), form(script, right, where)
    if isinstance(node, ast.Compare | ast.Call) and not (first and second) and counted(script, node):
        # One side is a column; the labels beside it say elsewhere that they are not.
        if first == "column" and flat_label(script, right):
            second = "flat"
        elif second == "column" and flat_label(script, left):
            first = "flat"
    if first not in SHAPE:
        return
    if second in SHAPE and second != first:
        yield Hit(node, f"shapes {SHAPE[first]} and {SHAPE[second]} broadcast to (B, B): every pair is compared.")


def becomes_loss(script: Script, node: ast.BinOp) -> bool:
    """Whether a difference is squared, taken absolute or averaged at once."""
    above = script.parent(node)
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow):
        return True
    if isinstance(above, ast.Attribute):
        return above.attr in AFTER
    if isinstance(above, ast.Assign):
        return kept_for_loss(script, above)
    return isinstance(above, ast.Call) and script.dotted(above.func).rsplit(".", 1)[-1] in AFTER


def kept_for_loss(script: Script, made: ast.Assign) -> bool:
    """advantage = returns - values, and advantage.pow(2).mean() after."""
    target = made.targets[0]
    if "squared" not in script.known:
        powers = [node for node in script.module.nodes.get(ast.BinOp, []) if isinstance(node.op, ast.Pow)]
        found = [node.left for node in powers]
        found += [getattr(call.func, "value", None) for call in script.calls("pow", "square", "abs")]
        script.known["squared"] = {(node.id, script.scope(node)) for node in found if isinstance(node, ast.Name)}
    return isinstance(target, ast.Name) and (target.id, script.scope(made)) in script.known["squared"]
