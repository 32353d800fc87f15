"""Places that divide rows into training and held-out ones, by a library's function, by folds, or by slices."""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.data import HELD_OUT, TRAIN, side
from clew.lint.index import Scope, Where
from clew.lint.script import Script, text
from clew.lint.trail import Step, root, said_by, trail, verb

FOLDS = (
    "KFold",
    "StratifiedKFold",
    "ShuffleSplit",
    "StratifiedShuffleSplit",
    "RepeatedKFold",
    "RepeatedStratifiedKFold",
)
CROSS = ("cross_val_score", "cross_validate", "cross_val_predict")
SEARCH = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV")


class Division(NamedTuple):
    """One place that divides rows: what is divided, how, and whether rows are dealt at random."""

    node: Any
    where: Where
    rows: list[ast.expr]
    kind: str  # split folds cross slices
    random: bool


def divisions(script: Script) -> list[Division]:
    if "divisions" not in script.known:
        script.known["divisions"] = [*by_function(script), *by_folds(script), *by_slices(script)]
    found: list[Division] = script.known["divisions"]
    return found


def by_function(script: Script) -> Iterator[Division]:
    for call, _ in script.calls_to("sklearn.", "train_test_split"):
        random = script.constant(script.arg(call, -1, "shuffle")) is not False and not script.starred(call)
        yield Division(call, script.where(call), list(call.args), "split", random)
    for call, _ in script.calls_to("torch.utils.data.", "random_split"):
        yield Division(call, script.where(call), call.args[:1], "split", True)
    for call in script.calls("drop"):
        # test = df.drop(train.index), after train = df.sample(frac=0.8)
        given = script.arg(call, 0, "index")
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        rest = text(given).removesuffix(".index") if text(given).endswith(".index") else ""
        if rest and isinstance(base, ast.Name) and rest != base.id:
            yield Division(call, script.where(call), [base], "split", True)
    for call in script.calls("train_test_split"):
        # A Dataset of the `datasets` library has this as a method.
        if isinstance(call.func, ast.Attribute) and not script.dotted(call.func):
            yield Division(call, script.where(call), [call.func.value], "split", True)


def by_folds(script: Script) -> Iterator[Division]:
    for call, _ in script.calls_to("sklearn.model_selection.", *CROSS):
        rows = [arg for arg in (script.arg(call, 1, "X"),) if arg is not None]
        yield Division(
            call, script.where(call), rows, "cross", mixes(script, script.arg(call, -1, "cv"), script.where(call))
        )
    for call in script.calls("split", "fit"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        given = script.arg(call, 0, "X")
        if base is None or given is None:
            continue
        for value in script.value(base):
            if value.kind != "instance" or not value.name.startswith("sklearn.model_selection."):
                continue
            last = value.name.rsplit(".", 1)[-1]
            where = script.where(call)
            if isinstance(call.func, ast.Attribute) and call.func.attr == "split":
                yield Division(call, where, [given, *dealt(script, call)], "folds", mixes(script, base, where))
            elif last in SEARCH and value.where is not None:
                yield Division(
                    call, where, [given], "cross", mixes(script, Script.arg(value.node, -1, "cv"), value.where)
                )


def dealt(script: Script, call: ast.Call) -> Iterator[ast.expr]:
    """What the indices of a fold are used on: Z of `for a, b in folds.split(X): fit(Z[a])`."""
    loop = script.parent(call)
    while isinstance(loop, ast.expr):
        loop = script.parent(loop)
    if not isinstance(loop, ast.For):
        return
    names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    seen: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in names:
            base = node.value
            if isinstance(base, ast.Attribute) and base.attr in ("iloc", "loc"):
                base = base.value
            if isinstance(base, ast.Name | ast.Attribute) and text(base) not in seen:
                seen.add(text(base))
                yield base


def mixes(script: Script, node: Any, where: Where) -> bool:
    """Whether folds are dealt at random: KFold(shuffle=True), ShuffleSplit."""
    for value in script.values.value(node, where, None) if node is not None else ():
        last = value.name.rsplit(".", 1)[-1]
        if value.kind != "instance" or last not in FOLDS:
            continue
        home = script.at_home(value.where) if value.where is not None else script
        return last not in ("KFold", "StratifiedKFold") or home.constant(script.arg(value.node, 1, "shuffle")) is True
    return False


def by_slices(script: Script) -> Iterator[Division]:
    """X_train, X_test = X[:n], X[n:], and the same with indices, masks, or Subset."""
    indexed: dict[Scope, list[tuple[ast.Subscript, str]]] = {}
    cuts: dict[Scope, list[ast.Subscript]] = {}
    for node in script.module.nodes.get(ast.Subscript, []):
        # x[train_idx], x[test_idx]
        part = side(node.slice.id) if isinstance(node.slice, ast.Name) else ""
        if part and isinstance(node.value, ast.Name | ast.Attribute):
            indexed.setdefault(script.scope(node), []).append((node, part))
        if isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name | ast.Attribute):
            cuts.setdefault(script.scope(node), []).append(node)
    for scope in script.module.scopes:
        parts: dict[str, dict[str, tuple[ast.expr, ast.AST, Where, bool]]] = {}
        cls = script.class_of(scope)
        kept = [
            (name, [made for made in defs if made.where.block.scope is scope])
            for name, defs in (cls.attrs.items() if cls is not None else ())
        ]
        for name, defs in (*scope.defs.items(), *kept):
            part = side(name)
            for made in defs if part else ():
                cut = element(made.value, made.path) if made.how == "=" else None
                base, mixed = taken_from(script, cut)
                if base is not None:
                    parts.setdefault(ast.unparse(base), {}).setdefault(part, (base, made.node, made.where, mixed))
        for node, part in indexed.get(scope, ()):
            mixed = drawn(script, node.slice)
            held = parts.setdefault(ast.unparse(node.value), {})
            held.setdefault(part, (node.value, node, script.where(node), mixed))
        for sides in parts.values():
            if len(sides) == 2:
                base, node, where, mixed = sides["train"]
                yield Division(node, where, [base], "slices", mixed)
        yield from cut_in_two(script, cuts.get(scope, []), set(parts))


FITS = frozenset(("fit", "partial_fit", "fit_predict"))


def cut_in_two(script: Script, cuts: list[ast.Subscript], known: set[str]) -> Iterator[Division]:
    """fit(Z[:n], y[:n]) and score(Z[n:], y[n:]): the same place cuts what is fitted off from what is judged."""
    if not cuts or FITS.isdisjoint(script.module.calls):
        return
    found: dict[tuple[str, str], dict[str, ast.Subscript]] = {}
    for node in cuts:
        cut = node.slice
        assert isinstance(cut, ast.Slice)
        upper, lower = cut.upper, cut.lower
        if (upper is None) == (lower is None) or cut.step is not None:
            continue
        side_ = "train" if lower is None else "rest"
        at = ast.unparse(upper or lower)  # type: ignore[arg-type]
        found.setdefault((text(node.value), at), {}).setdefault(side_, node)
    for (name, _), sides in found.items():
        if len(sides) == 2 and name and name not in known:
            node = sides["train"]
            fitted = script.parent(node)
            if isinstance(fitted, ast.Call) and verb(fitted) in FITS:
                yield Division(node, script.where(node), [node.value], "slices", False)


def element(value: Any, path: tuple[int, ...]) -> Any:
    for step in path:
        value = value.elts[step] if isinstance(value, ast.Tuple | ast.List) and 0 <= step < len(value.elts) else None
    return value


def taken_from(script: Script, node: Any) -> tuple[Any, bool]:
    """What rows are taken out of, and whether at random: X of X[:n], X.iloc[idx], Subset(X, idx)."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        node = node.func.value  # df[mask].copy()
    if isinstance(node, ast.Call) and text(node.func).rsplit(".", 1)[-1] == "Subset" and len(node.args) == 2:
        return node.args[0], drawn(script, node.args[1])
    if not isinstance(node, ast.Subscript):
        return None, False
    index: Any = node.slice
    if isinstance(index, ast.Tuple) and index.elts:
        index = index.elts[0]
    if isinstance(index, ast.Constant) or (isinstance(index, ast.Slice) and index.lower is index.upper is None):
        return None, False
    base: Any = node.value
    if isinstance(base, ast.Attribute) and base.attr in ("iloc", "loc"):
        base = base.value
    return (base, drawn(script, index)) if isinstance(base, ast.Name | ast.Attribute) else (None, False)


def drawn(script: Script, index: Any) -> bool:
    """Whether an index was drawn at random: perm[:n], a mask of random numbers."""
    if not isinstance(index, ast.Name | ast.Subscript | ast.Call):
        return False
    steps = trail(script, index, script.where(index), steps=25)
    return any(verb(step.node) in ("permutation", "randperm", "shuffle", "choice", "sample") for step in steps)


def divided(script: Script, slices: bool = True) -> Any:
    """For a walk back: whether a step already gives only one part of the rows."""

    def stop(step: Step) -> bool:
        node = step.node
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else text(node.func)
            return name in ("train_test_split", "random_split") or said_by(script, step).endswith("train_test_split")
        if isinstance(node, ast.Subscript) and slices:
            cut = node.slice
            return bool(TRAIN.search(root(cut))) or (
                isinstance(cut, ast.Slice) and (cut.lower is not None or cut.upper is not None)
            )
        return isinstance(node, ast.Name) and bool(TRAIN.search(node.id)) and not HELD_OUT.search(node.id)

    return stop
