"""Reading a script before it runs: its arguments, what it imports, what lint says, and the data files that it names."""

import ast
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import NamedTuple

from clew.app import lint
from clew.app.files import contents
from clew.app.slices import called
from clew.app.source_clues import early_errors
from clew.errors import ClewError, did_you_mean
from clew.lint.model import Finding
from clew.lint.source import Unreadable, decode, read_bytes
from clew.observe.files import ENDINGS
from clew.records.place import near

MOST_FILES = 60
NO_DATA = (".toml", ".yaml", ".yml", ".ini", ".cfg")
WRITES = ("save", "dump", "write", "to_", "savefig", "makedirs", "mkdir", "remove", "exists", "filehandler")
WRITTEN = ("out", "save", "log", "ckpt", "checkpoint", "export")


class Named(NamedTuple):
    """Something that the source names, with its line."""

    name: str
    path: str
    line: int
    says: str = ""


class Script(NamedTuple):
    """`arguments` with their defaults, `missing` modules, data files, `there`, with what is in them, or `gone`,
    and what would stop it early."""

    files: tuple[str, ...]
    arguments: tuple[Named, ...]
    missing: tuple[Named, ...]
    findings: tuple[Finding, ...]
    there: tuple[Named, ...]
    gone: tuple[Named, ...]
    early: tuple[str, ...]


def read(path: str) -> Script:
    """The script and the files beside it that it imports. Nothing of it is run."""
    if not os.path.isfile(path):
        beside = os.path.dirname(path) or "."
        names = os.listdir(beside) if os.path.isdir(beside) else []
        raise ClewError(f"there is no script {path}{did_you_mean(os.path.basename(path), names) or '.'}")
    trees: dict[str, ast.Module] = {}
    waiting = [os.path.abspath(path)]
    for at in waiting:  # grows on the way
        try:
            trees[at] = ast.parse(decode(read_bytes(at)))
        except (SyntaxError, ValueError, Unreadable) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            raise ClewError(f"{near(at)}{line} cannot be read as Python: {getattr(error, 'msg', error)}.") from None
        for module, _, _ in imports(trees[at]):
            found = local(module, at, path)
            if found and found not in waiting and len(waiting) < MOST_FILES:
                waiting.append(found)
    named = [(at, item) for at, tree in trees.items() for item in _data(tree)]
    data = {item[0]: Named(item[0], near(at), item[1]) for at, item in reversed(named)}
    return Script(
        tuple(near(at) for at in trees),
        tuple(item for at, tree in trees.items() for item in _arguments(near(at), tree)),
        tuple(_missing(trees, path)),
        lint.lint(lint.Wish(tuple(near(at) for at in trees))).result.findings,
        tuple(item._replace(says=_inside(name)) for name, item in data.items() if os.path.exists(name)),
        tuple(item for name, item in data.items() if not os.path.exists(name)),
        tuple(early_errors([path])),
    )


def imports(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """Modules with their line, and whether the script goes on without them."""
    spared = {
        id(node)
        for held in ast.walk(tree)
        if isinstance(held, ast.Try)
        for part in held.body
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno, id(node) in spared
        elif isinstance(node, ast.ImportFrom):
            head = "." * node.level + (node.module or "")
            yield head, node.lineno, id(node) in spared
            for alias in node.names:
                yield f"{head}{'' if head.endswith('.') else '.'}{alias.name}", node.lineno, True


def local(module: str, importer: str, script: str) -> str:
    """The file of the project that an import means; "" where it means something installed."""
    name = module.lstrip(".")
    base = os.path.dirname(os.path.abspath(script))
    if level := len(module) - len(name):
        base = os.path.dirname(importer)
        for _ in range(level - 1):
            base = os.path.dirname(base)
    stem = os.path.join(base, *name.split("."))
    return next((held for held in (f"{stem}.py", os.path.join(stem, "__init__.py")) if os.path.isfile(held)), "")


def _missing(trees: dict[str, ast.Module], script: str) -> Iterator[Named]:
    told = set(sys.stdlib_module_names)
    beside = os.path.dirname(os.path.abspath(script))
    for at, tree in trees.items():
        for module, line, spared in imports(tree):
            name = module.partition(".")[0]
            if not name or spared or name in told:
                continue
            told.add(name)
            there = os.path.exists(os.path.join(beside, f"{name}.py")) or os.path.isdir(os.path.join(beside, name))
            if not there and find_spec(name) is None:
                yield Named(name, near(at), line)


def _arguments(path: str, tree: ast.Module) -> Iterator[Named]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) == "add_argument" and node.args:
            words = [held.value for held in node.args if isinstance(held, ast.Constant) and isinstance(held.value, str)]
            given = {held.arg: held.value for held in node.keywords}
            name = next((word for word in words if word.startswith("--")), words[0] if words else "")
            needed = isinstance(given.get("required"), ast.Constant) or not name.startswith("-")
            default = ast.unparse(given["default"]) if "default" in given else "(required)" if needed else ""
            if name:
                yield Named(name, path, node.lineno, default)


def _data(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Paths of data files that the source spells out and does not write."""
    left: set[int] = set()
    for node in ast.walk(tree):  # calls before what they are given
        if isinstance(node, ast.Call | ast.JoinedStr):
            held = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            if isinstance(node, ast.JoinedStr) or _writes(called(node).lower(), [str(part.value) for part in held]):
                left |= {id(part) for part in held}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left:
            text, ending = node.value, os.path.splitext(node.value)[1].lower()
            if ending in ENDINGS and ending not in NO_DATA and text != ending and not set(text) & set(" \n{}*%<>|:"):
                yield text, node.lineno


def _writes(name: str, words: list[str]) -> bool:
    if name == "open":
        return any(word[:1] in ("w", "a", "x") for word in words[1:])
    if name == "add_argument":
        return any(word in words[0].lower() for word in WRITTEN if words)
    return name.startswith(WRITES)


def _inside(path: str) -> str:
    return contents(path, os.path.getsize(path)) if os.path.isfile(path) else "a folder"
