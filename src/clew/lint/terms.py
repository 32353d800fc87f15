"""The terms of a loss that is a sum."""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Scope, Where
from clew.lint.reach import Env, element, heavy
from clew.lint.script import Script, text

Term = tuple[Any, Where, Env | None]


def terms(script: Script, node: Any, where: Where, env: Env | None, deep: int) -> Iterator[Term]:
    """Each term with the place it stands at, through names, lists, tables and functions of the project."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and deep:
        yield from terms(script, node.left, where, env, deep - 1)
        yield from terms(script, node.right, where, env, deep - 1)
        return
    if isinstance(node, ast.Name) and deep:
        defs = where.block.scope.defs.get(node.id, [])
        held = reaching(defs, where) if defs else []
        if len(held) == 1 and held[0].how == "=" and len(held[0].path) == 1:
            part = of_several(script, held[0], env)
            if part is not None:
                yield from terms(script, *part, deep - 2 if deep > 2 else 0)
                return
        if len(held) == 1 and held[0].how == "=" and not held[0].path:
            yield from terms(script, held[0].value, held[0].where, env, deep - 1)
            return
        if held and any(made.how == "aug" for made in held) and all(made.how in ("=", "aug") for made in defs):
            yield from grown(script, defs, where, env, deep)
            return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute) and deep > 1:
        listed = list(added(script, node, where, env))
        if listed:
            for part in listed:
                yield from terms(script, *part, deep - 2 if deep > 2 else 0)
            return
        func = summed(script, node, where)
        if func is not None:
            yield from terms(script, func.returns[0][0], func.returns[0][1], Env(func, node, where, "", env), deep - 2)
            return
    if not isinstance(node, ast.Constant):
        yield node, where, env


def grown(script: Script, defs: Any, where: Where, env: Env | None, deep: int) -> Iterator[Term]:
    """loss = bce; loss += weight * dice"""
    for made in defs:
        if made.where.order >= where.order or (made.how == "=" and made.path):
            continue
        if made.how == "aug" and not isinstance(made.value.op, ast.Add | ast.Sub):
            continue
        value = made.value.value if made.how == "aug" else made.value
        yield from terms(script, value, made.where, env, deep - 2 if deep > 2 else 0)


def added(script: Script, node: ast.Call, where: Where, env: Env | None) -> Iterator[Term]:
    """What sum([a, b]), sum(parts.values()) or torch.stack([a, b]).sum() adds up, where that is written out, here or in
    a function of the project."""
    home = script.at_home(where)
    given = node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("sum", "mean") and not home.dotted(node.func):
        inner = node.func.value
        stacked = isinstance(inner, ast.Call) and home.dotted(inner.func) == "torch.stack" and inner.args
        given = inner.args[0] if stacked and isinstance(inner, ast.Call) else None
    elif home.dotted(node.func) != "builtins.sum":
        return
    if isinstance(given, ast.Call) and text(given.func) == "list" and given.args:
        given = given.args[0]
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "values":
        given = given.func.value
    if isinstance(given, ast.Name):
        defs = where.block.scope.defs.get(given.id, [])
        given = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Name | ast.Attribute):
        func = summed(script, given, where)
        if func is None:
            return
        env = Env(func, given, where, "", env)
        given, where = func.returns[0]
    parts = given.values if isinstance(given, ast.Dict) else getattr(given, "elts", [])
    for part in parts:
        yield part, where, env


def of_several(script: Script, made: Any, env: Env | None) -> Term | None:
    """loss of `loss, parts = criterion(...)`, where the one return is written out as a tuple."""
    call = made.value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name | ast.Attribute):
        return (element(call, made.path), made.where, env) if isinstance(call, ast.Tuple) else None
    func = summed(script, call, made.where)
    given, at = func.returns[0] if func is not None else (None, made.where)
    if func is None or not isinstance(given, ast.Tuple):
        return None
    if not 0 <= made.path[0] < len(given.elts):
        return None
    return given.elts[made.path[0]], at, Env(func, call, made.where, "", env)


def summed(script: Script, call: ast.Call, where: Where) -> Scope | None:
    """A function of the project, or a loss written as a module, that returns one thing."""
    values = script.values.value(call.func, where, None)
    value = values[0] if len(values) == 1 else None
    func = value.func if value is not None and value.kind == "function" else None
    if func is None and value is not None and value.kind == "instance" and value.cls is not None:
        func = value.cls.methods.get("forward") if not heavy(value.cls) else None
    return func if func is not None and len(func.returns) == 1 and not func.yields else None
