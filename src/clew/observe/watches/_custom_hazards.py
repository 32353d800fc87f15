"""Whether a function of the user's may be called once more: what it would do beside computing.

Read from its source, without calling it, and from that of the user's functions which it calls by name.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from clew.observe.places import is_users

DEEP = 3
TALKING = frozenset({"print", "open", "input", "exec", "eval", "breakpoint", "exit", "quit"})
OUTWARD = frozenset(
    "os sys subprocess logging wandb mlflow socket requests pathlib threading multiprocessing tensorboard".split()
)
WRITING = frozenset(
    "save savez savetxt savefig imwrite imsave write writelines add_scalar add_histogram to_csv sleep set_trace".split()
)
COLLECTIVE = frozenset(
    "all_gather all_gather_into_tensor all_reduce all_to_all all_to_all_single reduce_scatter reduce_scatter_tensor "
    "barrier isend irecv all_gather_object broadcast_object_list".split()
)
KEEPING = frozenset("append extend insert add update pop clear remove setdefault put put_nowait".split())


def hazard(function: Any, depth: int = DEEP) -> str:
    """What a function does beside computing, as words that follow its name; nothing when it only computes."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(function, FunctionType):
        return "is not written in Python"
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return "has no readable source"
    if not isinstance(tree, ast.FunctionDef):
        return "has no readable source"
    own = _own_names(tree)
    for node in ast.walk(tree):
        said = _does(node, own, function.__globals__)
        if said:
            return f"{said} (line {function.__code__.co_firstlineno + getattr(node, 'lineno', 1) - 1})"
    if depth:
        for called in _called(tree, own, function.__globals__):
            said = hazard(called, depth - 1)
            if said:
                return f"calls {called.__name__}, which {said}"
    return ""


def _own_names(tree: ast.FunctionDef) -> set[str]:
    """What is the function's own: arguments, and what it assigns."""
    held = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    held |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return held


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _does(node: ast.AST, own: set[str], names: dict[str, Any]) -> str:
    if isinstance(node, ast.Global | ast.Nonlocal):
        return f"changes {node.names[0]}, which is not local to it"
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        root = _root(node)
        if root and root not in own:
            return f"changes {root}, which is not local to it"
    if isinstance(node, ast.Name) and node.id not in own and isinstance(node.ctx, ast.Load):
        return _of_name(node.id, names)
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        if node.attr in COLLECTIVE or (node.attr == "distributed" and _root(node) not in own):
            return "communicates with other processes"
        if node.attr in WRITING:
            return f"calls {node.attr}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING:
        root = _root(node.func)
        if root and root not in own and not isinstance(names.get(root), ModuleType):
            return f"changes {root}, which is not local to it"
    return ""


def _of_name(name: str, names: dict[str, Any]) -> str:
    value = names.get(name)
    if name in TALKING and value is None:
        return f"calls {name}"
    if isinstance(value, ModuleType):
        if value.__name__.startswith("torch.distributed"):
            return "communicates with other processes"
        if value.__name__.partition(".")[0] in OUTWARD:
            return f"uses {name}"
    if getattr(value, "__module__", None) is not None and str(value.__module__).startswith("torch.distributed"):
        return "communicates with other processes"
    return ""


def _called(tree: ast.FunctionDef, own: set[str], names: dict[str, Any]) -> Iterator[FunctionType]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in own:
            value = names.get(node.func.id)
            if isinstance(value, FunctionType) and is_users(value.__code__.co_filename):
                yield value
