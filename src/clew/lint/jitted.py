"""Functions that jax traces, and which of their values are traced."""

import ast
from typing import Any, NamedTuple

from clew.lint.given import argument
from clew.lint.index import Scope
from clew.lint.script import Script, text

TRACERS = (
    "jax.jit",
    "jax.grad",
    "jax.value_and_grad",
    "jax.vmap",
    "jax.pmap",
    "jax.hessian",
    "jax.jacfwd",
    "jax.jacrev",
    "flax.linen.jit",
    "jax.experimental.pjit.pjit",
    "equinox.filter_jit",
)
JITS = (
    "jax.jit",
    "jax.pmap",
    "flax.linen.jit",
    "jax.experimental.pjit.pjit",
    "equinox.filter_jit",
    "jax.lax.scan",
    "jax.lax.fori_loop",
)
# Loops whose body jax traces once, and where that body stands among the arguments.
BODIES = {"jax.lax.scan": 0, "jax.lax.fori_loop": 2}
# What is known while tracing, also of a traced array.
STATIC = ("shape", "ndim", "dtype", "size")


class Traced(NamedTuple):
    """One traced function, how it is traced, and its parameters that are tracers."""

    scope: Scope
    by: str
    params: frozenset[str]


def traced(script: Script) -> list[Traced]:
    """Every function of the file that jax traces, by decorator or by a call around its name."""
    if "traced" not in script.known:
        found: dict[Scope, Traced] = {}
        for scope in script.module.scopes:
            for decorator in scope.decorators():
                by, static = tracer(script, decorator, scope)
                if by:
                    found[scope] = Traced(scope, by, frozenset(scope.params) - static - {scope.me})
        for call in script.calls("jit", "grad", "value_and_grad", "vmap", "pmap"):
            by = script.dotted(call.func)
            given = call.args[0] if by in TRACERS and call.args else None
            while isinstance(given, ast.Call) and given.args and script.dotted(given.func) in TRACERS:
                given = given.args[0]  # jit(grad(f)): what is compiled is f
            if given is not None:
                for value in script.value(given):
                    if value.kind == "function" and value.func is not None and value.func not in found:
                        params = frozenset(value.func.params) - statics(script, call, value.func)
                        if value.func.module is script.module:
                            found[value.func] = Traced(value.func, by, params - {value.func.me})
        for call in script.calls("scan", "fori_loop"):
            by = script.dotted(call.func)
            if by in BODIES and len(call.args) > BODIES[by]:
                for value in script.value(call.args[BODIES[by]]):
                    func = value.func if value.kind == "function" else None
                    if func is not None and func not in found and func.module is script.module:
                        found[func] = Traced(func, by, frozenset(func.params) - {func.me})
        script.known["traced"] = []  # a function that calls itself asks while being asked
        for scope in script.module.scopes:
            if scope not in found and scope.kind == "function" and scope.name != "__init__":
                under(script, scope, found)
        script.known["traced"] = list(found.values())
    held: list[Traced] = script.known["traced"]
    return held


def under(script: Script, scope: Scope, found: dict[Scope, Traced]) -> None:
    """A function that a traced one calls: what it is given there is traced too. Calls in a file that knows no jax are
    not asked."""
    for call, where in script.project.callers(scope)[:4]:
        home = script.at_home(where)
        if not home.mentions("jax"):
            continue
        outer: Scope | None = where.block.scope
        while outer is not None:
            known = found if home is script else {held.scope: held for held in traced(home)}
            held = known.get(outer)
            if held is not None:
                names = [name for name in scope.params if name != scope.me]
                params = frozenset(
                    name
                    for name in names
                    if (given := argument(call, scope, name)) is not None and tracing(home, given, held)
                )
                if params:
                    found[scope] = Traced(scope, held.by, params)
                    return
            outer = outer.parent


def derived(held: Traced) -> frozenset[str]:
    """The traced parameters, and the names that are computed from their values."""
    names = set(held.params)
    for _ in range(3):
        for name, defs in held.scope.defs.items():
            if name in names or any(made.how not in ("=", "aug") for made in defs):
                continue
            values = [made.value.value if made.how == "aug" else made.value for made in defs]
            if any(isinstance(value, ast.AST) and touches(value, names) for value in values):
                names.add(name)
    return frozenset(names)


def touches(node: ast.AST, names: set[str]) -> bool:
    """Whether a value, and not only a shape, of one of the names goes into an expression."""
    if isinstance(node, ast.Attribute) and node.attr in STATIC:
        return False
    if isinstance(node, ast.Call) and text(node.func) in ("len", "isinstance", "range", "type"):
        return False
    if isinstance(node, ast.Lambda):
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    return any(touches(child, names) for child in ast.iter_child_nodes(node))


def tracer(script: Script, node: ast.expr, scope: Scope) -> tuple[str, frozenset[str]]:
    """`@jax.jit`, `@jax.jit(...)`, `@partial(jax.jit, static_argnums=...)`."""
    if isinstance(node, ast.Call):
        if script.dotted(node.func) == "functools.partial" and node.args:
            by = script.dotted(node.args[0])
            return (by, statics(script, node, scope)) if by in TRACERS else ("", frozenset())
        by = script.dotted(node.func)
        return (by, statics(script, node, scope)) if by in TRACERS else ("", frozenset())
    by = script.dotted(node)
    return (by if by in TRACERS else "", frozenset())


def statics(script: Script, call: ast.Call, scope: Scope) -> frozenset[str]:
    """Parameters that are told to be static. What cannot be read makes all of them so."""
    found: set[str] = set()
    for word, by_name in (("static_argnums", False), ("static_argnames", True), ("static_broadcasted_argnums", False)):
        given: Any = script.arg(call, -1, word)
        if given is None:
            continue
        items = given.elts if isinstance(given, ast.Tuple | ast.List) else [given]
        for item in items:
            known = script.constant(item)
            if by_name and isinstance(known, str):
                found.add(known)
            elif not by_name and isinstance(known, int) and -len(scope.params) <= known < len(scope.params):
                found.add(scope.params[known])
            else:
                return frozenset(scope.params)
    return frozenset(found)


def tracing(script: Script, node: ast.AST, held: Traced) -> bool:
    """Whether an expression depends on the value, not only the shape, of a traced parameter."""
    up = script.module.up
    names = derived(held)
    for part in ast.walk(node):
        if not isinstance(part, ast.Name) or part.id not in names:
            continue
        above = up.get(part)
        if isinstance(above, ast.Attribute) and above.attr in STATIC:
            continue
        if isinstance(above, ast.Call) and text(above.func) in ("len", "isinstance", "hasattr", "type", "callable"):
            continue
        if isinstance(above, ast.Compare) and any(
            isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in above.ops
        ):
            continue
        if isinstance(above, ast.Attribute) and isinstance(up.get(above), ast.Attribute):
            continue
        if len(held.scope.defs.get(part.id, [])) == 1 or part.id not in held.params:
            return True
    return False
