"""The labels of all rows go into a feature before the rows are split.

What it sees: a column made from groupby(...)[target], directly or by a function of the project, on a frame that is
split afterwards, where the same column is the target.
Why it matters: each held-out row has helped to compute its own feature. The score is better than it will ever be on
new data, most of all for rare categories, where the feature is nearly the label itself.
Silent when: the column that is averaged is not the target, or the averages come from the training part.
Fix: split first, compute the table on the training part, and map it onto both.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import Split, helper, splits
from clew.lint.divide import divided, divisions, element
from clew.lint.given import argument, default_of
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, one_a_line, text
from clew.lint.trail import trail


@rule("CLW517", "target-encoded-before-split", "data.leak_target", "likely", "groupby train_test_split")
def check(script: Script) -> Iterator[Hit]:
    yield from one_a_line((*directly(script), *followed(script)))


def directly(script: Script) -> Iterator[Hit]:
    for split in splits(script):
        columns = targets(script, split)
        for target, value, where in script.module.subscript_sets:
            if not columns or where.block.scope is not split.where.block.scope or where.order > split.where.order:
                continue
            if text(target.value) not in split.given or not isinstance(value, ast.AST):
                continue
            found = next((name for name in grouped(script, value, where) if name in columns), "")
            if found:
                line = split.call.lineno
                says = f"averages {found!r}, the target, over all rows, and line {line} splits them afterwards."
                yield Hit(script.statement(target), says)


def followed(script: Script) -> Iterator[Hit]:
    """The same in a function of the project, or before any other way of dividing rows."""
    columns = {
        name
        for scope in script.module.scopes
        for label, defs in scope.defs.items()
        if LABEL.match(label)
        for made in defs
        for name in taken(script, made)
    }
    for division in divisions(script) if columns else ():
        stop = divided(script)
        for step in (one for row in division.rows for one in trail(script, row, division.where, stop)):
            node = step.node
            if not isinstance(node, ast.Subscript) or not by_groups(node.value):
                continue
            name = script.at_home(step.where).constant(node.slice)
            if name in columns:
                line = division.node.lineno
                yield Hit(
                    step.via, f"averages {name!r}, the target, over all rows, and line {line} splits them afterwards."
                )
                break


def taken(script: Script, made: Any) -> Iterator[str]:
    """The columns that labels are taken from: y = df["price"], y = train.pop("price")."""
    value = element(made.value, made.path) if made.how == "=" else None
    for part in ast.walk(value) if isinstance(value, ast.AST) else ():
        given: Any = part.slice if isinstance(part, ast.Subscript) else None
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and part.func.attr == "pop"
            and part.args
        ):
            given = part.args[0]
        name = script.constant(given) if isinstance(given, ast.Constant | ast.Name) else None
        if isinstance(name, str):
            yield name


LABEL = re.compile(r"^(y|ys|labels?|targets?|y_\w+|\w+_y)$", re.I)


def targets(script: Script, split: Split) -> set[str]:
    """Columns that are labels: what the split is stratified by, what goes into it second, what a model is fitted to."""
    found: set[str] = set()
    given = [script.arg(split.call, -1, "stratify"), *split.call.args[1:2]]
    given += [call.args[1] for call in script.calls("fit") if len(call.args) > 1]
    for node in given:
        if isinstance(node, ast.Name):
            defs = split.where.block.scope.defs.get(node.id, [])
            node = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else node
        name = script.constant(node.slice) if isinstance(node, ast.Subscript) else None
        if isinstance(name, str):
            found.add(name)
    return found


def grouped(script: Script, node: Any, where: Any) -> Iterator[str]:
    """Columns whose values are gathered over groups in an expression, or in the functions of the project it calls."""
    parts = list(ast.walk(node))
    for one in list(parts):
        # rates = df.groupby(...)["y"].mean(); df["rate"] = df["k"].map(rates)
        defs = where.block.scope.defs.get(one.id, []) if isinstance(one, ast.Name) else []
        if len(defs) == 1 and defs[0].how == "=" and isinstance(defs[0].value, ast.Call):
            parts += ast.walk(defs[0].value)
    for part in parts:
        if isinstance(part, ast.Subscript) and by_groups(part.value):
            name = script.constant(part.slice)
            if isinstance(name, str):
                yield name
        func = helper(script, part, where) if isinstance(part, ast.Call) else None
        if func is not None and isinstance(part, ast.Call):
            yield from inside(script, part, func)


def inside(script: Script, call: ast.Call, func: Scope) -> Iterator[str]:
    frames = {text(arg) for arg in call.args} - {""}
    for part in ast.walk(func.node):
        if not isinstance(part, ast.Subscript) or not by_groups(part.value):
            continue
        base = part.value.func.value if isinstance(part.value, ast.Call) else None  # type: ignore[attr-defined]
        frame = argument(call, func, base.id) if isinstance(base, ast.Name) and base.id in func.params else None
        if frame is None or text(frame) not in frames:
            continue
        name: Any = part.slice
        if isinstance(name, ast.Name) and name.id in func.params:
            name = argument(call, func, name.id) or default_of(func, name.id)
        known = name.value if isinstance(name, ast.Constant) else script.constant(name) if name is not None else None
        if isinstance(known, str) and all(
            text(arg) == text(frame) for arg in call.args if text(arg) in frames_of(func, call)
        ):
            yield known


def frames_of(func: Scope, call: ast.Call) -> set[str]:
    """Names handed over for parameters that are used as frames: indexed by a column."""
    used = {
        part.value.id
        for part in ast.walk(func.node)
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id in func.params
    }
    return {text(argument(call, func, name)) for name in used} - {""}


def by_groups(node: Any) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "groupby"
