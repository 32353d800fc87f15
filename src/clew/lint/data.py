"""Splits, transforms and arrays: what rules about data have in common."""

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.given import argument, default_of
from clew.lint.index import Def, Scope, Where
from clew.lint.script import Script, text
from clew.lint.value import Context

HELD_OUT = re.compile(
    r"(^|_)(test|val|va|valid|validation|dev|holdout|te|oos|eval)(_|$|\d)|(^|_)[xy]_?(test|val|te|va$)", re.I
)


TRAIN = re.compile(r"(^|_)(train|training|tr)(_|$|\d)", re.I)
SPLITS = ("train_test_split",)
LEARNS = frozenset(
    "StandardScaler MinMaxScaler RobustScaler MaxAbsScaler Normalizer PowerTransformer QuantileTransformer PCA "
    "TruncatedSVD SelectKBest SelectPercentile SelectFromModel RFE VarianceThreshold SimpleImputer KNNImputer "
    "IterativeImputer TfidfVectorizer CountVectorizer TargetEncoder KBinsDiscretizer LinearDiscriminantAnalysis NMF "
    "FastICA ColumnTransformer PLSRegression OrdinalEncoder".split()
)
# Of these the labels or the spread of the held-out part leak; of a vocabulary or a code table hardly anything does.
MILD = frozenset("CountVectorizer OrdinalEncoder Normalizer".split())


@lru_cache(maxsize=1 << 16)
def side(name: str) -> str:
    """Which part of the data a name speaks of: "train", "out" or "". Names come again and again."""
    return "train" if TRAIN.search(name) else "out" if HELD_OUT.search(name) else ""


class Split(NamedTuple):
    """One call that divides data, the names that go in and the names that come out."""

    call: ast.Call
    where: Where
    given: list[str]
    made: list[str]


def splits(script: Script) -> list[Split]:
    """Every train_test_split of the file."""
    if "splits" not in script.known:
        found = []
        for call, _ in script.calls_to("sklearn.", *SPLITS):
            statement = script.statement(call)
            made: list[str] = []
            if isinstance(statement, ast.Assign) and statement.value is call:
                target = statement.targets[0]
                made = (
                    [text(item) for item in target.elts] if isinstance(target, ast.Tuple | ast.List) else [text(target)]
                )
            given = [part for arg in call.args for part in roots(arg)]
            found.append(Split(call, script.where(call), given, made))
        script.known["splits"] = found
    held: list[Split] = script.known["splits"]
    return held


def folds(script: Script) -> Iterator[Split]:
    """for train, test in KFold(...).split(X, y)"""
    for call in script.calls("split"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        values = script.value(base) if base is not None and call.args else ()
        if any(value.kind == "instance" and value.name.startswith("sklearn.model_selection.") for value in values):
            yield Split(call, script.where(call), [part for arg in call.args for part in roots(arg)], [])


def roots(node: ast.AST) -> list[str]:
    """The names that an expression starts from."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def learner(script: Script, node: ast.AST, where: Where | None = None, context: Context | None = None) -> str:
    """The class of a preprocessing object that learns from the data it is fitted on; "" for anything else."""
    values = script.value(node) if where is None else script.values.value(node, where, context)
    for value in values:
        if value.kind == "instance" and value.name.startswith(("sklearn.", "imblearn.", "category_encoders.")):
            last = value.name.rsplit(".", 1)[-1]
            if last in LEARNS:
                return last
    return ""


def helper(script: Script, node: Any, where: Where) -> Scope | None:
    """The function of the project that a call calls."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    values = script.values.value(node.func, where, None)
    return values[0].func if len(values) == 1 and values[0].kind == "function" else None


def helped(script: Script, node: Any, where: Where) -> Iterator[tuple[ast.Call, Scope, ast.Call]]:
    """Calls that the project's own functions make for an expression: the call here, the function, the call in it."""
    for part in ast.walk(node) if isinstance(node, ast.AST) else ():
        if isinstance(part, ast.Call):
            func = helper(script, part, where)
            for inner in func.calls if func is not None else ():
                assert func is not None
                yield part, func, inner


def handed(outer: ast.Call, func: Scope, node: Any) -> Any:
    """What the caller handed over for an expression of a function that starts from one of its parameters."""
    at = node
    while isinstance(at, ast.Subscript | ast.Attribute | ast.Call):
        at = at.func if isinstance(at, ast.Call) else at.value
    return argument(outer, func, at.id) if isinstance(at, ast.Name) and at.id in func.params else None


def sources(scope: Scope, name: str, before: int, deep: int = 5) -> Iterator[Def]:
    """The definitions that a name's value comes from, followed back through other names."""
    if deep == 0:
        return
    for made in scope.defs.get(name, []):
        if made.where.order < before and made.how in ("=", "aug"):
            yield made
            for other in roots(made.value if not isinstance(made.value, ast.AugAssign) else made.value.value):
                if other != name:
                    yield from sources(scope, other, made.where.order, deep - 1)


def loaders(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Every DataLoader and the name it is kept under."""
    for call, _ in script.calls_to("torch.utils.data.", "DataLoader"):
        yield call, kept_as(script, call)


class Built(NamedTuple):
    """A loader that a function of the project makes: the call of that function here, and the call in it."""

    call: ast.Call
    name: str
    func: Scope
    inner: ast.Call

    def arg(self, at: int, name: str) -> Any:
        """What the loader is given: the argument here when it is passed on, its default, or what stands there."""
        found = Script.arg(self.inner, at, name)
        if isinstance(found, ast.Name) and found.id in self.func.params and len(self.func.defs[found.id]) == 1:
            return argument(self.call, self.func, found.id) or default_of(self.func, found.id)
        return found


def built(script: Script) -> Iterator[Built]:
    """Loaders that are kept here under a name and made by a function of the project that makes just one."""
    for target, call, node in assigned(script):
        func = helper(script, call, script.where(node)) if isinstance(call, ast.Call) else None
        if func is None or func.module.names.isdisjoint(("DataLoader",)) or Script.starred(call):
            continue
        home = script.at_home(Where(func.body, 0))
        made = [one for one in func.calls if home.dotted(one.func) == "torch.utils.data.DataLoader"]
        made += [one for one in func.calls if home.dotted(one.func) == "torch.utils.data.dataloader.DataLoader"]
        if len(made) == 1 and not Script.starred(made[0]):
            yield Built(call, text(target), func, made[0])


def assigned(script: Script) -> Iterator[tuple[ast.expr, Any, ast.Assign]]:
    """What each statement sets to what; `a, b = f(), g()` sets two."""
    for node in script.module.statements.get(ast.Assign, []):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, given in zip(target.elts, value.elts, strict=True):
                yield one, given, node
        else:
            yield target, value, node


def kept_as(script: Script, node: ast.AST) -> str:
    """The name, attribute, key or argument under which a value is kept."""
    at: ast.AST | None = node
    while at is not None:
        above = script.parent(at)
        if isinstance(above, ast.Assign):
            target = above.targets[0]
            if isinstance(target, ast.Tuple) and isinstance(above.value, ast.Tuple) and at in above.value.elts:
                target = (
                    target.elts[above.value.elts.index(at)] if len(target.elts) == len(above.value.elts) else target
                )
            return text(target)
        if isinstance(above, ast.Dict) and at in above.values:
            key = above.keys[above.values.index(at)]
            return str(key.value) if isinstance(key, ast.Constant) else ""
        if isinstance(above, ast.Return):
            return script.scope(node).name
        if not isinstance(above, ast.IfExp | ast.Tuple | ast.Dict | ast.Call | ast.Attribute):
            return ""
        if (
            isinstance(above, ast.Call)
            and at is not above.func
            and text(above.func).rsplit(".", 1)[-1] not in ("tqdm", "enumerate", "iter", "prepare")
        ):
            return ""
        at = above
    return ""


def dataset_name(script: Script, call: ast.Call) -> str:
    given: Any = script.arg(call, 0, "dataset")
    return ast.unparse(given).lower() if given is not None else ""


def example_of(script: Script, node: Any, where: Where) -> tuple[Any, Where] | None:
    """What a data set of the project gives for a name that a loop over its loader sets: the expression that the whole
    column was made by, `self.labels = ...` for `return self.x[i], self.labels[i]`."""
    scope = where.block.scope
    made = reaching(scope.defs[node.id], where) if isinstance(node, ast.Name) and node.id in scope.defs else []
    if len(made) != 1 or made[0].how != "for" or len(made[0].path) != 1:
        return None
    for loader in script.values.value(made[0].value, made[0].where, None):
        given = Script.arg(loader.node, 0, "dataset") if loader.name.endswith(".DataLoader") else None
        for held in script.values.value(given, loader.where, None) if given is not None and loader.where else ():
            if held.name.endswith(".TensorDataset") and isinstance(held.node, ast.Call) and held.where is not None:
                args = held.node.args
                return (args[made[0].path[0]], held.where) if 0 <= made[0].path[0] < len(args) else None
            method = held.cls.methods.get("__getitem__") if held.cls is not None else None
            if method is None or len(method.returns) != 1 or not isinstance(method.returns[0][0], ast.Tuple):
                return None
            items = method.returns[0][0].elts
            item = items[made[0].path[0]] if 0 <= made[0].path[0] < len(items) else None
            base = item.value if isinstance(item, ast.Subscript) else None
            defs = held.cls.attrs.get(base.attr, []) if held.cls is not None and isinstance(base, ast.Attribute) else []
            return (defs[0].value, defs[0].where) if len(defs) == 1 and not defs[0].path else None
    return None
