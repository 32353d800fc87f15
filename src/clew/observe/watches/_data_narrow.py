"""Whether arithmetic in eight or sixteen bits wraps around while data are prepared: 200 * 200 is -25536 in int16.

From the first data file that the script opens, Python itself says when a function of the user's returns, for a bounded
number of events. Squares, products, differences and sums that stand in its source are worked out again on the arrays
that it knows by name, as they were written and with room for every value. Only names that are bound once count, so that
the array at the end is the one that the line was given. Names of the script itself are looked at after the first step.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from clew.observe.guard import release
from clew.observe.places import is_users, shown
from clew.observe.watches._data_bytes import CIRCLE, MEANT, Wrapped
from clew.records.place import Place

if TYPE_CHECKING:
    from types import CodeType, FrameType

WINDOWS, EVENTS = 8, 60_000
LEAST, SOME = 64, 100_000
SHARE, DISTINCT = 0.002, 8
ASKS = ("dtype", "iinfo", "result_type", "promote")
"""Who asks for the type of an array knows of it."""
TWO = {"multiply": ast.Mult, "subtract": ast.Sub, "add": ast.Add, "power": ast.Pow}
PARTS = (ast.Name, ast.Subscript, ast.BinOp, ast.Constant, ast.Slice, ast.Tuple, ast.UnaryOp, ast.operator, ast.USub)
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


class Sum(NamedTuple):
    """An expression that may wrap, as it is written and as it is worked out."""

    text: str
    line: int
    names: tuple[str, ...]
    code: CodeType


class Narrow:
    def __init__(self) -> None:
        self.found: Wrapped | None = None
        self.broken = ""
        self.windows = 0
        self._following = False
        self._events = 0
        self._sums: dict[tuple[str, int], list[Sum]] = {}

    def start(self) -> None:
        if self.found or self.broken or self.windows >= WINDOWS:
            return
        self.windows += 1
        self._events = 0
        if not self._following and sys.getprofile() is None:
            self._following = True
            sys.setprofile(self._profile)

    def stop(self) -> None:
        if self._following:
            self._following = False
            if sys.getprofile() == self._profile:
                sys.setprofile(None)

    def script(self) -> None:
        """The names of the script itself."""
        main = sys.modules.get("__main__")
        file = getattr(main, "__file__", None)
        if main is not None and isinstance(file, str) and is_users(file) and self.found is None and not self.broken:
            self._guarded(file, 0, sys.maxsize, vars(main))

    def _profile(self, frame: FrameType, event: str, value: Any) -> None:
        del value
        self._events += 1
        if not self._following:  # it was stopped from another thread
            sys.setprofile(None)
        elif self._events > EVENTS:
            self.stop()
        elif event == "return" and is_users(frame.f_code.co_filename):
            code = frame.f_code
            if code.co_name != "<module>":
                self._guarded(code.co_filename, code.co_firstlineno, frame.f_lineno, frame)

    def _guarded(self, file: str, first: int, until: int, held: FrameType | Mapping[str, Any]) -> None:
        try:
            self._look(file, first, until, held)
        except BaseException as error:  # noqa: BLE001  # an error here would be raised in the script
            release(error)
            self.broken = f"{type(error).__name__}: {error}"
            self.stop()

    def _look(self, file: str, first: int, until: int, held: FrameType | Mapping[str, Any]) -> None:
        sums = self._sums.get((file, first))
        if sums is None:
            sums = self._sums[file, first] = list(sums_in(file, first))
        for one in sums if sums else ():
            known = held if isinstance(held, Mapping) else held.f_locals
            arrays = {name: narrow(known.get(name)) for name in one.names}
            if one.line > until or any(array is None for array in arrays.values()):
                continue
            changed, of = wraps(one.code, arrays)
            if changed:
                self.found = Wrapped(one.text, 0, changed, of, Place(shown(file), one.line))
                self.stop()
                return


def sums_in(file: str, first: int) -> Iterator[Sum]:
    """The expressions of a function, given by its first line, or of the script itself."""
    lines = linecache.getlines(file)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return
    scope = _scope(tree, first) if first else tree
    if scope is None:
        return
    nodes = list(_own(scope))
    text = "\n".join(ast.unparse(node) for node in scope.body) if first else ""
    if MEANT.search(text) or any(word in text for word in ASKS) or CIRCLE.search(getattr(scope, "name", "")):
        return
    bound = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    bound.update(node.arg for node in nodes if isinstance(node, ast.arg))
    above = {child: node for node in nodes for child in ast.iter_child_nodes(node)}
    for node in nodes:
        worked = written(node)
        names = tuple({part.id for part in ast.walk(worked) if isinstance(part, ast.Name)}) if worked else ()
        plain = names and all(bound[name] == 1 and not CIRCLE.search(name) for name in names)
        if (
            not isinstance(node, ast.expr)
            or worked is None
            or not plain
            or _for_its_own_sake(node, above)
            or MEANT.search(lines[node.lineno - 1])
        ):
            continue
        whole = ast.fix_missing_locations(ast.Expression(worked))
        yield Sum(ast.unparse(node), node.lineno, names, compile(whole, file, "eval"))


def _scope(tree: ast.Module, first: int) -> Scope | None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = [node.lineno, *(held.lineno for held in node.decorator_list)]
            if first in lines:
                return node
    return None


def _own(scope: Scope) -> Iterator[ast.AST]:
    """All that stands in it, without what stands in functions inside of it."""
    todo: list[ast.AST] = [*([scope.args] if not isinstance(scope, ast.Module) else []), *scope.body]
    while todo:
        node = todo.pop()
        yield node
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda)
        todo += [] if inner else list(ast.iter_child_nodes(node))


def written(node: ast.AST) -> ast.expr | None:
    """The expression without functions: np.square(x) as x * x."""
    worked: ast.expr | None = node if isinstance(node, ast.BinOp) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        name, given = node.func.attr, node.args
        if node.func.value.id in ("np", "numpy", "torch") and not node.keywords:
            if name == "square" and len(given) == 1:
                worked = ast.BinOp(given[0], ast.Mult(), given[0])
            elif name in TWO and len(given) == 2:
                worked = ast.BinOp(given[0], TWO[name](), given[1])
            elif name == "diff" and len(given) == 1:
                ends = [ast.Slice(ast.Constant(1)), ast.Slice(None, ast.Constant(-1))]
                some = [ast.Tuple([ast.Constant(...), end], ast.Load()) for end in ends]
                later, earlier = (ast.Subscript(given[0], part, ast.Load()) for part in some)
                worked = ast.BinOp(later, ast.Sub(), earlier)
    if worked is None or not isinstance(worked, ast.BinOp):
        return None
    if not isinstance(worked.op, ast.Mult | ast.Sub | ast.Add | ast.Pow):
        return None
    plain = all(isinstance(part, (*PARTS, ast.expr_context)) for part in ast.walk(worked))
    return worked if plain else None


def _for_its_own_sake(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """Whether it is only asked if the result is zero, or how its bits read as another type; or the line is reached on a
    condition, which may be about the very type."""
    at = above.get(node)
    if isinstance(at, ast.Compare):
        return True
    if isinstance(at, ast.Attribute) and (at.attr in ("view", "any", "all", "astype") or "bool" in at.attr):
        return at.attr != "astype" or "float" not in ast.unparse(above.get(at, at))
    while at is not None:
        if isinstance(at, ast.If | ast.IfExp | ast.Try | ast.While | ast.BoolOp):
            return True
        at = above.get(at)
    return False


def narrow(value: Any) -> Any:
    """An array of whole numbers of at most sixteen bits, over the same memory; None for anything else."""
    if isinstance(value, torch.Tensor):
        if value.dtype not in (torch.uint8, torch.int8, torch.int16) or value.device.type != "cpu":
            return None
        value = value.numpy() if value.layout is torch.strided else None
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or value.dtype.itemsize > 2:
        return None
    return value if value.ndim and value.size >= LEAST else None


def wraps(code: CodeType, arrays: Mapping[str, Any]) -> tuple[int, int]:
    """How many of how many values come out as others than with room for all of them; none where it is too few."""
    some = {name: array[: max(2, SOME * len(array) // array.size)] for name, array in arrays.items()}
    room = {name: array.astype(np.int64) for name, array in some.items()}
    bare: dict[str, Any] = {"__builtins__": {}}
    with np.errstate(all="ignore"):
        try:
            result, right = eval(code, bare, some), eval(code, bare, room)  # noqa: S307  # names, slices and signs only
        except (ValueError, IndexError, TypeError, OverflowError):
            return 0, 0
    if not isinstance(result, np.ndarray) or result.dtype.kind not in "iu" or result.dtype.itemsize > 2:
        return 0, 0
    other = result != right
    changed = int(other.sum())
    few = changed <= SHARE * result.size or len(np.unique(result[other])) < DISTINCT
    return (0, 0) if few else (changed, int(result.size))
