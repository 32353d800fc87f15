"""A cast to integers takes away what the loss needs.

What it sees: long() or int() on the targets of a regression loss or of a binary cross-entropy, or on the predictions
of any loss.
Why it matters: fractions are cut off silently: a target of 0.7 becomes 0. A prediction that is cast has no gradient.
Usually the cast was added to silence a complaint about types, whose reason then stays.
Silent when: the loss wants class indices (cross-entropy, NLL), or the target is compared, not regressed.
Fix: cast the targets to the type of the predictions.
"""

import ast
from collections.abc import Iterator

from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

INTEGERS = ("long", "int", "short", "byte")


@rule("CLW606", "cast-hides-dtype", "data.labels_wrong_range", "likely", "long int byte short")
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        if loss.wants in ("values", "probabilities", "binary logits") and cast(loss.target):
            yield Hit(loss.target, f"{loss.name} regresses on these targets, and the cast cuts their fractions off.")
        if cast(loss.prediction):
            yield Hit(
                loss.prediction,
                "the prediction is cast to integers, which have no gradient.",
                cause="loss.disconnected",
            )


def cast(node: object) -> bool:
    """A cast that is the last thing done: `y.long()`, not `y.long().float()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in INTEGERS
        and not node.args
    )
