"""One walk over a file: scopes, definitions, blocks, calls. Everything later asks this index and never walks again."""

import ast
from typing import Any, NamedTuple

LOOPS = ("for", "while")
# What a `with` or the body of a `try` defines is defined afterwards too.
OPEN = ("with", "try", "finally")


class Block:
    """A stretch of statements that run one after the other, and what it hangs under."""

    __slots__ = ("kind", "node", "parent", "scope")

    def __init__(self, scope: "Scope", parent: "Block | None", kind: str, node: ast.AST) -> None:
        self.scope, self.parent, self.kind, self.node = scope, parent, kind, node

    def chain(self) -> "list[Block]":
        """This block and those around it in the same scope, innermost first."""
        found: list[Block] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return found

    def loops(self) -> "list[Block]":
        """The loops around, innermost first."""
        return [block for block in self.chain() if block.kind in LOOPS]


class Where(NamedTuple):
    """When a statement runs: its block, and its number in the file's order."""

    block: Block
    order: int


class Def(NamedTuple):
    """One way in which a name gets its value. `path` leads into the value when it is unpacked (-1: a starred rest)."""

    name: str
    how: str  # = aug for with def class import param except walrus del other
    value: Any
    path: tuple[int, ...]
    where: Where
    node: ast.AST


class Scope:
    """A function, a lambda, the body of a class, or the file itself."""

    __slots__ = (
        "attr_sets",
        "body",
        "calls",
        "children",
        "cls",
        "defs",
        "kind",
        "loops",
        "me",
        "module",
        "name",
        "node",
        "outside",
        "params",
        "parent",
        "returns",
        "withs",
        "yields",
    )

    def __init__(self, module: "Module", parent: "Scope | None", kind: str, node: ast.AST, name: str) -> None:
        self.module, self.parent, self.kind, self.node, self.name = module, parent, kind, node, name
        self.cls: Class | None = None
        self.me = ""
        self.params: list[str] = []
        self.defs: dict[str, list[Def]] = {}
        self.outside: set[str] = set()
        self.returns: list[tuple[ast.expr, Where]] = []
        self.yields = False
        self.calls: list[ast.Call] = []
        self.attr_sets: list[tuple[ast.Attribute, Any, Where]] = []
        self.loops: list[Block] = []
        self.withs: list[Block] = []
        self.children: list[Scope] = []
        self.body = Block(self, None, "body", node)

    def body_where(self) -> Where:
        return Where(self.parent.body if self.parent is not None else self.body, 1 << 60)

    def decorators(self) -> list[ast.expr]:
        return self.node.decorator_list if isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef) else []


class Class:
    """A class, its methods, and what is assigned to attributes of its instances."""

    __slots__ = ("attrs", "body", "methods", "module", "name", "node", "where")

    def __init__(self, module: "Module", node: ast.ClassDef, body: Scope, where: Where) -> None:
        self.module, self.node, self.name, self.body, self.where = module, node, node.name, body, where
        self.methods: dict[str, Scope] = {}
        self.attrs: dict[str, list[Def]] = {}


class Module:
    """The index of one file."""

    def __init__(self, path: str, name: str, tree: ast.Module, package: bool = False) -> None:
        self.path, self.name, self.tree, self.package = path, name, tree, package
        self.up: dict[ast.AST, ast.AST] = {}
        self.place: dict[ast.AST, Where] = {}
        self.names: set[str] = set()
        self.calls: dict[str, list[ast.Call]] = {}
        self.nodes: dict[type, list[Any]] = {}
        self.statements: dict[type, list[Any]] = {}
        self.scopes: list[Scope] = []
        self.classes: list[Class] = []
        self.functions: dict[ast.AST, Scope] = {}
        self.comprehended: set[str] = set()
        self.subscript_sets: list[tuple[ast.Subscript, Any, Where]] = []
        self.main = Scope(self, None, "module", tree, "")
        self.small: frozenset[str] | None = None

    def where(self, node: ast.AST) -> Where:
        """The statement that `node` belongs to, as a place in the flow."""
        place, up = self.place, self.up
        while node not in place:
            node = up[node]
        return place[node]

    def lowered(self) -> frozenset[str]:
        """The names of classes that the file defines or imports, in small letters."""
        if self.small is None:
            self.small = frozenset(name.lower() for name in self.main.defs if name[:1].isupper())
        return self.small

    def forget(self) -> None:
        """Let go of the tree. The index refers to itself in circles, which would keep it alive."""
        nothing = ast.Module(body=[], type_ignores=[])
        for scope in self.scopes:
            scope.node = scope.body.node = nothing
            scope.defs, scope.calls, scope.attr_sets, scope.returns = {}, [], [], []
            scope.loops, scope.withs, scope.children = [], [], []
        for cls in self.classes:
            cls.methods, cls.attrs = {}, {}
            cls.node = ast.ClassDef(name=cls.name, bases=[], keywords=[], body=[], decorator_list=[])
        self.up, self.place, self.calls, self.nodes, self.statements = {}, {}, {}, {}, {}
        self.scopes, self.classes, self.functions, self.subscript_sets = [], [], {}, []
        self.tree = nothing

    def statement(self, node: ast.AST) -> ast.AST:
        while node not in self.place:
            node = self.up[node]
        return node


def index(path: str, name: str, tree: ast.Module, package: bool = False) -> Module:
    """Walk `tree` once."""
    module = Module(path, name, tree, package)
    walker = _Walker(module)
    walker.enter(module.main)
    walker.run(tree.body, module.main.body)
    return module


def _fields() -> dict[type, tuple[str, ...]]:
    """Of each kind of expression, the fields that hold expressions."""
    table: dict[type, tuple[str, ...]] = {}
    skip = {"ctx", "annotation", "op", "ops", "id", "attr", "arg", "kind", "conversion", "is_async", "type_comment"}
    for kind in vars(ast).values():
        if isinstance(kind, type) and issubclass(kind, ast.AST):
            table[kind] = tuple(field for field in kind._fields if field not in skip)
    return table


FIELDS = _fields()
AST = ast.AST


class _Walker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.up, self.place, self.names = module.up, module.place, module.names
        self.calls, self.nodes, self.statements = module.calls, module.nodes, module.statements
        self.order = 0
        self.scope = module.main

    def enter(self, scope: Scope) -> Scope:
        outer, self.scope = self.scope, scope
        self.module.scopes.append(scope)
        if scope.parent is not None:
            scope.parent.children.append(scope)
        return outer

    # statements

    def run(self, body: list[ast.stmt], block: Block) -> None:
        place, statements, handlers = self.place, self.statements, HANDLERS
        for node in body:
            self.order += 1
            where = Where(block, self.order)
            place[node] = where
            kind = type(node)
            if kind in statements:
                statements[kind].append(node)
            else:
                statements[kind] = [node]
            handler = handlers.get(kind)
            if handler is not None:
                handler(self, node, where)
            else:
                self.plain(node)

    def plain(self, node: ast.stmt) -> None:
        for field in FIELDS[type(node)]:
            value = getattr(node, field)
            if isinstance(value, ast.expr):
                self.expression(value, node)
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, ast.expr):
                        self.expression(item, node)

    def define(self, name: str, how: str, value: Any, path: tuple[int, ...], where: Where, node: ast.AST) -> None:
        scope = self.scope
        while name in scope.outside and scope.parent is not None:
            scope = scope.parent
        made = Def(name, how, value, path, where, node)
        if name in scope.defs:
            scope.defs[name].append(made)
        else:
            scope.defs[name] = [made]

    def target(self, node: ast.expr, how: str, value: Any, path: tuple[int, ...], where: Where) -> None:
        kind = type(node)
        if kind is ast.Name:
            self.names.add(node.id)  # type: ignore[attr-defined]
            self.define(node.id, how, value, path, where, node)  # type: ignore[attr-defined]
        elif isinstance(node, ast.Tuple | ast.List):
            at = 0
            for item in node.elts:
                if isinstance(item, ast.Starred):
                    self.target(item.value, how, value, (*path, -1), where)
                    at = -len(node.elts)
                else:
                    self.target(item, how, value, (*path, at), where)
                at += 1
        elif isinstance(node, ast.Attribute):
            self.attribute(node, how, value, path, where)
        elif isinstance(node, ast.Subscript):
            self.module.subscript_sets.append((node, value, where))

    def attribute(self, node: ast.Attribute, how: str, value: Any, path: tuple[int, ...], where: Where) -> None:
        scope = self.scope
        scope.attr_sets.append((node, value if not path else None, where))
        if isinstance(node.value, ast.Name):
            method: Scope | None = scope
            while method is not None and method.cls is None:
                method = method.parent
            if method is not None and method.cls is not None and method.me == node.value.id:
                method.cls.attrs.setdefault(node.attr, []).append(Def(node.attr, how, value, path, where, node))

    def assign(self, node: ast.Assign, where: Where) -> None:
        self.expression(node.value, node)
        for target in node.targets:
            if type(target) is ast.Name:
                self.up[target] = node
            else:
                self.expression(target, node)
            self.target(target, "=", node.value, (), where)

    def ann_assign(self, node: ast.AnnAssign, where: Where) -> None:
        if node.value is not None:
            self.expression(node.value, node)
        self.expression(node.target, node)
        if node.value is not None:
            self.target(node.target, "=", node.value, (), where)

    def aug_assign(self, node: ast.AugAssign, where: Where) -> None:
        self.expression(node.value, node)
        self.expression(node.target, node)
        self.target(node.target, "aug", node, (), where)

    def delete(self, node: ast.Delete, where: Where) -> None:
        for target in node.targets:
            self.expression(target, node)
            self.target(target, "del", None, (), where)

    def give(self, node: ast.Return, where: Where) -> None:
        if node.value is not None:
            self.expression(node.value, node)
            self.scope.returns.append((node.value, where))

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, where: Where) -> None:
        kind = "while" if isinstance(node, ast.While) else "for"
        block = Block(self.scope, where.block, kind, node)
        self.scope.loops.append(block)
        if isinstance(node, ast.While):
            self.expression(node.test, node)
        else:
            self.expression(node.iter, node)
            self.expression(node.target, node)
            # The target is set anew in every turn: it belongs to the loop's own block.
            self.target(node.target, "for", node.iter, (), Where(block, where.order))
        self.run(node.body, block)
        if node.orelse:
            self.run(node.orelse, Block(self.scope, where.block, "with", node))

    def branch(self, node: ast.If, where: Where) -> None:
        self.expression(node.test, node)
        self.run(node.body, Block(self.scope, where.block, "if", node))
        if node.orelse:
            self.run(node.orelse, Block(self.scope, where.block, "else", node))

    def held(self, node: ast.With | ast.AsyncWith, where: Where) -> None:
        block = Block(self.scope, where.block, "with", node)
        self.scope.withs.append(block)
        for item in node.items:
            self.expression(item.context_expr, node)
            if item.optional_vars is not None:
                self.expression(item.optional_vars, node)
                self.target(item.optional_vars, "with", item.context_expr, (), where)
        self.run(node.body, block)

    def attempt(self, node: ast.Try | ast.TryStar, where: Where) -> None:
        self.run(node.body, Block(self.scope, where.block, "try", node))
        for handler in node.handlers:
            block = Block(self.scope, where.block, "except", handler)
            self.place[handler] = Where(block, self.order)
            if handler.type is not None:
                self.expression(handler.type, handler)
            if handler.name:
                self.define(handler.name, "except", handler, (), Where(block, self.order), handler)
            self.run(handler.body, block)
        self.run(node.orelse, Block(self.scope, where.block, "try", node))
        self.run(node.finalbody, Block(self.scope, where.block, "finally", node))

    def match(self, node: ast.Match, where: Where) -> None:
        self.expression(node.subject, node)
        for case in node.cases:
            block = Block(self.scope, where.block, "case", case)
            self.place[case] = Where(block, self.order)
            for inner in ast.walk(case.pattern):
                name = getattr(inner, "name", None) or getattr(inner, "rest", None)
                if isinstance(name, str):
                    self.define(name, "other", None, (), Where(block, self.order), case)
            if case.guard is not None:
                self.expression(case.guard, case)
            self.run(case.body, block)

    def bring(self, node: ast.Import, where: Where) -> None:
        for alias in node.names:
            self.names.update(alias.name.split("."))
            if alias.asname:
                self.define(alias.asname, "import", alias.name, (), where, node)
            else:
                first = alias.name.split(".")[0]
                self.define(first, "import", first, (), where, node)

    def bring_from(self, node: ast.ImportFrom, where: Where) -> None:
        base = node.module or ""
        if node.level:
            parts = self.module.name.split(".") if self.module.name else []
            keep = len(parts) - node.level + (1 if self.module.package else 0)
            base = ".".join([*parts[: max(keep, 0)], *([base] if base else [])])
        self.names.update(base.split("."))
        for alias in node.names:
            name = alias.asname or alias.name
            self.names.add(alias.name)
            self.define(name, "import", f"{base}.{alias.name}" if base else alias.name, (), where, node)

    def outsider(self, node: ast.Global | ast.Nonlocal, _: Where) -> None:
        self.scope.outside.update(node.names)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, where: Where) -> None:
        for decorator in node.decorator_list:
            self.expression(decorator, node)
        self.define(node.name, "def", node, (), where, node)
        self.names.add(node.name)
        scope = Scope(self.module, self.scope, "function", node, node.name)
        self.module.functions[node] = scope
        outer = self.enter(scope)
        self.parameters(node.args, node, scope)
        if outer.kind == "class":
            scope.cls = outer.cls
            if scope.cls is not None:
                scope.cls.methods[node.name] = scope
            static = any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in node.decorator_list)
            scope.me = scope.params[0] if scope.params and not static else ""
        self.run(node.body, scope.body)
        self.scope = outer

    def parameters(self, args: ast.arguments, node: ast.AST, scope: Scope) -> None:
        start = Where(scope.body, self.order)
        for default in (*args.defaults, *args.kw_defaults):
            if default is not None:
                self.expression(default, node)
        for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
            scope.params.append(arg.arg)
            scope.defs[arg.arg] = [Def(arg.arg, "param", scope, (), start, arg)]
        for rest in (args.vararg, args.kwarg):
            if rest is not None:
                scope.defs[rest.arg] = [Def(rest.arg, "other", None, (), start, rest)]

    def klass(self, node: ast.ClassDef, where: Where) -> None:
        for item in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.expression(item, node)
        scope = Scope(self.module, self.scope, "class", node, node.name)
        made = Class(self.module, node, scope, where)
        self.define(node.name, "class", made, (), where, node)
        self.names.add(node.name)
        self.module.classes.append(made)
        outer = self.enter(scope)
        scope.cls = made
        self.run(node.body, scope.body)
        self.scope = outer

    # expressions

    def expression(self, root: ast.expr, above: ast.AST) -> None:
        up, names, calls, nodes, found = self.up, self.names, self.calls, self.nodes, self.scope.calls
        up[root] = above
        stack: list[Any] = [root]
        while stack:
            node = stack.pop()
            kind = type(node)
            if kind is ast.Name:
                names.add(node.id)
            elif kind is ast.Constant:
                pass
            elif kind is ast.Attribute:
                names.add(node.attr)
                child = node.value
                up[child] = node
                stack.append(child)
            elif kind is ast.Call:
                found.append(node)
                called = node.func
                up[called] = node
                stack.append(called)
                name = called.attr if type(called) is ast.Attribute else called.id if type(called) is ast.Name else ""
                if name in calls:
                    calls[name].append(node)
                else:
                    calls[name] = [node]
                for child in node.args:
                    up[child] = node
                    stack.append(child)
                for keyword in node.keywords:
                    child = keyword.value
                    if keyword.arg:
                        names.add(keyword.arg)
                    up[child] = node
                    stack.append(child)
            elif kind is ast.Lambda:
                self.function_in_place(node)
            else:
                if kind in nodes:
                    nodes[kind].append(node)
                else:
                    nodes[kind] = [node]
                for field in FIELDS[kind]:
                    value = getattr(node, field)
                    if isinstance(value, list):
                        for child in value:
                            if isinstance(child, AST):
                                up[child] = node
                                stack.append(child)
                    elif isinstance(value, AST):
                        up[value] = node
                        stack.append(value)
                if kind is ast.NamedExpr:
                    self.define(node.target.id, "walrus", node.value, (), self.module.where(node), node)
                elif kind is ast.comprehension:
                    self.module.comprehended.update(part.id for part in ast.walk(node.target) if type(part) is ast.Name)
                elif kind is ast.Yield or kind is ast.YieldFrom:
                    self.scope.yields = True

    def function_in_place(self, node: ast.Lambda) -> None:
        scope = Scope(self.module, self.scope, "lambda", node, "<lambda>")
        self.module.functions[node] = scope
        outer = self.enter(scope)
        self.parameters(node.args, node, scope)
        where = Where(scope.body, self.order)
        self.place[node.body] = where
        scope.returns.append((node.body, where))
        self.expression(node.body, node)
        self.scope = outer


HANDLERS: dict[type, Any] = {
    ast.Assign: _Walker.assign,
    ast.AnnAssign: _Walker.ann_assign,
    ast.AugAssign: _Walker.aug_assign,
    ast.Delete: _Walker.delete,
    ast.Return: _Walker.give,
    ast.For: _Walker.loop,
    ast.AsyncFor: _Walker.loop,
    ast.While: _Walker.loop,
    ast.If: _Walker.branch,
    ast.With: _Walker.held,
    ast.AsyncWith: _Walker.held,
    ast.Try: _Walker.attempt,
    ast.TryStar: _Walker.attempt,
    ast.Match: _Walker.match,
    ast.Import: _Walker.bring,
    ast.ImportFrom: _Walker.bring_from,
    ast.Global: _Walker.outsider,
    ast.Nonlocal: _Walker.outsider,
    ast.FunctionDef: _Walker.function,
    ast.AsyncFunctionDef: _Walker.function,
    ast.ClassDef: _Walker.klass,
}
