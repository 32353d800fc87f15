"""What calls give for parameters, and what defaults and definitions say of them by their form alone."""

import ast
from typing import Any

from clew.lint.index import Def, Scope


def argument(call: ast.Call, func: Scope, name: str) -> ast.expr | None:
    """What `call` gives for the parameter `name` of `func`; None when it gives nothing, or hides it behind a star."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    if name not in func.params:
        return None
    at = func.params.index(name) - (1 if func.me else 0)
    return call.args[at] if 0 <= at < len(call.args) else None


def default_of(func: Scope, name: str) -> ast.expr | None:
    args = getattr(func.node, "args", None)
    if not isinstance(args, ast.arguments):
        return None
    plain = [*args.posonlyargs, *args.args]
    for arg, default in zip(reversed(plain), reversed(args.defaults), strict=False):
        if arg.arg == name:
            return default
    for arg, given in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if arg.arg == name:
            return given
    return None


def starred(call: ast.Call) -> bool:
    return any(isinstance(arg, ast.Starred) for arg in call.args) or any(word.arg is None for word in call.keywords)


def tells(node: ast.expr | None) -> bool:
    """Whether a default says what kind of thing a parameter is; a number or a switch may be anything."""
    return isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Dict) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def made_of_layers(node: Any) -> bool:
    """Whether an expression calls something that is named like a class."""
    return isinstance(node, ast.AST) and any(
        isinstance(part, ast.Call)
        and (part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", ""))[:1].isupper()
        for part in ast.walk(node)
    )


def empty(made: Def) -> bool:
    return isinstance(made.value, ast.Constant) and made.value.value is None


def keyed_by(node: ast.expr, names: set[str], key: str) -> bool:
    """@register("mlp")"""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in names:
        return False
    return any(isinstance(arg, ast.Constant) and arg.value == key for arg in node.args)
