"""Lines of the user's code that a finding about an agent points to.

A watch sees where values meet: at a loss, at a step of the environment. What went wrong there was mostly computed
elsewhere: a reward in the environment, a target in a loop over a rollout. Such lines are looked up in the source of the
modules that were loaded, by the names that they set and use; those with most of the names come first.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import re
import textwrap
from types import FunctionType
from typing import NamedTuple

from clew.observe.places import is_users, shown, users_sources
from clew.records.place import COMPUTED, STORED, Place

MOST = 3
FILES = 64


class Names(NamedTuple):
    """What a line sets (or the function that it returns from is called), what it uses, and what it must come to."""

    sets: str  # counts 2
    uses: tuple[str, ...]  # each counts 1
    least: int
    puts: bool = False  # only lines that put something into a container


FLAG = r"^(next_)?(dones?|d|terminals?|terminated|term|truncated|trunc)$"
REWARD = re.compile(r"rew|^rs?$", re.IGNORECASE)
MASKED = re.compile(r"\b1(\.0*)?\s*-\s*[a-z_]|~\s*\w|not_?done|non_?term|mask|logical_not", re.IGNORECASE)
LOOKED_FOR = {
    "targets": Names(
        r"^$",
        ("gamma|discount", "gamma|discount", "gamma|discount", "next.*(val|q)|bootstrap|nonterm|not_?done", "rew"),
        3,
    ),
    "advantages": Names(r"adv|gae", ("ret", "val", "gae|lam", "std|norm"), 2),
    "policy loss": Names(r"(policy|actor|pg|pi)_?loss|^(pl|pg)$", ("ratio|log_?p", "adv", "critic|^q"), 3),
    "entropy": Names(r"^$", ("^ent(ropy)?(_|$)", "ent(ropy)?_?(coef|weight|beta|bonus|scale)|alpha"), 1),
    "target network": Names(r"^$", ("target|tgt", "tau|polyak|lerp_|copy_|load_state_dict|soft|sync"), 2),
    "made flat": Names(
        r"adv|gae|ret|target|flat", ("flatten|reshape|view|ravel|stack|cat$", "adv|gae", "ret|target"), 3
    ),
    "flag": Names(r"^(dones?|d|terminals?|terminated|masks?)$", (FLAG,), 1, puts=True),
    "stored": Names(r"rew|obs|state|act", ("rew", "obs|state", "act"), 3, puts=True),
}
PUTS = ("append", "add", "push", "store", "put", "insert", "extend", "appendleft")


def reward_lines(kind: type | None) -> list[Place]:
    """The lines of its `step` that set what is given back in the second place; nothing for environments of others."""
    step = None if kind is None else getattr(kind, "step", None)
    if not isinstance(step, FunctionType):
        return []
    step = inspect.unwrap(step)
    file = step.__code__.co_filename
    tree, first = _read(step)
    given = _given_back(tree, 1)
    names = {each.id for part in given for each in ast.walk(part) if isinstance(each, ast.Name)}
    found = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and sets(node, names)]
    found = found or [part.lineno for part in given]
    return [Place(shown(file), first + line - 1, symbol=step.__qualname__) for line in sorted(set(found))[:MOST]]


def returned_lines(kind: type | None) -> list[Place]:
    """The lines of its `step` that give the observation back; nothing for environments of others."""
    step = None if kind is None else getattr(kind, "step", None)
    if not isinstance(step, FunctionType):
        return []
    step = inspect.unwrap(step)
    tree, first = _read(step)
    file = shown(step.__code__.co_filename)
    lines = sorted({part.lineno for part in _given_back(tree, 0)})
    return [Place(file, first + line - 1, symbol=step.__qualname__) for line in lines[:MOST]]


def _read(method: FunctionType) -> tuple[ast.Module, int]:
    """The tree of a method of the user's and its first line; an empty tree for methods of others."""
    nothing = ast.Module(body=[], type_ignores=[]), 1
    if not is_users(method.__code__.co_filename):
        return nothing
    try:
        lines, first = inspect.getsourcelines(method)
        return ast.parse(textwrap.dedent("".join(lines))), first
    except (OSError, SyntaxError, TypeError):
        return nothing


def _given_back(tree: ast.Module, at: int) -> list[ast.expr]:
    """What a `step` gives back in one place of its tuples."""
    return [
        node.value.elts[at]
        for node in ast.walk(tree)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) >= 3
    ]


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
    """The lines that subtract a mean from rewards, in that file or else in another of the user's."""
    if place is None:
        return []
    for file in dict.fromkeys([place.file or "", *users_files()]):
        lines = sorted(_centred(tree_of(Place(file, 1))))
        if lines:
            return [place._replace(file=file, line=line, symbol=None) for line in lines[:MOST]]
    return []


def _centred(tree: ast.Module | None) -> set[int]:
    """Lines that subtract a mean from a reward, or return something less a mean from a class for rewards."""
    found: set[int] = set()
    waiting: list[tuple[ast.AST, bool, bool]] = [] if tree is None else [(tree, False, False)]
    while waiting:
        node, of_rewards, returned = waiting.pop()
        of_rewards |= isinstance(node, ast.ClassDef) and REWARD.search(node.name) is not None
        returned = (returned or isinstance(node, ast.Return)) and not isinstance(node, ast.FunctionDef)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            meant = (of_rewards and returned) or any(REWARD.search(name) for name in called(node.left))
            if meant and any("mean" in name.lower() for name in called(node.right)):
                found.add(node.lineno)
        waiting += [(each, of_rewards, returned) for each in ast.iter_child_nodes(node)]
    return found


def called(node: ast.AST) -> list[str]:
    """Every name in an expression, also those by which a table is asked, as in options["gamma"]."""
    found = [
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Attribute)
    ]
    keys = [
        each.slice.value
        for each in ast.walk(node)
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Constant)
    ]
    return [*found, *(key for key in keys if isinstance(key, str))]


def computing(what: str, *near: Place | None) -> list[Place]:
    """The lines that compute this, those of the files of the given places first among equals."""
    wanted = LOOKED_FOR[what]
    own = [place.file for place in near if place is not None and place.file]
    found: list[tuple[int, int, int, str, int]] = []
    for order, file in enumerate(dict.fromkeys([*own, *users_files()])):
        for line, count, together in _scored(file, what):
            if count >= wanted.least:
                found.append((-count, -together, order, file, line))
    role = STORED if wanted.puts else COMPUTED
    return [Place(file, line, role=role) for *_, file, line in sorted(found)[:MOST]]


def bounding(*near: Place | None) -> list[Place]:
    """The lines that make a target stop at the end of an episode: those that compute it; where these multiply by a flag
    already, the line that stores the flag before them."""
    targets = computing("targets", *near)
    flags = computing("flag", *near)[:1] if targets and _masked(targets[0]) else []
    return [*flags, *targets]


def _masked(place: Place) -> bool:
    """Whether a line masks by a flag, or uses a name that its function set so."""
    tree = tree_of(place)
    held = _statements(tree) if tree is not None else []
    for node, within in held:
        if node.lineno == place.line:
            names = {*called(node)}
            made = [other for other, around in held if around == within and sets(other, names) and not _puts(other)]
            return any(MASKED.search(ast.unparse(each)) for each in (node, *made))
    return False


def users_files() -> list[str]:
    return [shown(file) for file in users_sources() if os.path.exists(file)][:FILES]


@functools.lru_cache(maxsize=256)
def _scored(file: str, what: str) -> list[tuple[int, int, int]]:
    """Lines of a file with how many of the names they have, and how many such lines of their function have together."""
    tree, wanted = tree_of(Place(file, 1)), LOOKED_FOR[what]
    found: list[tuple[int, int, str]] = []
    together: dict[str, set[str]] = {}
    for node, within in _statements(tree) if tree is not None else []:
        if wanted.puts and not _puts(node):
            continue
        set_here = [within] if isinstance(node, ast.Return) else _set_by(node)
        named = called(node)
        count = 2 * any(re.search(wanted.sets, name.lower()) for name in set_here)
        used = [word for word in wanted.uses if any(re.search(word, name.lower()) for name in named)]
        together.setdefault(within, set()).update(used)
        found.append((node.lineno, count + len(used), within))
    return [(line, count, len(together[within])) for line, count, within in found]


def _statements(tree: ast.Module) -> list[tuple[ast.stmt, str]]:
    """Statements that compute something, with the name of the function that they are in."""
    found: list[tuple[ast.stmt, str]] = []
    waiting: list[tuple[ast.AST, str]] = [(tree, "")]
    while waiting:
        node, within = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            within = node.name
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Expr):
            if any(isinstance(each, ast.BinOp | ast.UnaryOp | ast.Call) for each in ast.walk(node)) or _puts(node):
                found.append((node, within))
            continue
        waiting += [(each, within) for each in ast.iter_child_nodes(node)]
    return found


def _set_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Expr):  # what is put into a container
        return called(node.value.func) if isinstance(node.value, ast.Call) else []
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [name for target in targets if target is not None for name in called(target)]


def _puts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(part, ast.Subscript) for target in node.targets for part in parts_of(target))
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in PUTS


def parts_of(target: ast.expr) -> list[ast.expr]:
    return target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def observation_lines(kind: type | None) -> list[Place]:
    """The lines in which an environment of the user's makes up what it gives back in the first place."""
    step = None if kind is None else getattr(kind, "step", None)
    if kind is None or not isinstance(step, FunctionType):
        return []
    found: list[Place] = []
    for method in _makers(kind, inspect.unwrap(step)):
        tree, first = _read(method)
        file = method.__code__.co_filename
        held = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value is not None]
        names = {each for node in held for each in called(node)}
        numbers = {node.lineno for node in held}
        numbers |= {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assign) and {*_set_by(node)} & names}
        found += [Place(shown(file), first + line - 1, symbol=method.__qualname__) for line in sorted(numbers)]
    return found[: 2 * MOST]


def _makers(kind: type, step: FunctionType) -> list[FunctionType]:
    """Methods that `step` calls for the first of what it returns."""
    tree, _ = _read(step)
    names = {name for part in _given_back(tree, 0) for name in called(part)}
    values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and {*_set_by(node)} & names]
    names |= {name for value in values for name in called(value)}
    held = [
        inspect.unwrap(method)
        for name in sorted(names)
        if isinstance(method := getattr(kind, name, None), FunctionType)
    ]
    return [method for method in held if isinstance(method, FunctionType) and is_users(method.__code__.co_filename)]
