"""Training and held-out slices overlap.

What it sees: two slices of one array with written-out or named bounds, one kept for training and one for validation
or test, that share rows; a training subset over all of an order whose front is the held-out subset.
Why it matters: shared rows are memorised; the held-out score is too good by their share.
Silent when: the bounds are not known or do not overlap.
Fix: start the second slice where the first one ends.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.data import HELD_OUT, TRAIN, kept_as, side
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW514", "overlapping-slices", "data.leak_split", "likely", "")
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        parts: dict[str, list[tuple[str, Any, ast.AST]]] = {}
        for name, defs in scope.defs.items():
            if not side(name):
                continue
            for made in defs:
                value = made.value
                for step in made.path:
                    value = value.elts[step] if isinstance(value, ast.Tuple) and 0 <= step < len(value.elts) else None
                if (
                    made.how == "="
                    and isinstance(value, ast.Subscript)
                    and isinstance(value.slice, ast.Slice)
                    and value.slice.step is None
                ):
                    # f["train"][:] and f["valid"][:] are parts of one file, and not slices of one array.
                    parts.setdefault(ast.unparse(value.value), []).append((name, value.slice, made.node))
        if parts:
            yield from everything(scope, parts)
        if "Subset" in script.module.calls:
            yield from subsets(script, scope)
        for held in parts.values():
            train = [part for part in held if TRAIN.search(part[0]) and not HELD_OUT.search(part[0])]
            out = [part for part in held if HELD_OUT.search(part[0]) and not TRAIN.search(part[0])]
            if len(train) == 1:
                for name, cut, node in out:
                    if overlap(script, train[0][1], cut):
                        yield Hit(node, f"{name} shares rows with {train[0][0]}.")


def subsets(script: Script, scope: Scope) -> Iterator[Hit]:
    """val = Subset(data, order[:n]) and train = Subset(data, order)."""
    calls = [call for call in script.calls("Subset") if script.scope(call) is scope and len(call.args) == 2]
    held = [(kept_as(script, call).rsplit(".", 1)[-1], text(call.args[0]), call.args[1], call) for call in calls]
    for name, data, index, call in held:
        if not TRAIN.search(name) or HELD_OUT.search(name) or not isinstance(index, ast.Name) or not data:
            continue
        for other, same, part, _ in held:
            cut = isinstance(part, ast.Subscript) and text(part.value) == index.id
            if same == data and cut and HELD_OUT.search(other) and not TRAIN.search(other):
                yield Hit(call, f"{name} holds all of {index.id}, the rows of {other} included.")


def everything(scope: Scope, parts: dict[str, list[tuple[str, Any, ast.AST]]]) -> Iterator[Hit]:
    """x_val = x[:n] and x_train = x."""
    for name, defs in scope.defs.items():
        if not TRAIN.search(name) or HELD_OUT.search(name) or len(defs) != 1 or defs[0].how != "=":
            continue
        value = defs[0].value
        for step in defs[0].path:
            value = value.elts[step] if isinstance(value, ast.Tuple) and 0 <= step < len(value.elts) else None
        whole = value.id if isinstance(value, ast.Name) else ""
        for other, _, _ in parts.get(whole, []) if whole else ():
            if HELD_OUT.search(other) and not TRAIN.search(other):
                yield Hit(defs[0].node, f"{name} is all of {whole}, the rows of {other} included.")
                break


def overlap(script: Script, first: ast.Slice, second: ast.Slice) -> bool:
    """Whether two slices surely share rows: a prefix and whatever begins before its end, two suffixes, the whole."""
    a, b = bounds(script, first), bounds(script, second)
    if a is None or b is None:
        return False
    (low, high), (start, stop) = a, b
    if high is not None and high < 0 and start is not None and start < 0 and low in (0, None):
        return bool(start < high)
    if any(bound is not None and bound < 0 for bound in (low, high, start, stop)):
        return False
    return bool((stop is None or (low or 0) < stop) and (high is None or (start or 0) < high))


def bounds(script: Script, cut: ast.Slice) -> tuple[Any, Any] | None:
    found = []
    for bound in (cut.lower, cut.upper):
        number = script.constant(bound) if bound is not None else None
        if bound is not None and (not isinstance(number, int) or isinstance(number, bool)):
            return None
        found.append(number)
    return found[0], found[1]
