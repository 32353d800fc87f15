"""Training data is scaled, held-out data is not.

What it sees: after train_test_split the training part goes through fit_transform or fit of a scaler, an imputer or a
projection, nothing in the function transforms the held-out part, and the held-out part is used.
Why it matters: the model is judged on numbers of another size than it has seen. The validation score is bad for a
reason that no training curve shows.
Silent when: the object also transforms something else, is put into a pipeline, or leaves the function.
Fix: transform the held-out part with the object that was fitted on the training part.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import HELD_OUT, MILD, TRAIN, Split, learner, roots, splits
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW519", "held-out-not-transformed", "data.train_val_mismatch", "likely", "train_test_split")
def check(script: Script) -> Iterator[Hit]:
    for split in splits(script):
        train = [name for name in split.made if TRAIN.search(name) and not HELD_OUT.search(name)]
        out = [name for name in split.made if HELD_OUT.search(name) and not TRAIN.search(name)]
        if len(train) != 2 or len(out) != 2 or len(split.made) != 4:
            continue
        for call in script.calls("fit_transform", "fit"):
            if script.scope(call) is not split.where.block.scope or not isinstance(call.func, ast.Attribute):
                continue
            given = script.arg(call, 0, "X")
            kind = learner(script, call.func.value) if given is not None and roots(given)[:1] == [split.made[0]] else ""
            name = text(call.func.value)
            if kind and kind not in MILD and name and "." not in name and goes_plain(script, name, split):
                yield Hit(call, f"{kind} transforms {split.made[0]}, but {split.made[1]} is used untransformed.")
                break


def goes_plain(script: Script, name: str, split: Split) -> bool:
    """Whether the object transforms nothing else, stays here, and the held-out part is used."""
    for node in script.loads(name):
        if text(node) != name:
            continue
        above = script.parent(node)
        if not isinstance(above, ast.Attribute) or above.attr not in ("fit", "mean_", "scale_"):
            moved = isinstance(above, ast.Attribute) and above.attr in ("transform", "fit_transform")
            call = script.parent(above) if above is not None and moved else None
            if not isinstance(call, ast.Call) or not call.args or roots(call.args[0])[:1] != [split.made[0]]:
                return False
    scope = split.where.block.scope
    return any(script.scope(node) is scope for node in script.loads(split.made[1]) if isinstance(node, ast.Name))
