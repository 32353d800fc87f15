"""Held-out data is shuffled.

What it sees: a DataLoader named val or test with shuffle=True, in a file where its batches or predictions are matched
by position or only some batches are looked at.
Why it matters: a score over all data does not change, but predictions no longer line up with the data set, and a
score over the first batches changes from run to run.
Silent when: the whole set is averaged, which is the usual case, or the loader feeds plots only.
Fix: shuffle=False.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import HELD_OUT, TRAIN, loaders
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW516", "validation-shuffled", "data.train_val_mismatch", "look", "DataLoader")
def check(script: Script) -> Iterator[Hit]:
    for call, name in loaders(script):
        last = name.rsplit(".", 1)[-1]
        shuffle = script.arg(call, 2, "shuffle")
        if not HELD_OUT.search(last) or TRAIN.search(last) or shuffle is None or script.constant(shuffle) is not True:
            continue
        if by_position(script, name, call) or cut_short(script, name):
            fix = Fix("keep the order", False, (script.replace(shuffle, "False"),))
            yield Hit(shuffle, f"{last} is shuffled, and its batches are matched by position or cut short.", fix=fix)


def by_position(script: Script, name: str, call: ast.Call) -> bool:
    """Whether predictions are put beside the data set itself."""
    data = script.arg(call, 0, "dataset")
    said = text(data)
    if not said:
        return False
    return any(
        isinstance(node.value, ast.Name | ast.Attribute)
        and text(node.value) in (f"{said}.targets", f"{said}.labels", f"{name}.dataset.targets")
        for node in script.module.nodes.get(ast.Subscript, [])
    )


def cut_short(script: Script, name: str) -> bool:
    """Whether a loop over the loader ends early."""
    return any(
        bool(name) and name in ast.unparse(node.iter) and any(isinstance(part, ast.Break) for part in ast.walk(node))
        for node in script.module.statements.get(ast.For, [])
    )
