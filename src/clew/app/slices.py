"""From a line where a value is used back to the lines that it came from, by reading the source.

Follows names through assignments, into functions of the project and out of them to where they are called. It does not
run anything and gives up where it cannot follow: then the chain is shorter.
"""

import ast
import os
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
Line = tuple[str, int]
Slots = tuple[int, ...]
HANDS_ON = ("Subset", "list", "tuple", "iter", "next", "tqdm")
DEEP, LONG = 12, 40


class Scope(NamedTuple):
    """A function or a whole module, in a file."""

    path: str
    node: ast.AST
    owner: ast.ClassDef | None = None


class Project:
    """The user's files, as trees."""

    def __init__(self, texts: dict[str, list[str]]) -> None:
        self.modules: dict[str, ast.Module] = {}
        self.functions: dict[str, list[Scope]] = {}
        self.classes: dict[str, list[Scope]] = {}
        for path, lines in texts.items():
            try:
                self.modules[os.path.realpath(path)] = ast.parse("\n".join(lines))
            except (SyntaxError, ValueError):
                continue
        self._within: dict[str, list[Scope]] = {}
        methods: set[int] = set()
        for path, tree in self.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    self.classes.setdefault(node.name, []).append(Scope(path, node))
                    for part in node.body:
                        if isinstance(part, Function):
                            methods.add(id(part))
                            self._add(part.name, Scope(path, part, node))
                elif isinstance(node, Function) and id(node) not in methods:
                    self._add(node.name, Scope(path, node))

    def _add(self, name: str, scope: Scope) -> None:
        self.functions.setdefault(name, []).append(scope)
        self._within.setdefault(scope.path, []).append(scope)

    def without(self, word: str) -> list[Line]:
        """The lines that functions return from where an argument of theirs, which has this word in its name and which
        they ask, says no."""
        found = []
        for held in (scope for scopes in self.functions.values() for scope in scopes):
            body = held.node.body if isinstance(held.node, Function) else []
            asked = {arg.arg for arg in ast.walk(held.node) if isinstance(arg, ast.arg) and word in arg.arg.lower()}
            for at, part in enumerate(body):
                if isinstance(part, ast.If) and _asks(part.test, asked) and isinstance(part.body[-1], ast.Return):
                    other = part.orelse or body[at + 1 :]
                    found += [(held.path, last.lineno) for last in other[-1:] if isinstance(last, ast.Return)]
        return found

    def scope(self, path: str, line: int) -> Scope | None:
        """The innermost function around a line, else its module."""
        path = os.path.realpath(path)
        tree = self.modules.get(path)
        if tree is None:
            return None
        around = [
            scope
            for scope in self._within.get(path, ())
            if scope.node.lineno <= line <= (scope.node.end_lineno or 0)  # type: ignore[attr-defined]
        ]
        # A method is listed with its class first, and again as a bare function.
        return max(around, key=lambda held: (_first(held.node), held.owner is not None), default=Scope(path, tree))

    def calls(self, path: str, line: int) -> Iterator[ast.Call]:
        """The calls that begin on a line or span it, outermost first."""
        tree = self.modules.get(os.path.realpath(path))
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
                yield node


class Trail:
    """The lines of one search, nearest to the use first."""

    def __init__(self, project: Project, wide: bool = False) -> None:
        self.project = project
        self.wide = wide  # also the lines that what shifts or scales the rows was set on
        self.lines: list[Line] = []
        self._seen: set[tuple[int, Slots]] = set()
        self._entered: dict[int, tuple[Scope, ast.Call]] = {}  # by which call a function was entered

    def follow(self, scope: Scope, expression: ast.AST | None, before: int, slots: Slots = ()) -> None:
        """`slots` is which part of a tuple is meant, and of that; `before` is the line that the value is used on."""
        mark = (id(expression), slots)
        if expression is None or mark in self._seen or len(self._seen) > LONG or len(self.lines) > DEEP:
            return
        self._seen.add(mark)
        if isinstance(expression, ast.Name):
            self._name(scope, expression.id, before, slots)
        elif isinstance(expression, ast.Call):
            self._call(scope, expression, before, slots)
        elif isinstance(expression, ast.Attribute):
            if not self._attribute(scope, expression, slots):
                self.follow(scope, expression.value, before)
        elif isinstance(expression, ast.Subscript):
            at = expression.slice.value if isinstance(expression.slice, ast.Constant) else None
            self.follow(scope, expression.value, before, (at, *slots) if isinstance(at, int) else slots)
        elif isinstance(expression, ast.Starred | ast.Await | ast.NamedExpr):
            self.follow(scope, expression.value, before, slots)
        elif isinstance(expression, ast.Tuple | ast.List):
            self._tuple(scope, expression, before, slots)
        elif isinstance(expression, ast.ListComp | ast.GeneratorExp):
            self.follow(scope, expression.elt, before, slots)
            self.follow(scope, expression.generators[0].iter, before)
        elif isinstance(expression, ast.BinOp):
            plain = isinstance(expression.left, ast.Constant)  # rows stand first; what shifts or scales them after
            other = expression.left if plain else expression.right
            if self.wide and isinstance(other, ast.Name):
                found = [held.lineno for held, _, _ in _assigned(scope.node, other.id) if held.lineno <= before]
                for line in found[-1:]:
                    self._step(scope, line)
            self.follow(scope, expression.right if plain else expression.left, before, slots)
        elif isinstance(expression, ast.IfExp | ast.UnaryOp):
            for operand in ast.iter_child_nodes(expression):
                self.follow(scope, operand, before, slots)

    def _tuple(self, scope: Scope, held: ast.Tuple | ast.List, before: int, slots: Slots) -> None:
        parts, rest = held.elts, slots
        if slots and not any(isinstance(part, ast.Starred) for part in parts):
            parts, rest = parts[slots[0] : slots[0] + 1 or None], slots[1:]
        for part in parts:
            if slots and not isinstance(part, ast.Name | ast.Constant):
                self._step(scope, part.lineno)
            self.follow(scope, part, before, rest)

    def _step(self, scope: Scope, line: int) -> None:
        if (scope.path, line) not in self.lines:
            self.lines.append((scope.path, line))

    def _name(self, scope: Scope, name: str, before: int, slots: Slots) -> None:
        found = list(_assigned(scope.node, name))
        earlier = [held for held in found if held[0].lineno <= before] or found
        if earlier:
            statement, value, at = earlier[-1]
            self._step(scope, statement.lineno)
            self.follow(scope, value, statement.lineno - 1, (*at, *slots))
        elif isinstance(scope.node, Function):
            names = [argument.arg for argument in (*scope.node.args.posonlyargs, *scope.node.args.args)]
            if name in names:
                self._callers(scope, names.index(name), name, slots)
            else:
                outer = self.project.scope(scope.path, scope.node.lineno - 1) or scope
                around = outer if _first(outer.node) < scope.node.lineno and _encloses(outer.node, scope.node) else None
                self._name(
                    around or Scope(scope.path, self.project.modules[scope.path]), name, scope.node.lineno, slots
                )

    def _callers(self, scope: Scope, position: int, name: str, slots: Slots) -> None:
        assert isinstance(scope.node, Function)
        if id(scope.node) in self._entered:
            outer, call = self._entered[id(scope.node)]
            given, within = _given(call, position - (scope.owner is not None), name)
            self.follow(outer, given, call.lineno, (*within, *slots))
            return
        wanted = scope.owner.name if scope.owner is not None and scope.node.name == "__init__" else scope.node.name
        position -= scope.owner is not None
        for path, tree in self.project.modules.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and called(node) == wanted:
                    given, within = _given(node, position, name)
                    around = self.project.scope(path, node.lineno)
                    if given is not None and around is not None:
                        self.follow(around, given, node.lineno, (*within, *slots))

    def _attribute(self, scope: Scope, held: ast.Attribute, slots: Slots) -> bool:
        """`self.x`: where the class sets it."""
        if not (isinstance(held.value, ast.Name) and held.value.id == "self" and scope.owner is not None):
            return False
        for part in scope.owner.body:
            for statement, value, at in _assigned(part, f"self.{held.attr}") if isinstance(part, Function) else ():
                inside = Scope(scope.path, part, scope.owner)
                self._step(inside, statement.lineno)
                self.follow(inside, value, statement.lineno - 1, (*at, *slots))
                return True
        return False

    def _call(self, scope: Scope, node: ast.Call, before: int, slots: Slots) -> None:
        name = called(node)
        if name == "train_test_split" and slots and slots[0] // 2 < len(node.args):
            self.follow(scope, node.args[slots[0] // 2], before, slots[1:])
            return
        if name == "TensorDataset" and slots and node.args:
            at = slots[0] if -len(node.args) <= slots[0] < len(node.args) else -1
            self.follow(scope, node.args[at], before, slots[1:])
            return
        self._into(scope, node, name, slots)
        if isinstance(node.func, ast.Attribute):
            self.follow(scope, node.func.value, before)
        kept = slots if name.endswith("Loader") or name in HANDS_ON else ()
        for part in (*node.args[:4], *(held.value for held in node.keywords[:2])):
            self.follow(scope, part, before, kept)

    def _into(self, scope: Scope, node: ast.Call, name: str, slots: Slots) -> None:
        """What a function of the project returns, or what an object of a class of it gives for an index."""
        inside = self.project.functions.get(name, [])
        if name in self.project.classes and slots:
            classes = {id(held.node) for held in self.project.classes[name]}
            items = self.project.functions.get("__getitem__", [])
            inside = [held for held in items if id(held.owner) in classes]
        if len({id(held.node) for held in inside}) == 1:
            mark = id(inside[0].node)
            if mark in self._entered:
                return
            if name not in self.project.classes:
                self._entered[mark] = (scope, node)
            for line, value in returned(inside[0].node):
                if not (slots and isinstance(value, ast.Tuple | ast.List)):  # of a tuple only one part is meant
                    self._step(inside[0], line)
                self.follow(inside[0], value, line, slots)
            self._entered.pop(mark, None)


def _given(node: ast.Call, position: int, name: str) -> tuple[ast.AST | None, Slots]:
    """What a call gives for an argument, and which part of it where a tuple is spread out."""
    for held in node.keywords:
        if held.arg == name:
            return held.value, ()
    for at, argument in enumerate(node.args[: position + 1]):
        if isinstance(argument, ast.Starred):
            return argument.value, (position - at,)
    return (node.args[position], ()) if 0 <= position < len(node.args) else (None, ())


def returned(node: ast.AST) -> Iterator[tuple[int, ast.AST]]:
    for statement in ast.walk(node):
        if isinstance(statement, ast.Return | ast.Yield) and statement.value is not None:
            yield statement.lineno, statement.value


def _assigned(node: ast.AST, name: str) -> Iterator[tuple[ast.stmt, ast.AST, Slots]]:
    """The statements of a function or module, not of functions inside it, that bind a name: with the value, and which
    part of it."""
    for statement in _statements(node):
        pairs: list[tuple[ast.AST, ast.AST]] = []
        if isinstance(statement, ast.Assign):
            pairs = [(target, statement.value) for target in statement.targets]
        elif isinstance(statement, ast.AnnAssign | ast.AugAssign) and statement.value is not None:
            pairs = [(statement.target, statement.value)]
        elif isinstance(statement, ast.For | ast.AsyncFor):
            pairs = [(statement.target, statement.iter)]
        elif isinstance(statement, ast.With | ast.AsyncWith):
            pairs = [(item.optional_vars, item.context_expr) for item in statement.items if item.optional_vars]
        for target, value in pairs:
            slots = _within(target, name)
            if slots is None:
                continue
            same = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
            if slots and same and len(value.elts) == len(target.elts):  # type: ignore[attr-defined]
                yield statement, value.elts[slots[0]], slots[1:]  # type: ignore[attr-defined]
            else:
                yield statement, value, slots


def _within(target: ast.AST, name: str) -> Slots | None:
    """Which part of a target a name is; () when it is all of it."""
    if spelled(target) == name:
        return ()
    for at, part in enumerate(target.elts) if isinstance(target, ast.Tuple | ast.List) else ():
        inner = _within(part, name)
        if inner is not None:
            return (at, *inner)
    return None


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, Function | ast.ClassDef):
            continue
        if isinstance(part, ast.stmt):
            yield part
        if isinstance(part, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(part)


def spelled(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def called(node: ast.Call) -> str:
    """The last word of what is called."""
    function = node.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _first(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _encloses(outer: ast.AST, inner: ast.AST) -> bool:
    return not isinstance(outer, ast.Module) and any(part is inner for part in ast.walk(outer))


def named(node: ast.AST) -> Iterator[tuple[str, ast.AST, int]]:
    """All names that a function or module gives, each with its value and line."""
    for statement in _statements(node):
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                several = isinstance(target, ast.Tuple | ast.List)
                parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                value = statement.value
                values = value.elts if isinstance(value, ast.Tuple | ast.List) and several else [value] * len(parts)
                for part, held in zip(parts, values, strict=False):
                    if spelled(part):
                        yield spelled(part), held, statement.lineno


def _asks(test: ast.expr, names: set[str]) -> bool:
    """Whether a condition is one of these names, or compares one with something."""
    held = test.left if isinstance(test, ast.Compare) else test
    return isinstance(held, ast.Name) and held.id in names
