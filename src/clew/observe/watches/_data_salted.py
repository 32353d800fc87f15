"""Lines of the script that make numbers of strings with `hash`: Python salts it anew in every process.

Only lines that hash many different strings and reduce the result to a range count: that is how words and other names
become rows of a table. What is printed, put into a name or compared within one process may differ without harm.
"""

from __future__ import annotations

import ast
import builtins
import functools
import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

from clew.observe.envs import patches_of
from clew.observe.patches import unframe
from clew.observe.places import is_users, shown
from clew.records.place import Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from clew.observe.recorder import Recorder

MANY = 20
LINES, LOOKS = 32, 50_000
SAYING = frozenset(("str", "repr", "print", "format", "hex"))


def salted() -> bool:
    """Whether strings have other hashes in every process. A fixed seed for them is set before Python starts."""
    return bool(sys.flags.hash_randomization) and not os.environ.get("PYTHONHASHSEED", "").isdigit()


class Salted:
    """The lines that hash strings, with some of those that they hashed."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = weakref.ref(recorder)
        self.left = LOOKS
        self.lines: dict[tuple[CodeType, int], set[int]] = {}

    def attach(self) -> None:
        patches = patches_of(self.recorder())
        if patches is not None and salted():
            patches.replace(builtins, "hash", functools.partial(_around, weakref.ref(self)))

    def note(self, number: int, code: CodeType, line: int) -> None:
        self.left -= 1
        held = self.lines.get((code, line))
        if held is None:
            if len(self.lines) >= LINES or not is_users(code.co_filename):
                return
            held = self.lines[code, line] = set()
        if len(held) < MANY:
            held.add(number)

    def numbering(self) -> Place | None:
        """The line that numbers many strings by their hash."""
        for (code, line), strings in self.lines.items():
            if len(strings) >= MANY and reduced(source_of(code.co_filename), line):
                return Place(shown(code.co_filename), line, symbol=code.co_qualname)
        return None


def _around(held: weakref.ref[Salted], original: Callable[[Any], int]) -> Callable[[Any], int]:
    def hashed(value: Any, /) -> int:
        try:
            number = original(value)
        except BaseException as error:
            unframe(error)
            raise
        kind = type(value)
        if kind is str or (kind is tuple and any(type(part) is str for part in value)):
            lines = held()
            if lines is not None and lines.left > 0:
                frame = sys._getframe(1)
                lines.note(number, frame.f_code, frame.f_lineno)
        return number

    return hashed


def source_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def reduced(source: str, line: int) -> bool:
    """Whether the hash that is taken on this line is reduced to a range, there or by the name that it is given."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    above = {below: node for node in ast.walk(tree) for below in ast.iter_child_nodes(node)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return any(
        node.lineno <= line <= (node.end_lineno or node.lineno) and _ranged(node, above)
        for node in calls
        if isinstance(node.func, ast.Name) and node.func.id == "hash"
    )


def _ranged(node: ast.AST, above: dict[ast.AST, ast.AST], followed: bool = True) -> bool:
    ranged = False
    at: ast.AST | None = node
    while isinstance(at, ast.expr):
        up = above.get(at)
        if isinstance(up, ast.BinOp) and isinstance(up.op, ast.Mod | ast.BitAnd) and (up.left is at or not ranged):
            ranged = True
        if isinstance(up, ast.JoinedStr | ast.FormattedValue):
            return False
        if isinstance(up, ast.Call) and isinstance(up.func, ast.Name) and up.func.id in SAYING:
            return False
        at = up
    if ranged or not followed or not isinstance(at, ast.Assign) or not isinstance(at.targets[0], ast.Name):
        return ranged
    name, within = at.targets[0].id, above.get(at)
    while within is not None and not isinstance(within, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        within = above.get(within)
    uses = [] if within is None else [each for each in ast.walk(within) if isinstance(each, ast.Name)]
    return any(
        each.id == name and isinstance(each.ctx, ast.Load) and _ranged(each, above, followed=False) for each in uses
    )
