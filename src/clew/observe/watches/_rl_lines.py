"""Where a reward comes from in the user's code: the environment that makes it up, and lines that take a mean off it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType

from clew.observe.places import is_users, shown
from clew.records.place import Place

MOST = 3


def reward_lines(kind: type | None) -> list[Place]:
    """The lines of its `step` that set what is given back in the second place; nothing for environments of others."""
    step = None if kind is None else getattr(kind, "step", None)
    if not isinstance(step, FunctionType):
        return []
    step = inspect.unwrap(step)
    file = step.__code__.co_filename
    if not is_users(file):
        return []
    try:
        lines, first = inspect.getsourcelines(step)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return []
    given = [
        node.value.elts[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) >= 3
    ]
    names = {each.id for part in given for each in ast.walk(part) if isinstance(each, ast.Name)}
    found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and sets(node, names)]
    found = found or [part.lineno for part in given]
    return [Place(shown(file), first + line - 1, symbol=step.__qualname__) for line in sorted(set(found))[:MOST]]


def sets(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id in names
    if not isinstance(node, ast.Assign):
        return False
    return any(isinstance(each, ast.Name) and each.id in names for part in node.targets for each in ast.walk(part))


def tree_of(place: Place | None) -> ast.Module | None:
    """The source of the file that a place is in, parsed; None where it cannot be read."""
    if place is None or not place.file:
        return None
    try:
        with open(place.file, encoding="utf-8") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


def centred_lines(place: Place | None) -> list[Place]:
    """The lines of a file that subtract a mean from something that is called a reward."""
    tree = tree_of(place)
    if place is None or tree is None:
        return []
    lines = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and any("rew" in name.lower() for name in called(node.left))
        and any("mean" in name.lower() for name in called(node.right))
    }
    return [place._replace(line=line, symbol=None) for line in sorted(lines)[:MOST]]


def called(node: ast.AST) -> list[str]:
    """Every name in an expression."""
    return [
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    ]
