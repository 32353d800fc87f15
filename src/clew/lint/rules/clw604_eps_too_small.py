"""An epsilon that the type rounds to zero.

What it sees: a constant below 6e-8 added or used as a lower bound, or as Adam's eps, for values or a model that were
cast to half precision in the same function, by a helper, or by a caller in another file.
Why it matters: the smallest positive number of float16 is about 6e-8, so 1e-8 becomes zero and protects nothing. With
Adam, eps = 1e-8 in half precision divides by zero on the first small gradient.
Silent when: the value is single precision or bfloat16, which has the range of single precision.
Fix: use 1e-6 or larger, or compute in single precision.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.divide import element
from clew.lint.flow import outward
from clew.lint.given import argument, default_of
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

SMALLEST = 6e-8


@rule("CLW604", "eps-too-small", "num.low_precision", "likely", "half float16 eps EPS epsilon")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("half", "float16"):
        # A helper without a word of precision: its callers in another file may be in half.
        if tiny_defaults(script) and script.project.neighbours_with(script.module.path, ".half("):
            yield from added(script)
        return
    yield from added(script)
    yield from given(script)
    yield from in_optimizer(script)


def added(script: Script) -> Iterator[Hit]:
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Add) and small(script, node.right) and halved(script, node.left):
            yield Hit(node.right, "is zero in float16, whose smallest positive number is about 6e-8.")
    for call in script.calls("clamp", "clamp_min"):
        given = script.arg(call, 0 if not script.dotted(call.func) else 1, "min")
        operand = script.operand(call)
        if given is not None and small(script, given) and operand is not None and halved(script, operand):
            yield Hit(given, "is zero in float16, whose smallest positive number is about 6e-8.")


def given(script: Script) -> Iterator[Hit]:
    """An eps for the modules of a model that is put into half precision: as an argument or a default."""
    halves = any(
        isinstance(call.func, ast.Attribute) and whole(script, call.func.value) for call in script.calls("half")
    ) or any(
        isinstance(call.func, ast.Attribute)
        and any(script.dotted(arg) in ("torch.float16", "torch.half") for arg in types_of(call))
        and whole(script, call.func.value)
        for call in script.calls("to")
    )
    if not halves:
        return
    for cls in script.module.classes:
        init = cls.methods.get("__init__")
        if not script.is_module(cls):
            continue
        for method in cls.methods.values():
            yield from guarded(script, method)
        if init is None:
            continue
        for name in init.params:
            default = default_of(init, name) if "eps" in name.lower() else None
            if default is not None and tiny(default):
                yield Hit(default, "is zero in float16, which this model is converted to: it prevents nothing.")
        for call in init.calls:
            eps = script.arg(call, -1, "eps")
            if eps is not None and tiny(eps):
                yield Hit(eps, "is zero in float16, which this model is converted to: it prevents nothing.")


def guarded(script: Script, method: Scope) -> Iterator[Hit]:
    """x / (norm + 1e-8) in a forward whose input is in half precision."""
    if any(isinstance(call.func, ast.Attribute) and call.func.attr in ("float", "double") for call in method.calls):
        return
    for node in ast.walk(method.node):
        small = node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) else None
        if small is not None and tiny(small) and script.scope(small) is method:
            yield Hit(small, "is zero in float16, which this model is converted to: it prevents nothing.")


def types_of(call: ast.Call) -> list[ast.expr]:
    given = [*call.args, *(word.value for word in call.keywords)]
    return [arg for arg in given if isinstance(arg, ast.Attribute)]


def whole(script: Script, node: ast.AST) -> bool:
    """Whether a network of the project is meant, and not a tensor."""
    return any(
        value.kind == "instance" and value.cls is not None and script.is_module(value.cls)
        for value in script.value(node)
    )


def tiny(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value < SMALLEST


def tiny_defaults(script: Script) -> bool:
    """Whether a function of the file has an eps that half precision does not know, as its default."""
    return any(
        tiny(default)
        for scope in script.module.scopes
        for name in scope.params
        if "eps" in name.lower() and (default := default_of(scope, name)) is not None
    )


def small(script: Script, node: ast.AST) -> bool:
    """A number that half precision rounds to zero, written out or as the default that every caller leaves alone."""
    if tiny(node):
        return True
    if not isinstance(node, ast.Name) or "eps" not in node.id.lower():
        return False
    scope = script.scope(node)
    if node.id not in scope.params:
        number = script.constant(node)
        return isinstance(number, float) and 0 < number < SMALLEST
    default = default_of(scope, node.id)
    calls = script.project.callers(scope) if default is not None and tiny(default) else []
    return bool(calls) and all(argument(call, scope, node.id) is None for call, _ in calls)


def half_made(script: Script, node: ast.AST, where: Where, deep: int = 6) -> bool:
    """Whether a network was put into half precision where it was made: by a helper, or by the caller."""
    script = script.at_home(where)
    if deep == 0:
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
        told = any("float16" in text(arg) and "bfloat16" not in text(arg) for arg in types_of(node))
        return node.func.attr == "half" or told or half_made(script, node.func.value, where, deep - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        func = helper(script, node, where)
        back = func.returns[0] if func is not None and len(func.returns) == 1 else None
        return back is not None and half_made(script, *back, deep - 1)
    if not isinstance(node, ast.Name):
        return False
    held = outward(node.id, where)
    made = held[0] if len(held) == 1 else None
    if made is not None and made.how == "=" and not made.path:
        return half_made(script, made.value, made.where, deep - 1)
    if made is None or made.how != "param":
        return False
    given = [(argument(call, made.value, node.id), at) for call, at in script.project.callers(made.value)[:3]]
    return bool(given) and all(one is not None and half_made(script, one, at, deep - 1) for one, at in given)


MOVES = ("half", "to", "cuda", "eval", "train", "requires_grad_")


def halved(script: Script, node: ast.AST, deep: int = 12) -> bool:
    """Whether a value was cast to half precision, also some operations before."""
    if deep == 0:
        return False
    if isinstance(node, ast.Call) and of_library(script, node):
        return bool(node.args) and halved(script, node.args[0], deep - 1)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return half_model(script, node.func) or half_made(script, node.func, script.where(node))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "half":
            return True
        if text(node.func) and half_model(script, node.func):
            return True
        if node.func.attr in ("float", "double"):
            return False
        if any(
            "float16" in text(arg) and "bfloat16" not in text(arg)
            for arg in (*node.args, *(word.value for word in node.keywords))
        ):
            return True
        return halved(script, node.func.value, deep - 1)
    if isinstance(node, ast.BinOp):
        return halved(script, node.left, deep - 1)
    if isinstance(node, ast.Name):
        scope = script.scope(node)
        made = [one for one in scope.defs.get(node.id, []) if one.how == "="]
        if len(made) == 1:
            given = element(made[0].value, made[0].path)
            return given is not None and halved(script, given, deep - 1)
        if not made and any(one.how == "param" for one in scope.defs.get(node.id, [])):
            return handed(script, node.id, scope, deep)
    return False


def of_library(script: Script, node: ast.Call) -> bool:
    """torch.softmax(x), F.normalize(x): in the type of what goes in."""
    dotted = script.dotted(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""
    return dotted.startswith("torch.") and dotted.rsplit(".", 1)[-1] not in (
        "tensor",
        "as_tensor",
        "from_numpy",
        "load",
    )


def handed(script: Script, name: str, scope: Scope, deep: int) -> bool:
    """Whether every caller in sight hands over something in half precision."""
    calls = script.project.callers(scope) if scope.kind == "function" else []
    given = [(argument(call, scope, name), where) for call, where in calls[:3]]
    return bool(given) and all(
        node is not None and halved(script.at_home(where), node, deep - 1) for node, where in given
    )


def half_model(script: Script, func: ast.expr) -> bool:
    """Whether a network was put into half precision: net = net.half(), Net().cuda().half()."""
    name = text(func)
    for call in script.calls("half"):
        base: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
        at: ast.AST | None = call
        while isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute):
            base = base.func.value
        while isinstance(at, ast.Call | ast.Attribute):
            at = script.parent(at)
        kept = [text(target) for target in at.targets] if isinstance(at, ast.Assign) else []
        same = script.scope(call) is script.scope(func) or name.startswith("self.")
        if same and name and (name in kept or (isinstance(at, ast.Expr) and text(base) == name)):
            return True
    return False


def in_optimizer(script: Script) -> Iterator[Hit]:
    halves = {
        text(call.func.value)
        for call in script.calls("half")
        if isinstance(call.func, ast.Attribute) and isinstance(script.parent(call), ast.Expr | ast.Assign)
    }
    for call, dotted in script.calls_to("torch.optim.", "Adam", "AdamW", "RMSprop", "Adagrad"):
        given = script.arg(call, 0, "params")
        eps = script.arg(call, -1, "eps")
        owner = text(given.func.value) if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else ""
        if owner and owner in halves and (eps is None or tiny(eps)):
            yield Hit(
                call,
                f"{dotted.rsplit('.', 1)[-1]} works on half-precision weights with an eps that is zero in float16.",
            )
