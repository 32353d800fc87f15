"""Held-out data is shuffled.

What it sees: a DataLoader of val or test data with shuffle=True, where labels or ids are read off the data set itself,
in its own order, beside the predictions, where predictions are laid beside the rows that the data set was made of, or
where only some batches are looked at.
Why it matters: a score over all data does not change, but predictions no longer line up with the data set, and a
score over the first batches changes from run to run.
Silent when: the whole set is averaged, which is the usual case, or the loader feeds plots only.
Fix: shuffle=False.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import HELD_OUT, TRAIN, loaders
from clew.lint.index import Scope
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import root, trail

LABELS = ("targets", "labels", "y", "ys", "samples", "imgs", "classes_", "label", "df", "frame", "ids", "filenames")


@rule("CLW516", "validation-shuffled", "data.train_val_mismatch", "look", "DataLoader")
def check(script: Script) -> Iterator[Hit]:
    for call, name in loaders(script):
        last = name.rsplit(".", 1)[-1]
        shuffle = script.arg(call, 2, "shuffle")
        if shuffle is None or script.constant(shuffle) is not True:
            continue
        matched = by_position(script, name, call) or written_beside(script, call)
        data = text(script.arg(call, 0, "dataset")).rsplit(".", 1)[-1]
        said = next((word for word in (last, data) if HELD_OUT.search(word) and not TRAIN.search(word)), "")
        if not said and not (matched and predicts(script, call) and not TRAIN.search(f"{last} {data}")):
            continue
        if matched or cut_short(script, name):
            fix = Fix("keep the order", False, (script.replace(shuffle, "False"),))
            why = "predictions are matched with labels by position" if matched else "only some of its batches are read"
            cause = "data.labels_misaligned" if matched else ""
            yield Hit(shuffle, f"{said or last} is shuffled, and {why}.", fix=fix, cause=cause)


def written_beside(script: Script, call: ast.Call) -> bool:
    """df["pred"] = predict(model, loader), zip(names, preds), DataFrame({"id": ids, "p": preds}): what comes out of the
    loader is laid beside what went into its data set, row by row."""
    scope = script.scope(call)
    data = script.arg(call, 0, "dataset")
    names = {part.id for part in origins(data, scope) if part.id in scope.defs} - OTHERS
    names |= {f"y{name[1:]}" for name in names if name[:1] in "xX"} & set(scope.defs)
    if not names or not predicts(script, call):
        return False
    found: list[tuple[str, ast.expr]] = [
        (root(target), value)
        for target, value, at in script.module.subscript_sets
        if at.block.scope is scope and isinstance(value, ast.expr) and isinstance(target.slice, ast.Constant)
    ]
    for other in scope.calls:
        last = text(other.func).rsplit(".", 1)[-1]
        table = other.args[0] if last == "DataFrame" and other.args else None
        parts: list[ast.expr] = list(table.values) if isinstance(table, ast.Dict) else []
        parts = list(other.args) if last in ("zip", "assign", "insert") or METRIC.search(last) else parts
        if last == "assign":
            base = root(other.func)
            found += [(base, word.value) for word in other.keywords]
        beside = {root(part.func if isinstance(part, ast.Call) else part): part for part in parts}
        for name in beside:
            found += [(name, part) for other_name, part in beside.items() if other_name != name]
    for name in list(scope.defs):
        # ids = [row["id"] for row in rows]
        made = [one.value for one in scope.defs[name] if one.how == "=" and isinstance(one.value, ast.AST)]
        if made and names & {part.id for one in made for part in ast.walk(one) if isinstance(part, ast.Name)}:
            names = names | {name} if not any(loaded(one, call) for one in made) else names
    for name, value in found:
        if name in names and any(step.node is call for step in trail(script, value, script.where(value), steps=120)):
            return True
    return False


def loaded(node: ast.AST, call: ast.Call) -> bool:
    return any(part is call for part in ast.walk(node))


def origins(node: object, scope: Scope, deep: int = 3) -> Iterator[ast.Name]:
    """The names that a data set is made from, and those that these were taken from."""
    for part in ast.walk(node) if isinstance(node, ast.AST) else ():
        if isinstance(part, ast.Name):
            yield part
            for made in scope.defs.get(part.id, []) if deep else ():
                if made.how == "=" and isinstance(made.value, ast.Call | ast.Attribute | ast.Subscript):
                    yield from origins(made.value, scope, deep - 1)


OTHERS = frozenset(("self", "model", "net", "device", "args", "cfg", "tf", "transform"))


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
