"""A method is named and not called.

What it sees: a line that only names zero_grad, step, backward, eval, train, cuda or unscale_, without parentheses.
Why it matters: the line does nothing and nothing warns. Dropout stays on in validation, gradients are never cleared,
or the model never moves.
Silent when: the expression is used for anything.
Fix: add the parentheses.
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

CAUSES = {
    "zero_grad": "train.missing_zero_grad",
    "step": "train.step_missing",
    "backward": "train.step_missing",
    "eval": "train.train_mode_in_eval",
    "train": "train.eval_mode_in_training",
    "unscale_": "train.clip_misplaced",
    "update": "num.low_precision",
    "cuda": "env.slowdown",
    "set_epoch": "data.not_shuffled",
}


@rule("CLW215", "method-not-called", "train.step_missing", "certain", " ".join(CAUSES))
def check(script: Script) -> Iterator[Hit]:
    for statement in script.module.statements.get(ast.Expr, []):
        node = statement.value
        if not isinstance(node, ast.Attribute) or node.attr not in CAUSES or not text(node):
            continue
        if node.attr == "update" and "scaler" not in text(node).lower():
            continue
        fix = Fix("call it", True, (script.after(node, "()"),)) if node.attr != "set_epoch" else None
        yield Hit(
            node, f"{text(node)} is named but not called: the line does nothing.", fix=fix, cause=CAUSES[node.attr]
        )
