"""Rows are oversampled before the split.

What it sees: SMOTE, RandomOverSampler or another resampler, sklearn's resample or a sample with replacement, or copies
of every row that are flipped, rotated, noised or repeated, in data that train_test_split, random_split,
cross-validation or slices then divide.
Why it matters: copies and mixtures of held-out rows are in the training part. The score is far too good and falls apart
on new data.
Silent when: only the training part is resampled, or the resampler is in an imblearn Pipeline.
Fix: split first, resample the training part.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import folds, helper, roots, sources, splits
from clew.lint.divide import divided, divisions
from clew.lint.index import Def, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.trail import Step, root, trail, verb


@rule(
    "CLW503",
    "resample-before-split",
    "data.leak_split",
    "certain",
    "fit_resample fit_sample resample train_test_split random_split split cross_val_score",
)
def check(script: Script) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for split in (*splits(script), *folds(script)):
        for name in split.given:
            for made in sources(split.where.block.scope, name, split.where.order):
                call = resampling(script, made.value) or by_helper(script, made)
                if call is not None and call not in seen:
                    seen.add(call)
                    yield Hit(
                        call,
                        f"rows are resampled here and split on line {split.call.lineno}: copies end up on both sides.",
                    )
    for fold, dotted in script.calls_to("sklearn.model_selection.", "cross_val_score", "cross_validate"):
        where = script.where(fold)
        for name in [one for arg in fold.args[1:2] for one in roots(arg)]:
            for made in sources(where.block.scope, name, where.order):
                call = resampling(script, made.value)
                if call is not None and call not in seen:
                    seen.add(call)
                    yield Hit(
                        call,
                        f"rows are resampled before {dotted.rsplit('.', 1)[-1]} splits them.",
                    )

    for division in divisions(script):
        for step in (one for row in division.rows for one in trail(script, row, division.where, divided(script))):
            if resampled(script.at_home(step.where), step.node) and seen.isdisjoint((step.via, step.node)):
                seen.update((step.via, step.node))
                line = division.node.lineno
                yield Hit(step.via, f"rows are resampled here and split on line {line}: copies end up on both sides.")
            elif multiplied(script, step) and seen.isdisjoint((step.via, step.node)):
                seen.update((step.via, step.node))
                line = division.node.lineno
                told = f"every row is duplicated here, and line {line} splits them: copies end up on both sides."
                yield Hit(step.via, told, "likely")


CHANGED = re.compile(
    r"aug|flip|rot(ate|90|_)|nois|jitter|mirror|mixup|cutout|copies|variant|synonym|paraphras|perturb|distort|"
    r"back_?transl|::-1|warp|repeat",
    re.I,
)
JOINS = ("concatenate", "cat", "vstack", "hstack", "concat", "append", "ConcatDataset", "stack", "r_")


def multiplied(script: Script, step: Step) -> bool:
    """Whether a step joins rows with changed copies of the same rows, or fills a list with several of each."""
    node = step.node
    if isinstance(node, ast.ListComp) and len(node.generators) > 1:
        return bool(CHANGED.search(ast.unparse(node)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return joined([node.left, node.right], step)
    if not isinstance(node, ast.Call):
        return False
    name = verb(node)
    if name in ("repeat", "tile", "repeat_interleave") and (name != "repeat" or len(node.args) > 1):
        home = script.at_home(step.where)
        return home.dotted(node.func).startswith(("numpy.", "torch.")) and isinstance(node.args[0], ast.Name)
    if name in JOINS and node.args and name != "append":
        given = node.args[0]
        return isinstance(given, ast.List | ast.Tuple) and joined(list(given.elts), step)
    if name in ("append", "extend") and isinstance(node.func, ast.Attribute):
        return filled(step.where, node)
    return False


def joined(parts: list[ast.expr], step: Step) -> bool:
    """[x, flip(x)], [df, noisy]: one part is what another was made from, changed."""
    plain = [part.id for part in parts if isinstance(part, ast.Name)]
    made_as = [one.value for name in plain for one in step.where.block.scope.defs.get(name, []) if one.how == "="]
    calls = [one for one in made_as if isinstance(one, ast.Call) and one.args]
    same = {(ast.unparse(one.func), ast.unparse(one.args[0])) for one in calls}
    if len(calls) == len(parts) > 1 and len(same) == 1 and len({ast.unparse(one) for one in calls}) > 1:
        return True  # one folder read twice, with another transform
    for part in parts:
        if isinstance(part, ast.Name):
            made = [one for one in step.where.block.scope.defs.get(part.id, []) if one.how == "=" and not one.path]
            value: ast.AST | None = made[-1].value if made else None
            name = part.id
        else:
            value, name = part, ""
        if value is None or isinstance(value, ast.Constant):
            continue
        said = ast.unparse(value)
        others = {one.id for one in ast.walk(value) if isinstance(one, ast.Name)} & (set(plain) - {name})
        if others and CHANGED.search(f"{said} {name}"):
            return True
    return False


def filled(where: Where, call: ast.Call) -> bool:
    """for img in images: xs.append(img); xs.append(flip(img)): several entries of each row."""
    loops = where.block.loops()
    if not loops or not isinstance(loops[0].node, ast.For):
        return False
    name = root(call.func)
    outer = loops[-1].node
    adds = [
        part
        for part in ast.walk(outer)
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in ("append", "extend")
        and root(part.func) == name
    ]
    said = " ".join(ast.unparse(part) for part in adds) + " ".join(
        ast.unparse(loop.node.iter) for loop in loops[:-1] if isinstance(loop.node, ast.For)
    )
    return (len(adds) > 1 or len(loops) > 1 or verb(call) == "extend") and bool(CHANGED.search(said))


def resampled(home: Script, node: object) -> bool:
    """A resampler's call, or drawing with replacement and joining to the rest."""
    if not isinstance(node, ast.Call):
        return False
    name = verb(node)
    if name in ("fit_resample", "fit_sample"):
        return True
    if name == "resample" and home.dotted(node.func) == "sklearn.utils.resample":
        return True
    replaced = home.arg(node, -1, "replace")
    return name == "sample" and replaced is not None and home.constant(replaced) is True


def by_helper(script: Script, made: Def) -> ast.Call | None:
    """A call of the project's own function that returns what it resampled."""
    func = helper(script, made.value, made.where)
    for given, _ in func.returns if func is not None else ():
        assert func is not None
        if resampling(script.at_home(Where(func.body, 0)), given) is not None:
            return made.value if isinstance(made.value, ast.Call) else None
    return None


def resampling(script: Script, node: object) -> ast.Call | None:
    if not isinstance(node, ast.AST):
        return None
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            if isinstance(part.func, ast.Attribute) and part.func.attr in ("fit_resample", "fit_sample"):
                return part
            if isinstance(part.func, ast.Name | ast.Attribute) and script.dotted(part.func) == "sklearn.utils.resample":
                return part
    return None
