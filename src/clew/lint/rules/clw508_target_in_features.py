"""The target column is left among the features.

What it sees: y taken from a column of a frame, and X made of the same frame without dropping that column, or of a list
of columns, made here or by a function of the project, that holds it; a drop whose result nobody keeps.
Why it matters: the model reads the answer. The score is close to perfect and worthless.
Silent when: the column is dropped, popped, deleted, or features are chosen by name.
Fix: X = frame.drop(columns=[target]).
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.columns import Columns, Reader, frame_name
from clew.lint.data import helper
from clew.lint.divide import element
from clew.lint.flow import reaching
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import verb

KEEPS = ("copy", "to_numpy", "astype", "select_dtypes", "fillna", "dropna")
SPLITS = ("train_test_split", "cross_val_score", "cross_validate", "fit")


@rule(
    "CLW508",
    "target-in-features",
    "data.leak_target",
    "likely",
    "train_test_split cross_val_score cross_validate fit drop columns tensor from_numpy DataFrame",
)
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("pd", "pandas", "read_csv", "DataFrame", "columns", "df", "cols", "frame", "TARGET"):
        return
    seen: set[ast.AST] = set()
    lines: set[int] = set()
    for hit in directly(script, seen):
        lines.add(hit.node.lineno)
        yield hit
    if not lines:
        yield from followed(script)


def followed(script: Script) -> Iterator[Hit]:
    """x from df[columns] and y from df[target], where the columns, chosen anywhere in the project, hold the target."""
    reader = Reader(script)
    for scope in script.module.scopes:
        targets: dict[str, set[str]] = {}
        features: list[tuple[str, ast.AST, Columns]] = []
        for name, value, where in made_here(scope):
            for part in ast.walk(value):
                if not isinstance(part, ast.Subscript | ast.Call) or script.where(part).block.scope is not scope:
                    continue
                if LABEL.match(name):
                    said = column_of(reader, part, where)
                    if said:
                        targets.setdefault(frame_name(part), set()).add(said)
                elif INPUT.match(name) and (found := taken_columns(reader, part, where)) is not None:
                    whole = part.args[0] if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) else part
                    whole = part.args[0] if isinstance(part, ast.Call) and verb(part) == "get_dummies" else whole
                    features.append((frame_name(whole), part, found))
        yield from handed_out(script, reader, scope)
        yield from derived(script, scope, targets, features)
        for frame, node, found in features:
            for target in sorted(targets.get(frame, ())):
                held = target not in found.names if found.but else target in found.names
                if held and frame and not removed(script, frame, target, node):
                    yield Hit(node, f"{frame}[{target!r}] is the target and is among the feature columns.")
                    break


PAST = ("shift", "rolling", "expanding", "cumsum", "groupby", "ewm", "transform", "diff", "pct_change", "rank")


def derived(
    script: Script, scope: Scope, targets: dict[str, set[str]], features: list[tuple[str, ast.AST, Columns]]
) -> Iterator[Hit]:
    """df["per_m2"] = df["price"] / df["area"], kept among the features while the price is the target."""
    for target, value, where in script.module.subscript_sets:
        frame = text(target.value)
        names = targets.get(frame)
        if not names or where.block.scope is not scope or not isinstance(value, ast.BinOp):
            continue
        key = script.constant(target.slice)
        if not isinstance(key, str) or key in names or any(verb(part) in PAST for part in ast.walk(value)):
            continue
        used = {
            script.constant(part.slice)
            for part in ast.walk(value)
            if isinstance(part, ast.Subscript) and text(part.value) == frame
        }
        for name in sorted(names & used):
            for other, node, found in features:
                held = key not in found.names if found.but else key in found.names
                if (
                    other == frame
                    and held
                    and name in found.names
                    and found.but
                    and not removed(script, frame, key, node)
                ):
                    yield Hit(
                        script.statement(target), f"{key!r} is computed from the target {name!r} and used as a feature."
                    )
                    return


def handed_out(script: Script, reader: Reader, scope: Scope) -> Iterator[Hit]:
    """return df.drop(columns="id"), df["price"], here or in a function that is called here for both."""
    places: list[tuple[Any, Where, ast.AST | None]] = [(given, where, None) for given, where in scope.returns]
    calls = {made.value for defs in scope.defs.values() for made in defs if made.path == (1,) and made.how == "="}
    for call in calls:
        func = helper(script, call, script.where(call)) if isinstance(call, ast.Call) else None
        if func is not None and func.module is not script.module:
            places += [(given, where, call) for given, where in func.returns]
    for given, where, call in places:
        parts = given.elts if isinstance(given, ast.Tuple) and len(given.elts) == 2 else []
        said = column_of(reader, bare(parts[1]), where) if parts else ""
        inner = bare(parts[0]) if parts else None
        found = taken_columns(reader, inner, where) if said and inner is not None else None
        if inner is None or found is None or not found.but or said in found.names:
            continue
        frame = frame_name(inner)
        if (
            frame
            and frame == frame_name(bare(parts[1]))
            and (call is not None or not removed(script, frame, said, inner))
        ):
            told = f"{frame}[{said!r}] is the target and is among the feature columns."
            yield Hit(call if call is not None else inner, told)


def bare(node: ast.expr) -> ast.expr:
    """df["price"] of df["price"].values, df["price"].to_numpy()."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "values":
            node = node.value
        elif isinstance(node, ast.Call) and verb(node) in ("to_numpy", "astype", "copy"):
            node = node.func.value  # type: ignore[attr-defined]
        else:
            return node


def made_here(scope: Scope) -> Iterator[tuple[str, ast.expr, Where]]:
    """Names and attributes that a function sets, one by one."""
    for name, defs in scope.defs.items():
        for made in defs:
            value = element(made.value, made.path) if made.how == "=" else None
            if isinstance(value, ast.expr):
                yield name, value, made.where
    for target, value, where in scope.attr_sets:
        if isinstance(value, ast.expr):
            yield target.attr, value, where


def column_of(reader: Reader, node: ast.AST, where: Where) -> str:
    """The one column that df[target] takes."""
    if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice | ast.Tuple | ast.List):
        return ""
    words = reader.words(node.slice, where, None)
    return next(iter(words)) if words is not None and len(words) == 1 else ""


def taken_columns(reader: Reader, node: ast.AST, where: Where) -> Columns | None:
    """What df[columns] or df.drop(columns=...) leaves, when it is more than a few names written out."""
    if isinstance(node, ast.Call):
        name = verb(node)
        whole = node.args[0] if name == "get_dummies" and node.args else None
        if isinstance(whole, ast.Name) and Script.arg(node, -1, "columns") is None:
            return reader.frame(whole, where)
        dropping = isinstance(node.func, ast.Attribute) and node.func.attr == "drop"
        if isinstance(node.func, ast.Name) and node.args and isinstance(node.args[0], ast.Name):
            dropping = helper(reader.script, node, where) is not None
        found = reader.frame(node, where) if dropping else None
        if name == "select_dtypes" and isinstance(node.func, ast.Attribute):
            found = reader.frame(node.func.value, where)
            # Of the numbers a target that is asked for as one is a part; what else was taken away is not in sight.
            return found if found is not None and found.but else None
        return found if found is not None and found.names else None
    if not isinstance(node, ast.Subscript):
        return None
    index = node.slice.elts[1] if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2 else node.slice
    if isinstance(index, ast.Constant | ast.Slice | ast.Compare):
        return None
    return reader.columns(index, where)


LABEL = re.compile(r"^(y|ys|labels?|targets?|y_\w+|\w+_y|train_labels?|outcome)$", re.I)
INPUT = re.compile(r"^(x|xs|inputs?|features?|feats|x_\w+|\w+_x|data|design|matrix)$", re.I)


def directly(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    for call in script.calls(*SPLITS):
        if len(call.args) < 2:
            continue
        folds = text(call.func).endswith(("cross_val_score", "cross_validate"))
        first = 1 if folds and script.dotted(call.func).startswith("sklearn.") else 0
        if len(call.args) < first + 2:
            continue
        features, target = call.args[first], call.args[first + 1]
        where = script.where(call)
        scope = where.block.scope
        column = taken(scope, target, call, script)
        if column is None:
            continue
        frame, name = column
        held, node = whole(scope, features, call, script)
        kept, at = dropped(scope, features, call, script)
        if kept == frame and at not in seen:
            columns = columns_of(script, at)
            if columns is not None and name not in columns and not removed(script, frame, name, at):
                seen.add(at)
                yield Hit(at, f"{frame}[{name!r}] is the target and stays among the features: this does not drop it.")
        elif listed(scope, features, frame, name, script) or chosen(script, features, frame, name, where):
            seen.add(features)
            yield Hit(
                features, f"all columns but a few are features, and {frame}[{name!r}], the target, is among them."
            )
        elif held == frame and node not in seen and not removed(script, frame, name):
            seen.add(node)
            yield Hit(
                node,
                f"the features are all of {frame}, and {frame}[{name!r}] is the target: the model sees the label.",
            )


def chosen(script: Script, node: ast.AST, frame: str, name: str, where: Where) -> bool:
    """df[columns], where the columns are all but a few, by a function or a constant of the project."""
    if not isinstance(node, ast.Subscript) or text(node.value) != frame:
        return False
    found = taken_columns(Reader(script), node, where)
    return found is not None and found.but and bool(found.names) and name not in found.names


def taken(scope: Scope, node: ast.AST, at: ast.AST, script: Script) -> tuple[str, str] | None:
    """The frame and column that a target comes from."""
    if isinstance(node, ast.Name) and node.id in scope.defs:
        made = reaching(scope.defs[node.id], script.where(at))
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else node
    if isinstance(node, ast.Attribute) and node.attr == "values":
        node = node.value
    if isinstance(node, ast.Subscript) and text(node.value):
        name = script.constant(node.slice)
        return (text(node.value), name) if isinstance(name, str) else None
    return None


def whole(scope: Scope, node: ast.AST, at: ast.AST, script: Script) -> tuple[str, ast.AST]:
    """The frame that the features are all of: the frame itself, a copy, or its values."""
    place: ast.AST = node
    if isinstance(node, ast.Name) and node.id in scope.defs:
        made = reaching(scope.defs[node.id], script.where(at))
        value = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
        inner = unwrapped(value)
        if isinstance(inner, ast.Name):
            return inner.id, script.statement(made[0].node)
        return node.id if not isinstance(value, ast.AST) or is_frame(value) else "", place
    inner = unwrapped(node)
    return (inner.id if isinstance(inner, ast.Name) else ""), place


def dropped(scope: Scope, node: ast.AST, at: ast.AST, script: Script) -> tuple[str, ast.AST]:
    """X = df.drop(columns=[...]): the frame and the call."""
    if isinstance(node, ast.Name) and node.id in scope.defs:
        made = reaching(scope.defs[node.id], script.where(at))
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else node
    inner = unwrapped(node)
    if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "drop":
        base = inner.func.value
        return (base.id if isinstance(base, ast.Name) else ""), inner
    return "", node


def listed(scope: Scope, node: ast.AST, frame: str, name: str, script: Script) -> bool:
    """df[[c for c in df.columns if c != "id"]], where the target is not among what is left out."""
    if not isinstance(node, ast.Subscript) or text(node.value) != frame:
        return False
    made = script.defs(node.slice.id, scope) if isinstance(node.slice, ast.Name) else []
    each = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else node.slice
    if not isinstance(each, ast.ListComp) or not ast.unparse(each.generators[0].iter).startswith(f"{frame}.columns"):
        return False
    tests = each.generators[0].ifs
    words = [
        script.constant(part) for test in tests for part in ast.walk(test) if isinstance(part, ast.Constant | ast.Name)
    ]
    plain = all(isinstance(test, ast.Compare) for test in tests)
    return bool(tests) and plain and name not in words and text(each.elt) == text(each.generators[0].target)


def columns_of(script: Script, node: ast.AST) -> set[str] | None:
    """The columns that a drop takes away; None when one of them is not known."""
    if not isinstance(node, ast.Call):
        return None
    given = script.arg(node, -1, "columns") or script.arg(node, 0, "labels")
    items = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    found = {script.constant(item) for item in items if item is not None}
    return found if found and all(isinstance(item, str) for item in found) else None


def is_frame(node: ast.AST) -> bool:
    func = node.func if isinstance(node, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in ("read_csv", "read_parquet", "DataFrame", "get_dummies", "dropna", "fillna", "sample", "reset_index")


def unwrapped(node: object) -> object:
    """What is left of an expression without the calls that keep every column of a frame."""
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "values":
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
            node = node.func.value
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Attribute) and node.slice.attr == "columns":
            node = node.value
        else:
            return node


def without_effect(script: Script, call: ast.Call) -> bool:
    """df.drop(columns="price") as a statement of its own gives a copy that nobody keeps."""
    dropping = isinstance(call.func, ast.Attribute) and call.func.attr == "drop"
    kept = script.arg(call, -1, "inplace")
    return dropping and isinstance(script.parent(call), ast.Expr) and (kept is None or script.constant(kept) is False)


def removed(script: Script, frame: str, name: str, but: ast.AST | None = None) -> bool:
    """Whether the column leaves the frame in any way that is in sight."""
    reader = Reader(script)
    for call in script.calls("drop", "pop"):
        if call is but or not isinstance(call.func, ast.Attribute) or without_effect(script, call):
            continue
        given = script.arg(call, -1, "columns") or script.arg(call, 0, "labels")
        words = reader.words(given, script.where(call), None) if given is not None else frozenset()
        # What cannot be read may be the target.
        if words is None or name in words:
            return True
    for node in script.module.statements.get(ast.Delete, []):
        if any(text(getattr(target, "value", None)) == frame for target in node.targets):
            return True
    return False
