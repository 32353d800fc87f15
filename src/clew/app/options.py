"""The settings of a program, each with the line that it is written on: keys of configuration files, defaults of the
command line, fields of a class, constants of a module."""

import ast
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from clew.app.slices import Project, called, spelled

KEY = re.compile(r"""^(\s*(?:- )?)["']?([A-Za-z_][\w.-]*)["']?\s*[:=]\s*(.*?)\s*,?\s*$""")
INSIDE = re.compile(r"""[{,]\s*["']?([A-Za-z_][\w-]*)["']?\s*[:=]""")
SECTION = re.compile(r"^\s*\[+\s*([\w.\"' -]+?)\s*\]+\s*$")
OPENS = ("", "{", "[", "|", ">")
WORDS = re.compile(r"[A-Za-z_]\w*")
SHOWN, CONSTANTS = 40, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.List, ast.Tuple)


class Option(NamedTuple):
    """`name` is the last word of the key, `whole` has the sections that it stands in before it."""

    name: str
    whole: str
    path: str
    line: int
    value: str = ""


def of_file(path: str, lines: list[str]) -> Iterator[Option]:
    """The keys of a configuration file of the usual kinds. What it says is read by its lines and indents only."""
    section, above = "", list[tuple[int, str]]()
    for number, line in enumerate(lines, 1):
        headed = SECTION.match(line)
        if headed:
            section, above = headed[1].strip("\"' "), []
            continue
        found = KEY.match(line)
        if not found or line.lstrip().startswith(("#", ";")):
            continue
        indent, name, value = len(found[1]), found[2], found[3]
        above = [held for held in above if held[0] < indent]
        whole = ".".join(part for part in (section, *(held[1] for held in above), name) if part)
        if value in OPENS:
            above.append((indent, name))
            continue
        yield Option(name.replace("-", "_"), whole, path, number, value)
        for inner in INSIDE.findall(value):
            yield Option(inner.replace("-", "_"), f"{whole}.{inner}", path, number, value)


def of_source(project: Project) -> Iterator[Option]:
    """Defaults and constants. What a function computes is none."""
    for scopes in project.classes.values():
        for scope in scopes:
            yield from _constants(scope.path, scope.node.body, scope.node.name)  # type: ignore[attr-defined]  # a class
    for path, tree in project.modules.items():
        yield from _constants(path, tree.body, os.path.splitext(os.path.basename(path))[0])
        for node in ast.walk(tree) if _parses(tree) else ():
            if isinstance(node, ast.Call) and called(node) == "add_argument":
                words = [held.value for held in node.args if isinstance(held, ast.Constant)]
                name = next((word for word in words if isinstance(word, str) and word.startswith("--")), "")
                default = next((held.value for held in node.keywords if held.arg == "default"), None)
                if name and default is not None:
                    name = name.lstrip("-").replace("-", "_")
                    yield Option(name, name, path, node.lineno, ast.unparse(default))


def _parses(tree: ast.Module) -> bool:
    """Whether a module can have arguments of the command line: most have none and need not be searched."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return any("arg" in ast.unparse(node).lower() for node in imports)


def _constants(path: str, body: list[ast.stmt], owner: str) -> Iterator[Option]:
    for statement in body:
        pairs: list[tuple[ast.AST, ast.AST]] = []
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            if isinstance(value, ast.Dict):
                yield from _table(path, value, f"{owner}.{spelled(target)}")
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            else:
                pairs = [(target, value)]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            pairs = [(statement.target, statement.value)]
        for held, given in pairs:
            if isinstance(held, ast.Name) and isinstance(given, CONSTANTS):
                yield Option(held.id.lower(), f"{owner}.{held.id}", path, statement.lineno, ast.unparse(given)[:SHOWN])


def _table(path: str, held: ast.Dict, owner: str) -> Iterator[Option]:
    for key, value in zip(held.keys, held.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            if isinstance(value, ast.Dict):
                yield from _table(path, value, f"{owner}.{key.value}")
            elif isinstance(value, CONSTANTS):
                yield Option(key.value, f"{owner}.{key.value}", path, key.lineno, ast.unparse(value)[:SHOWN])
