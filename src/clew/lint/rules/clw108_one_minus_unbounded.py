"""One minus something that has no upper bound.

What it sees: `1 - x` where x is a squared or absolute error, a cross-entropy, a divergence, a perplexity or a
signal-to-noise ratio.
Why it matters: as a loss it goes to minus infinity as the model gets worse; as a score it goes negative. `1 - x`
turns a similarity between 0 and 1 into a distance, and nothing else.
Silent when: x is a similarity, an accuracy, an overlap, or is clamped.
Fix: minimise the error itself, or divide by the variance first if an explained share is meant.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.losses import WANTS, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

METRIC = re.compile(r"(^|_)(psnr|perplexity|ppl|mse|rmse|mae|nll|cross_entropy)(_loss|_score)?$", re.I)


@rule(
    "CLW108",
    "one-minus-unbounded",
    "loss.wrong_for_task",
    "likely",
    "mse_loss l1_loss cross_entropy kl_div psnr MSELoss L1Loss CrossEntropyLoss KLDivLoss HuberLoss criterion mse",
)
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch"):
        return
    losses = {loss.node: loss.name for loss in loss_calls(script) if loss.name in WANTS}
    for node in script.module.nodes.get(ast.BinOp, []):
        if (
            not isinstance(node.op, ast.Sub)
            or not isinstance(node.left, ast.Constant)
            or node.left.value not in (1, 1.0)
        ):
            continue
        right = node.right
        if isinstance(right, ast.Call) and right in losses:
            yield Hit(node, f"{losses[right]} has no upper bound, so one minus it has no lower bound.")
        elif (
            isinstance(right, ast.Call)
            and METRIC.search(text(right.func).rsplit(".", 1)[-1])
            and (becomes_loss(script, node) or in_loss(script, node))
        ):
            yield Hit(node, f"{text(right.func)} has no upper bound, so one minus it has no lower bound.", "look")


def in_loss(script: Script, node: ast.AST) -> bool:
    """Whether it stands in the forward of a class that is called a loss, or in a function of that name."""
    scope = script.scope(node)
    cls = script.class_of(scope)
    return "loss" in scope.name.lower() or (cls is not None and "loss" in cls.name.lower())


def becomes_loss(script: Script, node: ast.AST) -> bool:
    statement = script.statement(node)
    names = [text(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    return any("loss" in name for name in names) or isinstance(statement, ast.Return)
