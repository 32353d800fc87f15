"""Which lines of the source leave targets out of the loss: those that put the number that the loss ignores in their
place.

The number is -100, or what `ignore_index` is given; names that are set to it count as it. A comparison with it puts
nothing anywhere. A tensor that is filled with it as a whole is most often room for padding, and comes last.
"""

import ast
from collections.abc import Callable

from clew.app.slices import Line, Project, called

USUAL = -100
CHOOSES = ("masked_fill", "masked_fill_", "where", "index_fill_", "fill_", "fill")
FILLS = ("full", "full_like", "new_full", "pad", "pad_sequence")
NAMED = (ast.Name, ast.Attribute)


def left_out(project: Project) -> list[Line]:
    """Where targets are replaced, those that choose which before those that fill."""
    numbers, names = _ignored(project)

    def means(node: ast.AST) -> bool:
        return (
            (isinstance(node, ast.Name) and node.id in names)
            or (isinstance(node, ast.Attribute) and node.attr in names)
            or _number(node) in numbers
        )

    chosen, filled = [], []
    for path, tree in project.modules.items():
        for node in ast.walk(tree):
            if _chooses(node, means):
                chosen.append((path, node.lineno))  # type: ignore[attr-defined]
            elif isinstance(node, ast.Call) and called(node) in FILLS and any(map(means, _given(node))):
                filled.append((path, node.lineno))
    return list(dict.fromkeys([*chosen, *filled]))


def _chooses(node: ast.AST, means: Callable[[ast.AST], bool]) -> bool:
    """`[X] * n`, `labels[rows] = X`, `X if … else …`, `where(…, X, …)` and their like."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (node.left, node.right)
        return any(isinstance(side, ast.List) and len(side.elts) == 1 and means(side.elts[0]) for side in sides)
    if isinstance(node, ast.Assign):
        return isinstance(node.targets[0], ast.Subscript) and means(node.value)
    if isinstance(node, ast.IfExp):
        return means(node.body) or means(node.orelse)
    return isinstance(node, ast.Call) and called(node) in CHOOSES and any(map(means, _given(node)))


def _given(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(held.value for held in node.keywords)]


def _ignored(project: Project) -> tuple[set[int], set[str]]:
    """The numbers that the losses of a project ignore, and the names that are set to one of them."""
    given = [
        held.value
        for tree in project.modules.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for held in node.keywords
        if held.arg == "ignore_index"
    ]
    # Zero and small numbers stand for much else in a source.
    numbers = {USUAL, *(number for node in given if (number := _number(node)) is not None and number < 0)}
    names = {node.id if isinstance(node, ast.Name) else node.attr for node in given if isinstance(node, NAMED)}
    for tree in project.modules.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and _number(node.value) in numbers:
                names |= {held.id for held in node.targets if isinstance(held, ast.Name)}
    return numbers, names


def _number(node: ast.AST) -> int | None:
    """A whole number as it is written, also with a minus."""
    sign = -1 if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else 1
    held = node.operand if isinstance(node, ast.UnaryOp) else node
    if isinstance(held, ast.Constant) and isinstance(held.value, int) and not isinstance(held.value, bool):
        return sign * held.value
    return None
