"""Splits, transforms and arrays: what rules about data have in common."""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.index import Def, Scope, Where
from clew.lint.script import Script, text

HELD_OUT = re.compile(
    r"(^|_)(test|val|valid|validation|dev|holdout|te|oos|eval)(_|$|\d)|(^|_)[xy]_?(test|val|te)", re.I
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


def roots(node: ast.AST) -> list[str]:
    """The names that an expression starts from."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def learner(script: Script, node: ast.AST) -> str:
    """The class of a preprocessing object that learns from the data it is fitted on; "" for anything else."""
    values = script.value(node)
    for value in values:
        if value.kind == "instance" and value.name.startswith(("sklearn.", "imblearn.", "category_encoders.")):
            last = value.name.rsplit(".", 1)[-1]
            if last in LEARNS:
                return last
    return ""


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
