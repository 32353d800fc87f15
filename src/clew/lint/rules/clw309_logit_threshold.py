"""Raw scores are compared with one half.

What it sees: the output of a network's last linear layer, compared with 0.5 where predictions are counted, in a file
whose loss takes raw scores.
Why it matters: a raw score of 0.5 is a probability of 0.62. The threshold is in the wrong place, and accuracy,
precision and recall are those of another classifier.
Silent when: a sigmoid stands between, or the network is not in sight.
Fix: compare with 0, or apply the sigmoid first.
"""

import ast
from collections.abc import Iterator

from clew.lint.losses import activation, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule(
    "CLW309",
    "logit-threshold",
    "loss.metric_misaligned",
    "likely",
    "BCEWithLogitsLoss binary_cross_entropy_with_logits",
)
def check(script: Script) -> Iterator[Hit]:
    if not any(loss.wants == "binary logits" for loss in loss_calls(script)):
        return
    for node in script.module.nodes.get(ast.Compare, []):
        half = len(node.ops) == 1 and isinstance(node.ops[0], ast.Gt | ast.GtE)
        if not half or script.constant(node.comparators[0]) != 0.5:
            continue
        last = activation(script, script.value(node.left))
        if last is not None and last[0] == "linear":
            yield Hit(node, "0.5 is the threshold for probabilities; these are raw scores, whose threshold is 0.")
