"""Which columns of a frame an expression stands for: all but some, or only some, as far as the source says."""

import ast
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.given import argument, default_of
from clew.lint.index import Scope, Where
from clew.lint.script import Script, text
from clew.lint.trail import root
from clew.lint.value import Context

DEEP = 10
KEEPS = frozenset(
    "copy to_numpy astype select_dtypes fillna dropna sample reset_index tolist to_list values query".split()
)


class Columns(NamedTuple):
    """`names` are left out when `but` is set, otherwise they are all there is."""

    but: bool
    names: frozenset[str]


class Reader:
    """Reads expressions that name columns. Functions of the project are looked into with what they are given."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def columns(self, node: Any, where: Where, context: Context | None = None, deep: int = DEEP) -> Columns | None:
        if deep <= 0:
            return None
        if isinstance(node, ast.Name):
            return self.named(node, where, context, deep)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            names = self.words(node, where, context)
            return Columns(False, names) if names is not None else None
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            return self.chosen(node, where, context, deep)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            whole, less = self.columns(node.left, where, context, deep - 1), self.words(node.right, where, context)
            return without(whole, less)
        if isinstance(node, ast.Attribute):
            if node.attr == "columns":
                return self.frame(node.value, where, context, deep - 1)
            return self.columns(node.value, where, context, deep - 1) if node.attr == "values" else None
        if isinstance(node, ast.Call):
            return self.called(node, where, context, deep)
        return None

    def called(self, node: ast.Call, where: Where, context: Context | None, deep: int) -> Columns | None:
        func = node.func
        if isinstance(func, ast.Name) and func.id in ("list", "set", "sorted", "tuple") and len(node.args) == 1:
            inner = node.args[0]
            found = self.columns(inner, where, context, deep - 1)
            return found or (self.frame(inner, where, context, deep - 1) if isinstance(inner, ast.Name) else None)
        if isinstance(func, ast.Attribute) and func.attr in ("difference", "drop"):
            whole = self.columns(func.value, where, context, deep - 1)
            return without(whole, self.words(node.args[0], where, context)) if node.args and whole else None
        if isinstance(func, ast.Attribute) and func.attr in ("tolist", "to_list", "copy", "keys"):
            return self.columns(func.value, where, context, deep - 1)
        for value in (
            self.script.values.value(func, where, context) if isinstance(func, ast.Name | ast.Attribute) else ()
        ):
            held = value.func if value.kind == "function" else None
            if held is not None and len(held.returns) == 1:
                given, at = held.returns[0]
                return self.columns(given, at, Context(held, node, where, value.owner, context), deep - 1)
        return None

    def named(self, node: ast.Name, where: Where, context: Context | None, deep: int) -> Columns | None:
        scope: Scope | None = where.block.scope
        first = scope
        while scope is not None and node.id not in scope.defs:
            scope = scope.parent
        if scope is None:
            return None
        at = where if scope is first else Where(scope.body, 1 << 60)
        made = reaching(scope.defs[node.id], at)
        if len(made) != 1:
            return None
        only = made[0]
        found: Columns | None = None
        if only.how == "=" and not only.path:
            found = self.columns(only.value, only.where, context, deep - 1)
        elif only.how == "=" and len(only.path) == 1:
            found = self.unpacked(only.value, only.path[0], only.where, context, deep)
        elif only.how == "param":
            found = self.parameter(only.value, only.name, context, deep)
        elif only.how == "import":
            held = self.script.project.member(only.value, scope.module)
            if isinstance(held, list) and len(held) == 1 and held[0].how == "=":
                found = self.columns(held[0].value, held[0].where, None, deep - 1)
        for call in scope.calls if found is not None else ():
            if text(call.func) == f"{node.id}.remove" and call.args:
                found = without(found, self.words(call.args[0], where, context))
        return found

    def unpacked(self, node: Any, step: int, where: Where, context: Context | None, deep: int) -> Columns | None:
        """One of several things: of a tuple, or of what a function of the project returns."""
        if isinstance(node, ast.Tuple):
            return self.columns(node.elts[step], where, context, deep - 1) if 0 <= step < len(node.elts) else None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        for value in self.script.values.value(node.func, where, context):
            func = value.func if value.kind == "function" else None
            given, at = func.returns[0] if func is not None and len(func.returns) == 1 else (None, where)
            if func is not None and isinstance(given, ast.Tuple) and 0 <= step < len(given.elts):
                inner = Context(func, node, where, value.owner, context)
                return self.columns(given.elts[step], at, inner, deep - 1)
        return None

    def parameter(self, func: Scope, name: str, context: Context | None, deep: int) -> Columns | None:
        if context is not None and context.func is func:
            given = argument(context.call, func, name)
            return self.columns(given, context.where, context.outer, deep - 1) if given is not None else None
        found = {
            self.columns(given, where, None, deep - 2)
            for call, where in self.script.project.callers(func)[:4]
            if (given := argument(call, func, name)) is not None
        }
        return found.pop() if len(found) == 1 else None

    def chosen(self, node: Any, where: Where, context: Context | None, deep: int) -> Columns | None:
        """[c for c in df.columns if c not in IDS and c != TARGET]"""
        loop = node.generators[0]
        each = text(loop.target)
        if len(node.generators) != 1 or text(node.elt) != each or not each:
            return None
        found = self.columns(loop.iter, where, context, deep - 1)
        if found is None and isinstance(loop.iter, ast.Name):
            found = self.frame(loop.iter, where, context, deep - 1)
        for test in loop.ifs:
            parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
            for part in parts:
                found = self.tested(found, part, each, where, context)
        return found

    def tested(
        self, found: Columns | None, test: Any, each: str, where: Where, context: Context | None
    ) -> Columns | None:
        inner = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
        if isinstance(inner, ast.Compare) and isinstance(inner.ops[0], ast.In) and text(inner.left) == each:
            return without(found, self.words(inner.comparators[0], where, context))
        if isinstance(test, ast.Compare) and text(test.left) == each and len(test.ops) == 1:
            if isinstance(test.ops[0], ast.NotIn | ast.NotEq):
                return without(found, self.words(test.comparators[0], where, context))
            return None
        if isinstance(test, ast.Compare) and "dtype" in ast.unparse(test):
            return found
        return None

    def frame(self, node: Any, where: Where, context: Context | None = None, deep: int = DEEP) -> Columns | None:
        """The columns of a frame; all of them when nothing was taken away in sight."""
        if deep <= 0:
            return None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "drop":
                given = Script.arg(node, -1, "columns") or Script.arg(node, 0, "labels")
                rows = Script.arg(node, -1, "index") is not None or given is None
                whole = self.frame(node.func.value, where, context, deep - 1)
                return whole if rows else without(whole, self.words(given, where, context))
            if node.func.attr.startswith("read_"):
                return Columns(True, frozenset())
            return self.frame(node.func.value, where, context, deep - 1) if node.func.attr in KEEPS else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for value in self.script.values.value(node.func, where, context):
                maker = value.func if value.kind == "function" else None
                if maker is not None and len(maker.returns) == 1 and not maker.yields:
                    given, at = maker.returns[0]
                    return self.frame(given, at, Context(maker, node, where, value.owner, context), deep - 2)
            return None
        if isinstance(node, ast.Attribute) and node.attr in ("values", "loc", "iloc"):
            return self.frame(node.value, where, context, deep - 1)
        if isinstance(node, ast.Attribute):
            func = where.block.scope
            mine = func.cls is not None and text(node.value) == func.me
            held = func.cls.attrs.get(node.attr, []) if mine and func.cls is not None else []
            return self.frame(held[0].value, held[0].where, None, deep - 1) if len(held) == 1 else None
        if isinstance(node, ast.Subscript):
            index = node.slice
            if isinstance(index, ast.Name | ast.List | ast.ListComp | ast.Call | ast.Attribute):
                return self.columns(index, where, context, deep - 1)
            return None
        if isinstance(node, ast.Name):
            scope = where.block.scope
            made = reaching(scope.defs[node.id], where) if node.id in scope.defs else []
            if len(made) == 1 and made[0].how == "=" and not made[0].path:
                inner = self.frame(made[0].value, made[0].where, context, deep - 1)
                if inner is not None:
                    return inner
                reads = isinstance(made[0].value, ast.Call) and "read_" in ast.unparse(made[0].value.func)
                taken = isinstance(made[0].value, ast.Subscript)
                return Columns(True, frozenset()) if reads or taken else None
            return Columns(True, frozenset()) if made and made[0].how in ("param", "=") else None
        return None

    def words(self, node: Any, where: Where, context: Context | None) -> frozenset[str] | None:
        """Names of columns that are written out; None when one of them is not known."""
        if isinstance(node, ast.Constant):
            return frozenset([node.value]) if isinstance(node.value, str) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr):
            left, right = self.words(node.left, where, context), self.words(node.right, where, context)
            return left | right if left is not None and right is not None else None
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            found: frozenset[str] = frozenset()
            for item in node.elts:
                inner = self.words(item.value if isinstance(item, ast.Starred) else item, where, context)
                if inner is None:
                    return None
                found |= inner
            return found
        for value in self.script.values.value(node, where, context) if isinstance(node, ast.expr) else ():
            if value.kind == "const" and isinstance(value.const, str):
                return frozenset([value.const])
            if value.kind in ("items", "binop") and value.node is not node:
                return self.words(value.node, value.where or where, context)
            if value.kind == "param" and value.func is not None:
                default = default_of(value.func, value.name)
                return self.words(default, where, None) if default is not None else None
        return None


def without(found: Columns | None, names: frozenset[str] | None) -> Columns | None:
    if found is None or names is None:
        return None
    return Columns(True, found.names | names) if found.but else Columns(False, found.names - names)


def frame_name(node: Any) -> str:
    """The frame that columns are taken from: df of df[cols], self.df of self.df.loc[:, cols]."""
    while isinstance(node, ast.Call | ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr in ("loc", "iloc", "values", *KEEPS)
    ):
        node = node.func if isinstance(node, ast.Call) else node.value
        if isinstance(node, ast.Attribute) and node.attr in ("drop", *KEEPS):
            node = node.value
    return text(node) or root(node)
