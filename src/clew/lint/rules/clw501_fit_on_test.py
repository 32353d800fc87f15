"""Preprocessing is fitted on held-out data.

What it sees: fit or fit_transform of a scaler, imputer, encoder or projection on an array named test or val,
a function of the project that scales each part by its own mean and spread, or a class of the project that fits one on
whatever it is made from, made once for training and once for held-out data.
Why it matters: the held-out data is then scaled by its own statistics. The model sees another coordinate system than in
training, and the score does not predict performance on new data.
Silent when: only transform is called on it.
Fix: fit on the training part, transform the rest.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import HELD_OUT, MILD, TRAIN, assigned, handed, helped, helper, learner, side
from clew.lint.index import Scope, Where
from clew.lint.model import Fix, Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import verb


@rule("CLW501", "fit-on-test", "data.leak_split", "certain", "fit_transform fit fit_resample predict score mean")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("fit_transform", "fit"):
        given = script.arg(call, 0, "X")
        both = joined(script, given) if isinstance(call.func, ast.Attribute) else ""
        if both and (known := learner(script, call.func.value)) and known not in MILD:  # type: ignore[attr-defined]
            yield Hit(call, f"{known} is fitted on {both} as well: it must only see the training part.", "likely")
            continue
        name = base_name(given)
        if not isinstance(call.func, ast.Attribute) or not name or not HELD_OUT.search(name) or TRAIN.search(name):
            continue
        kind = learner(script, call.func.value)
        if kind:
            edit, again = None, fitted_before(script, call)
            if call.func.attr == "fit_transform" and again:
                whole = script.source(call.func.value)
                edit = Fix("only transform", True, (script.replace(call.func, f"{whole}.transform"),))
            yield Hit(
                call,
                f"{kind} is fitted on {name}: held-out data must only be transformed.",
                fix=edit,
                cause="" if again else "data.train_val_mismatch",
            )

    yield from by_helper(script)
    yield from by_class(script)
    yield from by_own_numbers(script)
    yield from told_to_fit(script)


def told_to_fit(script: Script) -> Iterator[Hit]:
    """prep(test, fit=True), where that fits a transform of the project's own object."""
    for scope in script.module.scopes:
        for call in scope.calls:
            flag = next((word for word in call.keywords if word.arg in ("fit", "train", "training", "is_train")), None)
            name = base_name(call.args[0]) if flag is not None and call.args else ""
            if flag is None or not (isinstance(flag.value, ast.Constant) and flag.value.value is True):
                continue
            if not name or side(name) != "out" or not isinstance(call.func, ast.Name | ast.Attribute):
                continue
            for value in script.value(call.func):
                func = value.func if value.kind == "function" else None
                if value.kind == "instance" and value.cls is not None:
                    func = value.cls.methods.get("__call__")
                fits = [] if func is None else [one for one in func.calls if verb(one) in ("fit", "fit_transform")]
                if fits and flag.arg in (func.params if func is not None else ()):
                    yield Hit(call, f"fitted on the training part, and then again on {name}.", "likely")
                    break


def by_own_numbers(script: Script) -> Iterator[Hit]:
    """zscore(X_train) and zscore(X_test), where zscore takes the mean and spread of what it is given."""
    found: dict[Any, dict[str, ast.Call]] = {}
    for scope in script.module.scopes:
        for call in scope.calls:
            name = base_name(call.args[0]) if len(call.args) == 1 and not call.keywords else ""
            part = side(name) if name else ""
            if not part or not isinstance(call.func, ast.Name):
                continue
            func = helper(script, call, script.where(call))
            if func is not None and len(func.params) == 1 and own_scale(func):
                found.setdefault((scope, func), {}).setdefault(part, call)
    for (_, func), sides in found.items():
        if len(sides) == 2:
            says = f"{func.name} scales held-out data by its own statistics, not by those of the training part."
            yield Hit(sides["out"], says, "likely", cause="data.train_val_mismatch")


def own_scale(func: Scope) -> bool:
    """(a - a.mean(0)) / a.std(0), of the one parameter."""
    name = func.params[0]
    said = " ".join(ast.unparse(given) for given, _ in func.returns)
    for made in (one for defs in func.defs.values() for one in defs if one.how == "="):
        said += f" {ast.unparse(made.value)}" if isinstance(made.value, ast.AST) else ""
    means = re.search(rf"\b{name}\.(mean|min|median)\(|\b(mean|min|median)\({name}\b", said)
    spread = re.search(rf"\b{name}\.(std|max|quantile)\(|\b(std|max|quantile|ptp)\({name}\b", said)
    return means is not None and spread is not None and "/" in said and not func.yields and not func.loops


def joined(script: Script, node: Any) -> str:
    """The held-out part in np.vstack([X_train, X_test]) or pd.concat([train, test])."""
    if isinstance(node, ast.Name):
        made = script.defs(node.id, script.scope(node))
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if isinstance(node, ast.Subscript):
        node = node.value
    name = text(node.func).rsplit(".", 1)[-1] if isinstance(node, ast.Call) else ""
    if name not in ("vstack", "concatenate", "concat", "append", "cat", "r_") or not isinstance(node, ast.Call):
        return ""
    names = [part.id for arg in node.args for part in ast.walk(arg) if isinstance(part, ast.Name)]
    trains = any(TRAIN.search(one) and not HELD_OUT.search(one) for one in names)
    return next((one for one in names if HELD_OUT.search(one) and not TRAIN.search(one)), "") if trains else ""


def by_helper(script: Script) -> Iterator[Hit]:
    """prepare(X_train) and prepare(X_test), where prepare makes a scaler of its own and fits it on what it is given."""
    for statement in script.module.statements.get(ast.Assign, []):
        where = script.where(statement)
        if not isinstance(statement.value, ast.Call) or not any(
            HELD_OUT.search(base_name(arg)) for arg in statement.value.args
        ):
            continue
        for outer, func, inner in helped(script, statement.value, where):
            if not isinstance(inner.func, ast.Attribute) or inner.func.attr not in ("fit_transform", "fit"):
                continue
            home = script.at_home(Where(func.body, 0))
            name = base_name(handed(outer, func, home.arg(inner, 0, "X")))
            if not name or not HELD_OUT.search(name) or TRAIN.search(name) or home.where(inner).block is not func.body:
                continue
            kind = learner(home, inner.func.value, home.where(inner))
            if kind and kind not in MILD:
                yield Hit(
                    outer,
                    f"{func.name} fits a {kind} of its own on {name}: held-out data is scaled differently.",
                    cause="data.train_val_mismatch",
                    related=(Related(func.module.path, inner.lineno, f"{kind} is fitted here"),),
                )


def by_class(script: Script) -> Iterator[Hit]:
    """train = Table(train_frame) and test = Table(test_frame), where Table fits a scaler of its own on what it gets."""
    if not script.mentions("fit", "fit_transform") and not script.project.brings(script.module, "fit"):
        return
    found: dict[Any, dict[str, ast.Call]] = {}
    for target, call, _ in assigned(script):
        said = text(call.func).rsplit(".", 1)[-1] if isinstance(call, ast.Call) and call.args else ""
        part = side(text(target).rsplit(".", 1)[-1]) if said[:1].isupper() else ""
        values = script.value(call.func) if part else ()
        cls = values[0].cls if len(values) == 1 and values[0].kind == "class" else None
        if cls is not None and fits_always(script, cls):
            found.setdefault(cls, {}).setdefault(part, call)
    for cls, sides in found.items():
        if len(sides) == 2:
            says = (
                f"{cls.name} fits a {fits_always(script, cls)} of its own on held-out data: it is scaled differently."
            )
            yield Hit(sides["out"], says, "likely", cause="data.train_val_mismatch")


def fits_always(script: Script, cls: Any) -> str:
    """What a constructor fits on what it is given, whatever it is told."""
    init = cls.methods.get("__init__")
    for call in init.calls if init is not None else ():
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in ("fit_transform", "fit"):
            home = script.at_home(Where(init.body, 0))
            where = home.where(call)
            kind = learner(home, func.value, where) if where.block is init.body else ""
            chosen = any(isinstance(home.parent(one), ast.BoolOp | ast.IfExp) for one in (call, func.value))
            if kind and kind not in MILD and not chosen:
                return kind
    return ""


GIVES = ("transform", "fit_transform", "inverse_transform")
LIBRARIES = ("np.", "pd.")


def base_name(node: object) -> str:
    """The name of the data that an expression starts from: X_test of imputer.transform(X_test[cols])."""
    while isinstance(node, ast.Subscript | ast.Call):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif node.args and (isinstance(node.func, ast.Name) or verb(node) in GIVES or text(node.func)[:3] in LIBRARIES):
            node = node.args[0]
        else:
            node = getattr(node.func, "value", None)
    while isinstance(node, ast.Attribute) and node.attr in ("values", "data", "T"):
        node = node.value
    return text(node).rsplit(".", 1)[-1] if isinstance(node, ast.AST) else ""


def fitted_before(script: Script, call: ast.Call) -> bool:
    """Whether the same object was fitted earlier, so that transform alone works."""
    assert isinstance(call.func, ast.Attribute)
    said, order = text(call.func.value), (script.where(call).order, call.end_lineno or 0, call.end_col_offset or 0)
    return bool(said) and any(
        isinstance(other.func, ast.Attribute)
        and text(other.func.value) == said
        and (script.where(other).order, other.end_lineno or 0, other.end_col_offset or 0) < order
        for other in script.calls("fit", "fit_transform")
    )
