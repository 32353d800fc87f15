"""Held-out data is shuffled.

What it sees: a DataLoader of val or test data with shuffle=True, where labels or ids are read off the data set itself,
in its own order, beside the predictions, or where only some batches are looked at.
Why it matters: a score over all data does not change, but predictions no longer line up with the data set, and a
score over the first batches changes from run to run.
Silent when: the whole set is averaged, which is the usual case, or the loader feeds plots only.
Fix: shuffle=False.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import HELD_OUT, TRAIN, loaders
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

LABELS = ("targets", "labels", "y", "ys", "samples", "imgs", "classes_", "label", "df", "frame", "ids", "filenames")


@rule("CLW516", "validation-shuffled", "data.train_val_mismatch", "look", "DataLoader")
def check(script: Script) -> Iterator[Hit]:
    for call, name in loaders(script):
        last = name.rsplit(".", 1)[-1]
        shuffle = script.arg(call, 2, "shuffle")
        if shuffle is None or script.constant(shuffle) is not True:
            continue
        matched = by_position(script, name, call)
        data = text(script.arg(call, 0, "dataset")).rsplit(".", 1)[-1]
        said = next((word for word in (last, data) if HELD_OUT.search(word) and not TRAIN.search(word)), "")
        if not said and not (matched and predicts(script, call) and not TRAIN.search(f"{last} {data}")):
            continue
        if matched or cut_short(script, name):
            fix = Fix("keep the order", False, (script.replace(shuffle, "False"),))
            why = "predictions are matched with labels by position" if matched else "only some of its batches are read"
            cause = "data.labels_misaligned" if matched else ""
            yield Hit(shuffle, f"{said or last} is shuffled, and {why}.", fix=fix, cause=cause)


def predicts(script: Script, call: ast.Call) -> bool:
    """Whether the function only reads the data: nothing trains in it."""
    return not any(
        isinstance(one.func, ast.Attribute) and one.func.attr in ("backward", "step", "fit")
        for one in script.scope(call).calls
    )


def by_position(script: Script, name: str, call: ast.Call) -> bool:
    """Whether labels or names are read off the data set itself, in its own order, where the loader is made or used."""
    data = script.arg(call, 0, "dataset")
    said = text(data)
    scope = script.scope(call)
    kept = {text(target) for target, value, _ in scope.attr_sets if said and text(value) == said}
    sources = ({said, f"{name}.dataset"} | kept) - {""}
    for node in script.module.up:
        read = isinstance(node, ast.Attribute) and node.attr in LABELS and text(node.value) in sources
        if read and (script.scope(node) is scope or script.class_of(scope) is not None):
            return True
    arrays = given_arrays(script, data)
    # The arrays that the data set was made of, compared with what came out of the loader.
    for other in scope.calls if arrays else ():
        last = text(other.func).rsplit(".", 1)[-1]
        if METRIC.search(last) and any(text(arg) in arrays for arg in other.args):
            return True
    return any(
        isinstance(node.left, ast.Name)
        and isinstance(node.comparators[0], ast.Name)
        and {node.left.id, node.comparators[0].id} & arrays
        for node in script.module.nodes.get(ast.Compare, [])
        if arrays and script.scope(node) is scope and isinstance(node.ops[0], ast.Eq)
    )


def given_arrays(script: Script, data: object) -> set[str]:
    """y of TensorDataset(x, y) or of a data set of the project."""
    if isinstance(data, ast.Name):
        defs = script.defs(data.id, script.scope(data))
        data = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    args = data.args[1:] if isinstance(data, ast.Call) and text(data.func).rsplit(".", 1)[-1][:1].isupper() else []
    known = ("torch", "np", "numpy", "jnp")
    return {part.id for arg in args for part in ast.walk(arg) if isinstance(part, ast.Name) and part.id not in known}


METRIC = re.compile(r"_score$|_matrix$|_report$|^accuracy|^(mean|root)_|_error$|_loss$|^(mse|mae|rmse|auc|f1)$", re.I)


def cut_short(script: Script, name: str) -> bool:
    """Whether a loop over the loader ends early."""
    return any(
        bool(name) and name in ast.unparse(node.iter) and any(isinstance(part, ast.Break) for part in ast.walk(node))
        for node in script.module.statements.get(ast.For, [])
    )
