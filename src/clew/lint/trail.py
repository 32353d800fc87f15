"""Everything that a value was made from, followed back through the project.

`values` says what an expression is; this says where it came from: through names, unpacked tuples, attributes of self,
arguments of callers, returns of the project's functions, changes in place. Each walk may take only so many steps.
"""

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.given import argument, default_of
from clew.lint.index import Class, Def, Scope, Where
from clew.lint.script import Script, text
from clew.lint.value import Context

STEPS = 260
MOST_CALLERS = 5
END = 1 << 60


class Step(NamedTuple):
    """One expression on the way. `via` is the part of the asking file through which the way led."""

    node: Any
    where: Where
    via: Any
    context: Context | None


class Trail:
    """One walk back from an expression. `stop` says where not to go further; the step itself is still given."""

    def __init__(
        self, script: Script, stop: Callable[[Step], bool] | None = None, steps: int = STEPS, strict: bool = False
    ) -> None:
        self.script, self.stop, self.left, self.strict = script, stop, steps, strict
        self.seen: set[tuple[int, int]] = set()
        self.queue: list[tuple[Step, tuple[int, ...]]] = []

    def walk(self, node: Any, where: Where, context: Context | None = None) -> Iterator[Step]:
        self.push(node, where, node, context)
        while self.queue and self.left > 0:
            step, path = self.queue.pop(0)
            key = (id(step.node), id(step.context) if step.context is not None else 0)
            if key in self.seen:
                continue
            self.seen.add(key)
            self.left -= 1
            yield step
            if self.stop is None or not self.stop(step):
                self.follow(step, path)

    def push(self, node: Any, where: Where, via: Any, context: Context | None, path: tuple[int, ...] = ()) -> None:
        if not isinstance(node, ast.AST):
            return
        here = where.block.scope.module is self.script.module
        self.queue.append((Step(node, where, node if here else via, context), path))

    def onward(self, step: Step, node: Any, path: tuple[int, ...] = ()) -> None:
        self.push(node, step.where, step.via, step.context, path)

    def follow(self, step: Step, path: tuple[int, ...]) -> None:
        node = step.node
        if isinstance(node, ast.Name):
            self.name(step, path)
        elif isinstance(node, ast.Attribute):
            if not self.attribute(step, path):
                self.onward(step, node.value)
        elif isinstance(node, ast.Call):
            self.call(step, path)
        elif isinstance(node, ast.Tuple | ast.List):
            inside = [node.elts[path[0]]] if path and 0 <= path[0] < len(node.elts) else node.elts
            for item in inside:
                self.onward(step, item, path[1:])
        elif isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            self.onward(step, node.value, (key, *path) if isinstance(key, int) and key >= 0 else ())
        elif isinstance(node, ast.Lambda):
            self.onward(step, node.body)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.onward(step, child)
                elif isinstance(child, ast.comprehension):
                    self.onward(step, child.iter)

    # names

    def name(self, step: Step, path: tuple[int, ...]) -> None:
        name, scope, where = step.node.id, step.where.block.scope, step.where
        if name in scope.module.comprehended and self.comprehended(step):
            return
        at: Scope | None = scope
        while at is not None and (name not in at.defs or (at.kind == "class" and at is not scope)):
            at = at.parent
        if at is None:
            return
        place = where if at is scope else Where(at.body, END)
        for made in reaching(at.defs[name], place):
            self.definition(made, step, path)
        for target, value, changed in at.module.subscript_sets:
            # df["z"] = ..., X[:, 0] = ..., df.loc[:, columns] = ...
            if changed.block.scope is at and changed.order < place.order and root(target.value) == name:
                self.push(value, changed, step.via, step.context)
        for call in at.calls:
            if not isinstance(call.func, ast.Attribute) or root(call.func.value) != name:
                continue
            inplace = any(word.arg == "inplace" for word in call.keywords) or call.func.attr in ("append", "extend")
            if inplace and (changed := at.module.where(call)).order < place.order:
                self.push(call, changed, step.via, step.context)

    def comprehended(self, step: Step) -> bool:
        up = step.where.block.scope.module.up
        at: ast.AST | None = up.get(step.node)
        while at is not None and isinstance(at, ast.expr | ast.comprehension):
            for generator in getattr(at, "generators", ()):
                own = any(isinstance(part, ast.Name) and part.id == step.node.id for part in ast.walk(generator.target))
                if own and step.node is not generator.iter:
                    self.onward(step, generator.iter)
                    return True
            at = up.get(at)
        return False

    def definition(self, made: Def, step: Step, path: tuple[int, ...]) -> None:
        context = step.context if step.context is not None and made.where.block.scope is step.context.func else None
        if step.where.block.scope is made.where.block.scope:
            context = step.context
        if made.how in ("=", "walrus", "with"):
            self.push(made.value, made.where, step.via, context, (*made.path, *path))
        elif made.how == "for":
            self.push(made.value, made.where, step.via, context)
        elif made.how == "aug":
            self.push(made.value.value, made.where, step.via, context)
            target = made.value.target
            if isinstance(target, ast.Name):
                before = [one for one in made.where.block.scope.defs.get(target.id, []) if one is not made]
                for one in before:
                    if one.where.order < made.where.order:
                        self.definition(one, step, path)
        elif made.how == "param":
            self.parameter(made, step, path)
        elif made.how == "import":
            found = self.script.project.member(made.value, made.where.block.scope.module)
            for one in found if isinstance(found, list) else ():
                self.definition(one, step, path)

    def parameter(self, made: Def, step: Step, path: tuple[int, ...]) -> None:
        func: Scope = made.value
        context = step.context
        if context is not None and context.func is func:
            given = argument(context.call, func, made.name)
            if given is None:
                given = default_of(func, made.name)
                self.push(given, func.body_where(), step.via, None, path)
            else:
                self.push(given, context.where, step.via, context.outer, path)
            return
        for call, where in self.script.project.callers(func)[:MOST_CALLERS]:
            given = argument(call, func, made.name)
            if given is not None:
                self.push(given, where, step.via, None, path)

    # attributes and calls

    def attribute(self, step: Step, path: tuple[int, ...]) -> bool:
        """self.x, or x of an object of the project: wherever it is set."""
        node = step.node
        found = False
        for value in self.script.values.value(node.value, step.where, step.context):
            if value.kind not in ("instance", "class") or value.cls is None:
                continue
            for made in attribute_defs(self.script, value.cls, node.attr):
                func = made.where.block.scope
                context = None
                if isinstance(value.node, ast.Call) and value.where is not None and func.name == "__init__":
                    context = Context(func, value.node, value.where, value, None)
                if func is step.where.block.scope and made.where.order >= step.where.order:
                    continue
                found = True
                if made.how in ("=", "aug"):
                    given = made.value.value if made.how == "aug" else made.value
                    self.push(given, made.where, step.via, context, (*made.path, *path))
        return found

    def call(self, step: Step, path: tuple[int, ...]) -> None:
        node = step.node
        func = node.func
        known = isinstance(func, ast.Name | ast.Attribute)
        values = self.script.values.value(func, step.where, step.context) if known else ()
        own = [value for value in values if value.kind == "function" and value.func is not None]
        for value in own:
            held = value.func
            assert held is not None
            context = Context(held, node, step.where, value.owner, step.context)
            for given, where in (*held.returns, *yielded(held)):
                self.push(given, where, step.via, context, path)
        if own:
            if isinstance(func, ast.Attribute) and own[0].owner is None:
                self.onward(step, func.value)
            return
        for value in values:
            if value.kind == "class" and value.cls is not None:
                self.examples(value.cls, step)
        if path and self.strict:
            return  # which part of what goes in comes out here, only the library knows
        if isinstance(func, ast.Attribute):
            self.onward(step, func.value)
        elif not isinstance(func, ast.Name):
            self.onward(step, func)
        keeps = isinstance(func, ast.Name) and func.id in ("list", "tuple", "map", "zip")
        for arg in node.args:
            self.onward(step, arg, path if keeps and len(node.args) == 1 else ())
        for word in node.keywords:
            self.onward(step, word.value)

    def examples(self, cls: Class, step: Step) -> None:
        """What a data set of the project gives for an index."""
        for one in self.script.values.lineage(cls):
            method = one.methods.get("__getitem__") or one.methods.get("__iter__")
            if method is not None:
                for given, where in (*method.returns, *yielded(method)):
                    self.push(given, where, step.via, None)
                return


def root(node: ast.AST) -> str:
    """The name that a chain of attributes and subscripts starts from: df of df.loc[...]."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def attribute_defs(script: Script, cls: Class, name: str) -> list[Def]:
    """Where instances of a class of the project get an attribute: in its methods, its bases, or its body."""
    for one in script.values.lineage(cls):
        if name in one.attrs:
            return one.attrs[name]
        if name in one.body.defs and name not in one.methods:
            return one.body.defs[name]
    return []


def yielded(func: Scope) -> Iterator[tuple[ast.expr, Where]]:
    for node in func.module.nodes.get(ast.Yield, []) if func.yields else ():
        where = func.module.where(node)
        if node.value is not None and where.block.scope is func:
            yield node.value, where


def trail(
    script: Script,
    node: Any,
    where: Where,
    stop: Callable[[Step], bool] | None = None,
    context: Context | None = None,
    steps: int = STEPS,
    strict: bool = False,
) -> Iterator[Step]:
    """The expressions that `node` was made from, nearest first. A strict walk does not go into what a function of a
    library was given when only one part of its result is asked for."""
    return Trail(script, stop, steps, strict).walk(node, where, context)


def said_by(script: Script, step: Step) -> str:
    """The dotted name of what a step calls, wherever it stands; "" when it calls no library."""
    if not isinstance(step.node, ast.Call):
        return ""
    home = script.at_home(step.where)
    return home.dotted(step.node.func)


def verb(node: Any) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else text(node.func)
