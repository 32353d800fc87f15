"""What would stop a script in the middle of its run: names that nothing defines, and calls whose arguments do not fit.

Names are pyflakes' business; it does not check calls, which this index can. Both look at the script and at the files of
the project that it imports. Silent where the source does not settle it: names in a file that runs `exec` or writes to
`globals()`, names in annotations and under a test of a version, functions with decorators, calls that spread arguments.
"""

import ast
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from clew.lint.index import Class, Scope
from clew.lint.project import Project
from clew.lint.script import Script
from clew.lint.source import decode, read_bytes
from clew.lint.value import Value
from clew.records.place import near

MOST_FILES = 60
GIVEN = frozenset("display get_ipython profile __builtins__ __path__ __annotations__".split())
WRITES_NAMES = frozenset(("exec", "globals", "vars", "locals"))
VERSIONS = re.compile(r"version|PY[23]|TYPE_CHECKING|implementation")
RAISES = re.compile(r"raises|suppress|assertRaises")
MAKES_CLASSES = frozenset(
    ("object", "torch.nn.Module", "torch.nn.modules.Module", "torch.utils.data.Dataset", "abc.ABC")
)


class Early(NamedTuple):
    path: str
    line: int
    says: str


def early(path: str) -> list[Early]:
    """The errors of a script and of its imports, in the order in which the files are met. Nothing where the script
    itself cannot be read: starting it says why."""
    project = Project([path])
    found: list[Early] = []
    queue = [os.path.abspath(path)]
    for at in queue:  # grows on the way
        module = project.load(at)
        if module is None:
            continue
        text = decode(read_bytes(at))
        script = Script(module, project, text)
        shown = near(at)
        here = [*undefined(at, text), *misfits(script)]
        found += [Early(shown, line, says) for line, says in sorted(set(here))]
        for made in (one for scope in module.scopes for defs in scope.defs.values() for one in defs):
            target = project.file_of(made.value, module) if made.how == "import" else None
            if target is not None and target[0] not in queue and len(queue) < MOST_FILES:
                queue.append(target[0])
    return found


# --- names


def undefined(path: str, text: str) -> Iterator[tuple[int, str]]:
    try:
        from pyflakes import checker, messages
    except ModuleNotFoundError:  # an installation older than this dependency
        return
    tree = ast.parse(text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if called & WRITES_NAMES:
        return
    spared = set(_spared(tree))
    for message in checker.Checker(tree, filename=path).messages:
        if isinstance(message, messages.UndefinedName | messages.UndefinedLocal):
            name = message.message_args[0]
            if name not in GIVEN and (message.lineno, message.col) not in spared:
                late = isinstance(message, messages.UndefinedLocal)
                yield message.lineno, f"{name} is used before it is given a value" if late else f"{name} is not defined"


def _spared(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Where names stand that Python may never look up: in annotations, and under a test of a version."""
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.arg | ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts = [node.returns]
        elif isinstance(node, ast.If) and VERSIONS.search(ast.unparse(node.test)):
            parts = [*node.body, *node.orelse]
        for part in parts:
            for inner in ast.walk(part) if part is not None else ():
                if hasattr(inner, "lineno"):
                    yield inner.lineno, inner.col_offset  # type: ignore[attr-defined]  # just asked


# --- arguments


def misfits(script: Script) -> Iterator[tuple[int, str]]:
    for node in (call for scope in script.module.scopes for call in scope.calls):
        if script.starred(node) or _caught(script, node):
            continue
        says = [_misfit(script, value, node) for value in script.value(node.func)] if _by_name(script, node) else []
        if says and all(says):
            yield node.lineno, says[0]


def _by_name(script: Script, node: ast.Call) -> bool:
    """Whether a name that is called is that of a function or a class, or the name of an object: what `partial` made of
    a function takes other arguments."""
    if not isinstance(node.func, ast.Name):
        return isinstance(node.func, ast.Attribute)
    defs = script.defs(node.func.id, script.scope(node))
    return all(value.kind == "instance" for value in script.value(node.func)) or all(
        made.how in ("def", "class", "import") for made in defs
    )


def _caught(script: Script, node: ast.AST) -> bool:
    """Whether the call stands in a try: then the error may be what is asked for."""
    for block in script.where(node).block.chain():
        items = block.node.items if isinstance(block.node, ast.With) else []
        if block.kind == "try" or any(RAISES.search(ast.unparse(item)) for item in items):
            return True
    return False


def _misfit(script: Script, value: Value, node: ast.Call) -> str:
    """What is wrong with the arguments of a call; "" where nothing is, or nothing is known."""
    found = _taker(script, value, node)
    if found is None:
        return ""
    func, bound = found
    if not isinstance(func.node, ast.FunctionDef | ast.AsyncFunctionDef) or func.decorators():
        return ""
    held = func.node.args
    places = [*held.posonlyargs, *held.args][bound:]
    names = {part.arg for part in (*held.args, *held.kwonlyargs)}
    named = {word.arg for word in node.keywords if word.arg is not None}
    label = f"{func.cls.name}.{func.name}" if func.cls is not None else func.name
    at = f"{label} (line {func.node.lineno})"
    if len(node.args) > len(places) and held.vararg is None:
        return f"{at} takes {_many(len(places))}, and {len(node.args)} are given"
    if named - names and held.kwarg is None:
        return f"{at} takes no argument {min(named - names)!r}"
    needed = places[: max(0, len(places) - len(held.defaults))][len(node.args) :]
    needed += [part for part, default in zip(held.kwonlyargs, held.kw_defaults, strict=True) if default is None]
    missing = [part.arg for part in needed if part.arg not in named]
    return f"{at} is called without {' and '.join(missing)}" if missing else ""


def _many(count: int) -> str:
    return f"{count} argument{'s' * (count != 1)}"


def _spelled(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _taker(script: Script, value: Value, node: ast.Call) -> tuple[Scope, int] | None:
    """The function that takes the arguments, and how many it is given by itself."""
    if value.kind == "function" and value.func is not None and _spelled(node) == value.func.name:
        if value.func.cls is None:
            return value.func, 0
        if value.owner is None or value.owner.kind != "instance" or _overridden(script, value.func):
            return None
        return value.func, 1
    if value.cls is None or value.cls.node.decorator_list or value.cls.node.keywords:
        return None
    if value.kind == "class" and _spelled(node) == value.cls.name:
        known = all(name in MAKES_CLASSES for name in script.values.bases(value.cls))
        found = _method(script, value.cls, "__init__")
        return (found, 1) if found is not None and known and _method(script, value.cls, "__new__") is None else None
    if value.kind == "instance" and not _method(script, value.cls, "__call__") and script.is_module(value.cls):
        found = _method(script, value.cls, "forward")
        return (found, 1) if found is not None and not _overridden(script, found) else None
    return None


def _method(script: Script, cls: Class, name: str) -> Scope | None:
    return next((one.methods[name] for one in script.values.upwards(cls) if name in one.methods), None)


def _overridden(script: Script, func: Scope) -> bool:
    """Whether a class below has a method of that name: which of the two is called is not told by the source."""
    return func.cls is not None and any(func.name in heir.methods for heir in script.project.heirs(func.cls))
