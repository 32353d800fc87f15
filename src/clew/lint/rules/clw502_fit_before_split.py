"""Preprocessing is fitted on all data, and the data is split afterwards.

What it sees: fit_transform of a scaler, imputer, selector, encoder or projection whose result is then divided by
train_test_split or used in cross-validation.
Why it matters: the held-out part has shaped the features. For scaling the effect is small; selecting features or
encoding targets on all data can make pure noise look predictive.
Silent when: the fit comes after the split, or the object is part of a Pipeline.
Fix: split first, or put the step into a Pipeline that is fitted per fold.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import MILD, TRAIN, Split, learner, roots, sources, splits
from clew.lint.index import Def
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

SUPERVISED = (
    "SelectKBest",
    "SelectPercentile",
    "SelectFromModel",
    "RFE",
    "TargetEncoder",
    "LinearDiscriminantAnalysis",
    "PLSRegression",
)
CROSS = ("cross_val_score", "cross_validate", "cross_val_predict", "GridSearchCV", "RandomizedSearchCV")


@rule("CLW502", "fit-before-split", "data.leak_split", "likely", "fit_transform fit")
def check(script: Script) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for split in splits(script):
        for made in learned(split):
            call = fit_call(made) or fitted_apart(script, made, split)
            if call is not None and call not in seen and isinstance(call.func, ast.Attribute):
                kind = learner(script, call.func.value)
                if kind and kind not in MILD:
                    seen.add(call)
                    yield Hit(
                        call,
                        f"{kind} learns from all rows, and line {split.call.lineno} splits them afterwards.",
                    )
    yield from before_folds(script, seen)


def learned(split: Split) -> Iterator[Def]:
    for name in split.given:
        yield from sources(split.where.block.scope, name, split.where.order)


def fit_call(made: Def) -> ast.Call | None:
    """The fit_transform in a definition."""
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    for part in ast.walk(value):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "fit_transform":
            return part
    return None


def fitted_apart(script: Script, made: Def, split: Split) -> ast.Call | None:
    """`scaler.fit(X)` before `X = scaler.transform(X)`."""
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    for part in ast.walk(value):
        if not (isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "transform"):
            continue
        said = text(part.func.value)
        for call in script.calls("fit"):
            where = script.where(call)
            own = text(call.func) == f"{said}.fit" and where.block.scope is split.where.block.scope
            if said and own and where.order < split.where.order and not any(TRAIN.search(root) for root in roots(call)):
                return call
    return None


def before_folds(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    """Features selected with the labels of all rows, then cross-validated."""
    for call, dotted in script.calls_to("sklearn.model_selection.", *CROSS[:3]):
        where = script.where(call)
        for name in [root for arg in call.args[1:2] for root in roots(arg)]:
            for made in sources(where.block.scope, name, where.order):
                fit = fit_call(made)
                if fit is None or fit in seen or not isinstance(fit.func, ast.Attribute):
                    continue
                kind = learner(script, fit.func.value)
                if kind in SUPERVISED:
                    seen.add(fit)
                    yield Hit(
                        fit, f"{kind} sees the labels of all folds before {dotted.rsplit('.', 1)[-1]} divides them."
                    )
