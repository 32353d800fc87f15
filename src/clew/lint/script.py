"""What rules ask about one file. All answers come from the index and from the values; nothing is walked twice."""

import ast
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from clew.lint.conditions import Known
from clew.lint.index import Class, Def, Module, Scope, Where
from clew.lint.model import Edit, Fix, Related
from clew.lint.project import Project
from clew.lint.value import NOTHING, Alternatives, Value, canonical
from clew.lint.values import Values

GRAD_OFF = frozenset(
    ("torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode")
)
MODULE_BASES = ("torch.nn.", "lightning.", "pytorch_lightning.", "transformers.")


class Hit(NamedTuple):
    """What a rule found: the node at fault and one sentence. `confidence` and `cause` override the rule's own."""

    node: Any
    message: str
    confidence: str = ""
    fix: Fix | None = None
    related: tuple[Related, ...] = ()
    cause: str = ""


def one_a_line(hits: Iterable[Hit]) -> Iterator[Hit]:
    """The first hit on each line, where a rule looks in several ways."""
    seen: set[int] = set()
    for hit in hits:
        if hit.node.lineno not in seen:
            seen.add(hit.node.lineno)
            yield hit


class Script:
    """One file, ready to be asked."""

    def __init__(self, module: Module, project: Project, text: str) -> None:
        self.module, self.project, self.text = module, project, text
        self.values = Values(project)
        self.lines: list[str] = []
        self.tests = is_test(module.path) and has_tests(module)
        self.known: dict[str, Any] = {}
        self.aliases: dict[str, list[str]] = {}
        for scope in module.scopes:
            for name, defs in scope.defs.items():
                for made in defs:
                    if made.how == "import" and not made.value.endswith(f".{name}") and made.value != name:
                        self.aliases.setdefault(made.value.rsplit(".", 1)[-1], []).append(name)

    def afresh(self) -> "Script":
        """The same file, with nothing known yet of what its values are."""
        other = Script.__new__(Script)
        other.module, other.project, other.text = self.module, self.project, self.text
        other.lines, other.tests, other.aliases = self.lines, self.tests, self.aliases
        other.values, other.known = Values(self.project), {}
        return other

    # places

    def where(self, node: ast.AST) -> Where:
        return self.module.where(node)

    def scope(self, node: ast.AST) -> Scope:
        return self.module.where(node).block.scope

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.module.up.get(node)

    def statement(self, node: ast.AST) -> ast.AST:
        return self.module.statement(node)

    def mentions(self, *names: str) -> bool:
        return any(name in self.module.names for name in names)

    def speaks(self, *words: str) -> bool:
        """Whether one of the words, in small letters, is part of any name of the file."""
        if "names" not in self.known:
            self.known["names"] = " ".join(self.module.names).lower()
        names: str = self.known["names"]
        return any(word in names for word in words)

    def class_of(self, scope: Scope) -> Class | None:
        """The class whose method this is, or is nested in."""
        at: Scope | None = scope
        while at is not None and (at.cls is None or at.kind == "class"):
            at = at.parent
        return at.cls if at is not None else None

    def at_home(self, where: Where) -> "Script":
        """The file that a place lies in, ready to be asked the same questions."""
        module = where.block.scope.module
        if module is self.module:
            return self
        others: dict[Module, Script] = self.known.setdefault("scripts", {})
        if module not in others:
            others[module] = Script(module, self.project, "")
        return others[module]

    # names and calls

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Calls of anything by one of these last names, in the order of the source, also under another name given on
        import."""
        calls = self.module.calls
        for name in names:
            yield from calls.get(name, ())
            for alias in self.aliases.get(name, ()):
                yield from calls.get(alias, ())

    def calls_to(self, prefix: str, *names: str) -> Iterator[tuple[ast.Call, str]]:
        """Calls of library functions whose dotted name is `prefix` and one of `names`."""
        for call in self.calls(*names):
            dotted = self.dotted(call.func)
            if dotted.startswith(prefix) and dotted.rsplit(".", 1)[-1] in names:
                yield call, dotted

    def dotted(self, node: ast.AST) -> str:
        """The library's name for what `node` names, or "" when it is something else."""
        parts: list[str] = []
        at = node
        while isinstance(at, ast.Attribute):
            parts.append(at.attr)
            at = at.value
        if not isinstance(at, ast.Name) or node not in self.module.up:
            return ""
        scope: Scope | None = self.scope(node)
        first = True
        while scope is not None:
            defs = scope.defs.get(at.id)
            if defs is not None and (first or scope.kind != "class"):
                if all(made.how == "import" for made in defs):
                    return canonical(".".join([defs[-1].value, *reversed(parts)]))
                values = self.value(node) if len(parts) < 3 else ()
                return values[0].name if len(values) == 1 and values[0].kind == "ref" else ""
            first = False
            scope = scope.parent
        return ".".join(["builtins", at.id, *reversed(parts)])

    def value(self, node: ast.AST) -> Alternatives:
        """What an expression of this file may be. Of another file's nothing is said here."""
        if node not in self.module.up and node not in self.module.place:
            return NOTHING
        return self.values.of(node, self.module)

    def instances(self, node: ast.AST) -> list[str]:
        """Dotted classes when every alternative is an instance of a library's class; otherwise nothing."""
        values = self.value(node)
        if all(value.kind == "instance" and value.name for value in values):
            return [value.name for value in values]
        return []

    def is_module(self, cls: Class) -> bool:
        """Whether a class of the project is a network."""
        return any(base.startswith(MODULE_BASES) and base[-1:] != "?" for base in self.values.bases(cls))

    def loads(self, name: str) -> list[Any]:
        """Every place that reads a variable or an attribute of this last name."""
        if "loads" not in self.known:
            found: dict[str, list[Any]] = {}
            for node in self.module.up:
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    found.setdefault(node.id if isinstance(node, ast.Name) else node.attr, []).append(node)
            self.known["loads"] = found
        table: dict[str, list[Any]] = self.known["loads"]
        return table.get(name.rsplit(".", 1)[-1], [])

    def forget(self) -> None:
        """Let go of everything that was learned, so that the tree can go too."""
        self.known.clear()
        self.values.memo.clear()

    # reading trees

    @staticmethod
    def arg(call: ast.Call, at: int, name: str = "") -> Any:
        """The argument given by position `at` (-1: by name only) or by `name`."""
        for keyword in call.keywords:
            if name and keyword.arg == name:
                return keyword.value
        if 0 <= at < len(call.args) and not any(isinstance(item, ast.Starred) for item in call.args[: at + 1]):
            return call.args[at]
        return None

    @staticmethod
    def starred(call: ast.Call) -> bool:
        """Whether arguments are hidden behind * or **."""
        return any(isinstance(item, ast.Starred) for item in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        )

    def operand(self, call: ast.Call) -> Any:
        """What an operation works on: the tensor of a method, the first argument of a function."""
        if isinstance(call.func, ast.Attribute) and not self.dotted(call.func):
            return call.func.value
        return self.arg(call, 0, "input")

    def constant(self, node: ast.AST | None, default: Any = None) -> Any:
        """The number or word that an expression is, or `default`."""
        if node is None:
            return default
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            value = node.operand.value
            return -value if isinstance(value, int | float) else default
        values = self.value(node)
        if len(values) == 1 and values[0].kind == "const":
            return values[0].const
        if len(values) == 1 and values[0].kind == "unop" and values[0].node is not node:
            return self.constant(values[0].node, default)
        return default

    def defs(self, name: str, scope: Scope) -> list[Def]:
        at: Scope | None = scope
        while at is not None:
            if name in at.defs:
                return at.defs[name]
            at = at.parent
        return []

    def grad_off(self, where: Where) -> ast.AST | None:
        """The `no_grad` that a place lies under, if any: around it, or as a decorator of its function."""
        for block in where.block.chain():
            if block.kind == "with" and isinstance(block.node, ast.With | ast.AsyncWith):
                for item in block.node.items:
                    state = self.grad_state(item.context_expr, where)
                    if state is not None:
                        return None if state else item.context_expr
        scope: Scope | None = where.block.scope
        while scope is not None:
            for decorator in scope.decorators():
                state = self.grad_state(decorator)
                if state is not None:
                    return None if state else decorator
            scope = scope.parent
        return None

    def grad_state(self, node: ast.expr, where: Where | None = None) -> bool | None:
        """What a context manager or decorator does to gradients: switches them off, on, or neither. A place inside says
        which way a switch by a condition goes there."""
        if isinstance(node, ast.IfExp) and where is not None:
            way = Known(where).truth(node.test)
            return None if way is None else self.grad_state(node.body if way else node.orelse, where)
        target = node.func if isinstance(node, ast.Call) else node
        last = target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
        if last not in ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"):
            return None
        if last == "enable_grad":
            return True
        if last == "set_grad_enabled":
            given = self.arg(node, 0, "mode") if isinstance(node, ast.Call) else None
            if where is not None and given is not None and Known(where).truth(given) is False:
                return False
            return self.constant(given) is not False
        given = self.arg(node, 0, "mode") if isinstance(node, ast.Call) else None
        return self.constant(given) is False

    def related(self, value: Value, says: str) -> tuple[Related, ...]:
        """The place where a value was made, when that is not on this screen."""
        if value.where is None or not hasattr(value.node, "lineno"):
            return ()
        return (Related(value.where.block.scope.module.path, value.node.lineno, says),)

    # fixes

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        line, end = node.lineno, node.end_lineno  # type: ignore[attr-defined]
        start = self.column(line, node.col_offset)  # type: ignore[attr-defined]
        stop = self.column(end, node.end_col_offset)  # type: ignore[attr-defined]
        held = self.lines[line - 1 : end]
        if len(held) != end - line + 1:
            return ast.unparse(node)
        held[-1] = held[-1][:stop]
        held[0] = held[0][start:]
        return "\n".join(held)

    def replace(self, node: Any, text: str) -> Edit:
        return Edit(
            node.lineno,
            self.column(node.lineno, node.col_offset),
            node.end_lineno,
            self.column(node.end_lineno, node.end_col_offset),
            text,
        )

    def after(self, node: Any, text: str) -> Edit:
        column = self.column(node.end_lineno, node.end_col_offset)
        return Edit(node.end_lineno, column, node.end_lineno, column, text)

    def before(self, node: Any, text: str) -> Edit:
        column = self.column(node.lineno, node.col_offset)
        return Edit(node.lineno, column, node.lineno, column, text)

    def column(self, line: int, offset: int) -> int:
        """A column in characters from one in bytes."""
        if not self.lines:
            self.lines = self.text.split("\n")
        if not 0 < line <= len(self.lines) or self.lines[line - 1].isascii():
            return offset
        return len(self.lines[line - 1].encode("utf-8", errors="replace")[:offset].decode("utf-8", errors="replace"))


def text(node: ast.AST | None) -> str:
    """A name or a chain of attributes as written; "" for anything else."""
    parts: list[str] = []
    at = node
    while isinstance(at, ast.Attribute):
        parts.append(at.attr)
        at = at.value
    if isinstance(at, ast.Name):
        return ".".join([at.id, *reversed(parts)])
    if isinstance(at, ast.Subscript) and isinstance(at.value, ast.Name | ast.Attribute):
        return ".".join([text(at.value) + "[]", *reversed(parts)])
    return ""


def has_tests(module: Module) -> bool:
    """Whether a file has tests that it leaves to a runner. `test_net.py` may as well be a program that tests a net."""
    return module.path.endswith("conftest.py") or any(
        "test" in scope.name.lower() and scope.name not in module.calls for scope in module.scopes
    )


def is_test(path: str) -> bool:
    """Whether a file holds tests, which build small and odd models on purpose."""
    name = path.replace("\\", "/").rsplit("/", 1)[-1]
    return (name.startswith("test_") and name.endswith(".py")) or name == "conftest.py"
