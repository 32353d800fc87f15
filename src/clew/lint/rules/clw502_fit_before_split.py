"""Preprocessing is fitted on all data, and the data is split afterwards.

What it sees: fit_transform of a scaler, imputer, selector, encoder or projection, or a mean and spread by hand, whose
result is then divided by train_test_split, random_split, folds, slices or indices, followed through functions, classes
and files; a model fitted on all rows and judged on the held-out ones.
Why it matters: the held-out part has shaped the features. For scaling the effect is small; selecting features or
encoding targets on all data can make pure noise look predictive.
Silent when: the fit comes after the split, or the object is part of a Pipeline.
Fix: split first, or put the step into a Pipeline that is fitted per fold.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.data import HELD_OUT, MILD, TRAIN, Split, folds, handed, helper, learner, roots, sources, splits
from clew.lint.divide import divided, divisions, element
from clew.lint.flow import reaching
from clew.lint.index import Def, Scope, Where
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import END, Step, root, trail, verb

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


@rule(
    "CLW502",
    "fit-before-split",
    "data.leak_split",
    "likely",
    "fit_transform fit train_test_split mean max min median std fillna",
)
def check(script: Script) -> Iterator[Hit]:
    seen: set[ast.AST] = set()
    for split in (*splits(script), *folds(script)):
        for made in learned(split):
            yield from by_helper(script, made, split, seen)
            call = fit_call(made) or fitted_apart(script, made, split)
            if call is not None and call not in seen and isinstance(call.func, ast.Attribute):
                kind = learner(script, call.func.value)
                if kind and kind not in MILD:
                    seen.add(call)
                    yield Hit(
                        call,
                        f"{kind} is fitted on all rows, and line {split.call.lineno} splits them afterwards.",
                    )
        yield from on_everything(script, split, seen)
    yield from before_folds(script, seen)
    yield from of_all_rows(script)
    yield from followed(script, seen)
    yield from trained_on_all(script, seen)
    yield from scored_on_all(script)


SCORES = frozenset(
    "f_classif f_regression chi2 mutual_info_classif mutual_info_regression r_regression corrwith".split()
)


def scored_on_all(script: Script) -> Iterator[Hit]:
    """keep = best_columns(X, y), before folds divide X: columns are chosen with a look at the held-out labels."""
    for division in divisions(script):
        scope = division.where.block.scope
        rows = {text(row) for row in division.rows} - {""}
        for call in scope.calls if rows else ():
            where = script.where(call)
            if where.order >= division.where.order and division.kind != "folds":
                continue
            if where.order > division.where.order or not {text(arg) for arg in call.args} & rows:
                continue
            func = helper(script, call, where) if verb(call) not in SCORES else None
            if verb(call) in SCORES or (func is not None and any(verb(one) in SCORES for one in func.calls)):
                if func is not None and any(verb(one) in ("split", "train_test_split") for one in func.calls):
                    continue
                line = division.node.lineno
                yield Hit(
                    call, f"features are selected with the labels of all rows, and line {line} splits them afterwards."
                )
                break


def trained_on_all(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    """clf.fit(X, y) after X was split, and clf judged on X_test."""
    for split in splits(script):
        out = [name for name in split.made if HELD_OUT.search(name) and not TRAIN.search(name)]
        for call in script.calls("fit") if out else ():
            where = script.where(call)
            given = script.arg(call, 0, "X")
            name = text(call.func)[: -len(".fit")]
            if where.block.scope is not split.where.block.scope or where.order <= split.where.order or call in seen:
                continue
            if not isinstance(given, ast.Name) or given.id not in split.given or not name:
                continue
            made = (
                reaching(where.block.scope.defs.get(given.id, []), where) if given.id in where.block.scope.defs else []
            )
            again = [
                script.where(one).order
                for one in script.calls("fit")
                if text(one.func) == f"{name}.fit" and one is not call
            ]
            judged = [
                script.where(one).order
                for one in script.calls("score", "predict", "predict_proba")
                if text(one.func).rsplit(".", 1)[0] in (name, f"{name}.best_estimator_")
                and one.args
                and roots(one.args[0])[:1]
                and roots(one.args[0])[0] in out
            ]
            later = [
                order for order in judged if order > where.order and not any(where.order < at < order for at in again)
            ]
            if later and all(one.where.order < split.where.order for one in made):
                seen.add(call)
                yield Hit(call, f"{name} is trained on {given.id}, which holds the rows of {out[0]} too.")


def followed(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    """The same through helpers, attributes and other files, however the rows are divided then."""
    for division in divisions(script):
        for step in (one for row in division.rows for one in trail(script, row, division.where, divided(script))):
            home = script.at_home(step.where)
            kind, line = fitting(home, step), division.node.lineno
            if not kind or step.via in seen or step.node in seen or script.where(step.via).order == END:
                continue
            seen.update((step.via, step.node))
            sure = "likely" if division.kind != "cross" or kind in SUPERVISED else "look"
            related = (
                (Related(step.where.block.scope.module.path, step.node.lineno, f"{kind} is fitted here"),)
                if home is not script
                else ()
            )
            says = f"{kind} is fitted on all rows, and line {line} splits them afterwards."
            yield Hit(step.via, says, sure, related=related)


def fitting(home: Script, step: Step) -> str:
    """What a step learns from all rows: a preprocessing object, or a mean and spread by hand."""
    node = step.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "fit_transform" or (node.func.attr == "transform" and verb(node.func.value) == "fit"):
            base = node.func.value if node.func.attr == "fit_transform" else node.func.value.func.value  # type: ignore[attr-defined]
            kind = learner(home, base, step.where, step.context)
            return kind if kind not in MILD else ""
        if node.func.attr == "transform" and node.args and (base := text(node.func.value)):
            before = [
                call
                for call in step.where.block.scope.calls
                if text(call.func) == f"{base}.fit"
                and call.args
                and root(call.args[0]) == root(node.args[0]) != ""
                and isinstance(call.args[0], ast.Name | ast.Attribute)
                and home.where(call).order < step.where.order
            ]
            kind = learner(home, node.func.value, step.where, step.context) if before else ""
            if kind and kind not in MILD:
                return kind
        if node.func.attr == "fillna" and node.args and own_statistic(node.args[0], root(node.func.value), True):
            return "fillna"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Sub):
        parts = [node.right, *(made_of(node.right, step))]
        if any(own_statistic(part, root_of(node.left), False) for part in parts):
            return "the mean"
    return ""


def made_of(node: ast.expr, step: Step) -> list[Any]:
    """The one definition of a name, as in `mu = X.mean(0)`."""
    if not isinstance(node, ast.Name):
        return []
    scope = step.where.block.scope
    defs = reaching(scope.defs[node.id], step.where) if node.id in scope.defs else []
    return [element(made.value, made.path) for made in defs if made.how == "="]


def root_of(node: ast.expr) -> str:
    while isinstance(node, ast.BinOp):
        node = node.left
    return root(node)


def own_statistic(node: Any, name: str, frame: bool) -> bool:
    """Whether an expression holds a mean or spread over the rows of the array or frame of this name."""
    for part in ast.walk(node) if isinstance(node, ast.AST) and name else ():
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
            continue
        if part.func.attr not in STATISTICS:
            continue
        base: Any = part.func.value
        axis = [*part.args, *(word.value for word in part.keywords if word.arg in ("dim", "axis"))]
        if isinstance(base, ast.Name) and base.id in ("np", "numpy", "torch", "jnp") and part.args:
            base, axis = part.args[0], axis[1:]
        if isinstance(base, ast.Subscript) and not isinstance(base.slice, ast.Constant | ast.Name | ast.List):
            continue
        along = any(isinstance(arg, ast.Constant) and arg.value == 0 for arg in axis)
        columns = frame or (isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant))
        chosen = base.slice.id if isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Name) else ""
        if root(base) == name and (along or (columns and not axis)) and not TRAIN.search(chosen):
            return True
    return False


STATISTICS = ("mean", "std", "median", "min", "max", "var", "mode", "quantile")


def by_helper(script: Script, made: Def, split: Split, seen: set[ast.AST]) -> Iterator[Hit]:
    """X = scale(X), where scale fits and transforms what it is given."""
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    func = helper(script, value, made.where)
    if func is None or value in seen or not isinstance(value, ast.Call):
        return
    home = script.at_home(Where(func.body, 0))
    for given, at in func.returns:
        for call in ast.walk(given):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                continue
            if call.func.attr == "fit_transform" and handed(value, func, home.arg(call, 0, "X")) is not None:
                kind = learner(home, call.func.value, at)
                if kind and kind not in MILD:
                    seen.add(value)
                    line = split.call.lineno
                    yield Hit(
                        value, f"{kind} in {func.name} is fitted on all rows, and line {line} splits them afterwards."
                    )


def learned(split: Split) -> Iterator[Def]:
    for name in split.given:
        yield from sources(split.where.block.scope, name, split.where.order)


def fit_call(made: Def) -> ast.Call | None:
    """The fit_transform in a definition."""
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    for part in ast.walk(value):
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
            continue
        if part.func.attr == "fit_transform":
            return part
        inner = part.func.value
        chained = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "fit"
        if part.func.attr == "transform" and chained and isinstance(inner, ast.Call):
            return inner  # StandardScaler().fit(X).transform(X)
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


def on_everything(script: Script, split: Split, seen: set[ast.AST]) -> Iterator[Hit]:
    """scaler.fit(X) after X was split into X_train and X_test: it still holds all rows."""
    for call in script.calls("fit", "fit_transform"):
        where = script.where(call)
        given = script.arg(call, 0, "X")
        if where.block.scope is not split.where.block.scope or where.order <= split.where.order or call in seen:
            continue
        if not isinstance(given, ast.Name) or given.id not in split.given or not isinstance(call.func, ast.Attribute):
            continue
        made = reaching(where.block.scope.defs.get(given.id, []), where) if given.id in where.block.scope.defs else []
        kind = learner(script, call.func.value)
        if kind and kind not in MILD and all(one.where.order < split.where.order for one in made) and split.made:
            seen.add(call)
            yield Hit(call, f"{kind} is fitted on {given.id}, which holds the held-out rows too.")


def of_all_rows(script: Script) -> Iterator[Hit]:
    """mean = x.mean(0); x = (x - mean) / std; x[train], x[val]: the mean knows the held-out rows."""
    found: dict[Scope, dict[str, set[str]]] = {}
    for node in script.module.nodes.get(ast.Subscript, []):
        index = node.slice.id if isinstance(node.slice, ast.Name) else ""
        kind = "train" if TRAIN.search(index) else "out" if HELD_OUT.search(index) else ""
        if kind and isinstance(node.value, ast.Name):
            found.setdefault(script.scope(node), {}).setdefault(node.value.id, set()).add(kind)
    for scope, taken in found.items():
        for name, kinds in taken.items():
            if len(kinds) < 2:
                continue
            held = {name} | {root for made in sources(scope, name, 1 << 60) for root in roots_of(made)}
            for made in sources(scope, name, 1 << 60):
                call = statistic(made, held)
                if call is not None:
                    yield Hit(
                        call, f"is computed over all rows, and {name} is later split into training and held-out rows."
                    )
                    break


def roots_of(made: Def) -> list[str]:
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    return roots(value) if isinstance(value, ast.AST) else []


def statistic(made: Def, held: set[str]) -> ast.Call | None:
    """x.mean(0), x.std(0), x.max(0) of a whole array."""
    value = made.value.value if isinstance(made.value, ast.AugAssign) else made.value
    for part in ast.walk(value) if isinstance(value, ast.AST) else ():
        if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
            continue
        base = part.func.value
        axis = [*part.args, *(word.value for word in part.keywords if word.arg in ("dim", "axis"))]
        along = any(isinstance(arg, ast.Constant) and arg.value == 0 for arg in axis)
        if part.func.attr in ("mean", "std") and along and isinstance(base, ast.Name) and base.id in held:
            return part
    return None


def before_folds(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    """Features selected with the labels of all rows, then cross-validated."""
    for call, dotted in script.calls_to("sklearn.model_selection.", *CROSS[:3]):
        where = script.where(call)
        for name in [part for arg in call.args[1:2] for part in roots(arg)]:
            for made in sources(where.block.scope, name, where.order):
                fit = fit_call(made)
                if fit is None or fit in seen or not isinstance(fit.func, ast.Attribute):
                    continue
                kind = learner(script, fit.func.value)
                if kind in SUPERVISED:
                    seen.add(fit)
                    yield Hit(
                        fit, f"{kind} sees the labels of all folds before {dotted.rsplit('.', 1)[-1]} splits them."
                    )
