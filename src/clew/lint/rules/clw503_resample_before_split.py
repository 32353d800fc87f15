"""Rows are oversampled before the split.

What it sees: SMOTE, RandomOverSampler or another resampler, sklearn's resample or a sample with replacement, applied to
data that train_test_split, cross-validation or slices then divide.
Why it matters: copies and mixtures of held-out rows stand in the training part. The score is far too good and falls
apart on new data.
Silent when: only the training part is resampled, or the resampler stands in an imblearn Pipeline.
Fix: split first, resample the training part.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import folds, helper, roots, sources, splits
from clew.lint.divide import divided, divisions
from clew.lint.index import Def, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.trail import trail, verb


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
        for name in [root for arg in fold.args[1:2] for root in roots(arg)]:
            for made in sources(where.block.scope, name, where.order):
                call = resampling(script, made.value)
                if call is not None and call not in seen:
                    seen.add(call)
                    yield Hit(
                        call,
                        f"rows are resampled before {dotted.rsplit('.', 1)[-1]} divides them.",
                    )

    for division in divisions(script):
        for step in (one for row in division.rows for one in trail(script, row, division.where, divided(script))):
            if resampled(script.at_home(step.where), step.node) and seen.isdisjoint((step.via, step.node)):
                seen.update((step.via, step.node))
                line = division.node.lineno
                yield Hit(step.via, f"rows are resampled here and divided on line {line}: copies end up on both sides.")


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
