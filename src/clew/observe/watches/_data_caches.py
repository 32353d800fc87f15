"""Whether a source text makes a file of some name only when it is not there yet: read from its syntax, never run."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

WRITES = set(
    "save savez savez_compressed dump to_parquet to_csv to_pickle to_feather to_json to_hdf write_text "
    "write_bytes save_to_disk save_file".split()
)
ASKS = {"exists", "isfile", "is_file"}
WEIGHTS = re.compile(
    r"model|ckpt|checkpoint|weight|best|last|optim|state|config|result|metric|history|log", re.IGNORECASE
)


def makes(text: str, name: str) -> int:
    """The line that writes the file, 0 when the text does not write it or writes it every time."""
    if name not in text and not any(part in text for part in _endings(name)):
        return 0
    if WEIGHTS.search(name):
        return 0
    tree = _tree(text)
    if tree is None:
        return 0
    bound: set[str] = set()
    for _ in range(4):
        before = len(bound)
        _bind(tree, name, bound)
        if len(bound) == before:
            break
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    asked = any(_called(call) in ASKS and _speaks_of(call, name, bound) for call in calls)
    writes = [call.lineno for call in calls if _writes(call) and _speaks_of(call, name, bound) and not _weights(call)]
    return min(writes) if asked and writes else 0


@lru_cache(maxsize=1)
def _tree(text: str) -> ast.AST | None:
    """One text is asked about many names in a row."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _endings(name: str) -> list[str]:
    """Tails of the name that an f-string may hold: "_cache.npy" of "train_cache.npy"."""
    return [name[at:] for at in range(1, len(name)) if name[at] in "_-" and len(name) - at >= 6]


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _writes(call: ast.Call) -> bool:
    if _called(call) in WRITES:
        return True
    modes = [
        held.value
        for held in [*call.args[1:], *(word.value for word in call.keywords)]
        if isinstance(held, ast.Constant)
    ]
    return _called(call) == "open" and any(isinstance(mode, str) and mode[:1] in "wx" for mode in modes)


def _weights(call: ast.Call) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "state_dict" for node in ast.walk(call))


def _speaks_of(node: ast.AST, name: str, bound: set[str]) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            text = part.value
            if text.endswith(name) or (len(text) >= 6 and text in _endings(name)):
                return True
        elif (isinstance(part, ast.Name) and part.id in bound) or (
            isinstance(part, ast.Attribute) and part.attr in bound
        ):
            return True
    return False


def _bind(tree: ast.AST, name: str, bound: set[str]) -> None:
    """Names that hold the path: assigned from it, or parameters that it is passed to."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and not _loads(node.value):
            if _speaks_of(node.value, name, bound):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name):
                        bound.add(target.id)
                    elif isinstance(target, ast.Attribute):
                        bound.add(target.attr)
        elif isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            opened = node.context_expr
            if isinstance(opened, ast.Call) and _writes(opened) and _speaks_of(opened, name, bound):
                bound.add(node.optional_vars.id)
        elif isinstance(node, ast.Call) and _called(node) in functions:
            parameters = functions[_called(node)].args.args
            for parameter, argument in zip(parameters, node.args, strict=False):
                if _speaks_of(argument, name, bound):
                    bound.add(parameter.arg)


def _loads(value: ast.AST) -> bool:
    """A value read from the file is not its path."""
    return any(
        isinstance(node, ast.Call) and _called(node) in ("load", "open", "read_parquet") for node in ast.walk(value)
    )
