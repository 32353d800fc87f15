"""A column of predictions meets a flat row of targets.

What it sees: one side of a regression loss, or of a difference that is squared or averaged, of shape (B, 1) and the
other of shape (B,), as far as layers, unsqueeze, view, reductions, datasets and frames in the file tell.
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


def compare(script: Script, node: ast.AST, left: ast.AST, right: ast.AST) -> Iterator[Hit]:
    where = script.where(node)
    first = form(script, left, where)
    if first not in SHAPE:
        return
    second = form(script, right, where)
    if second in SHAPE and second != first:
        yield Hit(node, f"shapes {SHAPE[first]} and {SHAPE[second]} broadcast to (B, B): every pair is compared.")


def becomes_loss(script: Script, node: ast.BinOp) -> bool:
    """Whether a difference is squared, taken absolute or averaged at once."""
    above = script.parent(node)
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Pow):
        return True
    if isinstance(above, ast.Attribute):
        return above.attr in AFTER
    return isinstance(above, ast.Call) and script.dotted(above.func).rsplit(".", 1)[-1] in AFTER
