"""A random key is used twice.

What it sees: the same jax.random key given to two draws, or to one draw in a loop, without a split or fold_in between;
the same with a key that goes into functions of the project, init or rngs; a key kept on an object and never renewed.
Why it matters: a key is a value, not a state: the same key gives the same numbers. Two layers start alike, every
dropout mask is the same, every step adds the same noise.
Silent when: the key is split or folded in between, or the draws lie on different branches.
Fix: key, sub = jax.random.split(key) before each draw.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.flow import apart, outward
from clew.lint.given import argument
from clew.lint.index import Class, Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

NOT_DRAWS = (
    "split",
    "PRNGKey",
    "key",
    "fold_in",
    "key_data",
    "wrap_key_data",
    "key_impl",
    "clone",
    "default_prng_impl",
)


@rule("CLW701", "jax-key-reuse", "env.nondeterminism", "likely", "jax random PRNGKey")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("jax", "PRNGKey") and not script.project.brings(script.module, "jax"):
        return
    for scope in script.module.scopes:
        if scope.kind in ("function", "module"):
            yield from reused(script, scope)
    for cls in script.module.classes:
        yield from never_split(script, cls)


def never_split(script: Script, cls: Class) -> Iterator[Hit]:
    """self.key = PRNGKey(seed) in __init__, and self.key given to a draw in a method, as it is each time."""
    keys = {
        name
        for name, defs in cls.attrs.items()
        if len(defs) == 1
        and defs[0].where.block.scope.name == "__init__"
        and isinstance(defs[0].value, ast.Call)
        and script.dotted(defs[0].value.func) in MAKES[:2]
    }
    for method in cls.methods.values() if keys else ():
        for call in method.calls if method.name not in ("__init__", "setup") else ():
            dotted = script.dotted(call.func) if isinstance(call.func, ast.Attribute | ast.Name) else ""
            key = text(script.arg(call, 0, "key"))
            draw = dotted.startswith("jax.random.") and dotted.rsplit(".", 1)[-1] not in NOT_DRAWS
            if draw and key.removeprefix(f"{method.me}.") in keys and key.startswith(f"{method.me}."):
                yield Hit(call, f"{key} is never renewed: every call of {method.name} draws the same numbers.")


def reused(script: Script, scope: Scope) -> Iterator[Hit]:
    draws: dict[str, list[ast.Call]] = {}
    for call in sorted(scope.calls, key=lambda one: (one.lineno, one.col_offset)):
        if isinstance(call.func, ast.Attribute | ast.Name):
            dotted = script.dotted(call.func)
            if dotted.startswith("jax.random.") and dotted.rsplit(".", 1)[-1] not in NOT_DRAWS:
                key = script.arg(call, 0, "key")
                if isinstance(key, ast.Name) and key.id in scope.defs:
                    draws.setdefault(key.id, []).append(call)
    for name, calls in draws.items():
        for at, call in enumerate(calls):
            where = script.where(call)
            before = next(
                (
                    other
                    for other in reversed(calls[:at])
                    if not renewed(script, scope, name, other, call)
                    and not apart(script.where(other).block, where.block.chain())
                ),
                None,
            )
            if before is not None:
                yield Hit(
                    call, f"{name} was used for a draw on line {before.lineno} already: both give the same numbers."
                )
            elif turns(script, scope, name, call, call.args[0] if call.args else call.keywords[0].value):
                yield Hit(call, f"{name} is the same in every iteration: every draw gives the same numbers.")
    yield from handed_on(script, scope, draws)


def handed_on(script: Script, scope: Scope, draws: dict[str, list[ast.Call]]) -> Iterator[Hit]:
    """A key that goes into a function, a model's init or its rngs, twice or in every turn of a loop."""
    spent: dict[str, list[tuple[ast.Call, ast.Name]]] = {}
    for call in sorted(scope.calls, key=lambda one: (one.lineno, one.col_offset)):
        for node in keys_in(script, scope, call):
            spent.setdefault(node.id, []).append((call, node))
    said: set[int] = set()
    for name, uses in spent.items():
        for at, (call, node) in enumerate(uses):
            if call.lineno in said:
                continue
            if turns(script, scope, name, call, node):
                said.add(call.lineno)
                yield Hit(node, f"{name} is the same in every iteration: every draw gives the same numbers.")
                continue
            other = [first for first in (*draws.get(name, []), *(pair[0] for pair in uses[:at])) if first is not call]
            before = next((one for one in other if together(script, scope, name, one, call)), None)
            # A target network is given the weights of the other one by starting it from the same key.
            if before is not None and (text(before.func) != text(call.func) or not STARTS.search(text(call.func))):
                said.add(call.lineno)
                yield Hit(node, f"{name} was used on line {before.lineno} already: both give the same numbers.")


STARTS = re.compile(r"init|make|build|create|net|model|reset|[A-Z]")


def together(script: Script, scope: Scope, name: str, first: ast.Call, second: ast.Call) -> bool:
    if (first.lineno, first.col_offset) >= (second.lineno, second.col_offset):
        return False
    return not renewed(script, scope, name, first, second) and not apart(
        script.where(first).block, script.where(second).block.chain()
    )


def keys_in(script: Script, scope: Scope, call: ast.Call) -> Iterator[ast.Name]:
    """Keys that a call takes and will draw from: handed to a function that draws, to init, or as rngs."""
    dotted = script.dotted(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""
    if dotted.startswith(("jax.", "builtins.")):
        return
    last = call.func.attr if isinstance(call.func, ast.Attribute) else text(call.func)
    given = [*call.args, *(word.value for word in call.keywords)]
    for arg in given:
        parts = arg.values if isinstance(arg, ast.Dict) else [arg]
        for part in parts:
            if not isinstance(part, ast.Name) or part.id not in scope.defs or not is_key(script, part):
                continue
            if isinstance(arg, ast.Dict) or last in ("init", "init_with_output"):
                yield part
                continue
            func = behind(script, call.func, script.where(call))
            if func is not None and draws_from(script, func, call, part):
                yield part


def behind(script: Script, node: ast.expr, where: Where) -> Scope | None:
    """The project's function that a call runs, also through jax.value_and_grad(loss)(...), jax.jit, vmap and grad."""
    if isinstance(node, ast.Call):
        wraps = script.at_home(where).dotted(node.func) in WRAPS and node.args
        return behind(script, node.args[0], where) if wraps else None
    if isinstance(node, ast.Name):
        for made in outward(node.id, where):
            func = made.where.block.scope.module.functions.get(made.value) if made.how == "def" else None
            home = script.at_home(made.where)
            if func is not None and func.decorators() and all(wrapper(home, one) for one in func.decorators()):
                return func
    for value in script.values.value(node, where, None) if isinstance(node, ast.Name | ast.Attribute) else ():
        if value.kind == "function":
            return value.func
        if value.kind == "made" and value.where is not None and value.name in WRAPS and value.node.args:
            return behind(script, value.node.args[0], value.where)
    return None


def wrapper(script: Script, node: ast.expr) -> bool:
    """@jax.jit, @eqx.filter_value_and_grad, @partial(jax.jit, static_argnums=1)"""
    if isinstance(node, ast.Call):
        return wrapper(script, node.args[0]) if script.dotted(node.func) == "functools.partial" and node.args else False
    return script.dotted(node) in WRAPS


WRAPS = frozenset(
    "jax.value_and_grad jax.grad jax.jit jax.vmap jax.pmap jax.checkpoint jax.remat equinox.filter_jit "
    "equinox.filter_grad equinox.filter_value_and_grad equinox.filter_vmap flax.nnx.jit".split()
)


def draws_from(script: Script, func: Scope, call: ast.Call, node: ast.AST, deep: int = 3) -> bool:
    """Whether a function of the project draws from the parameter that a key is handed to, unless it folds another
    number in."""
    name = next((name for name in func.params if argument(call, func, name) is node), "")
    home = script.at_home(Where(func.body, 0))
    scopes = [func, *func.children, *(inner for child in func.children for inner in child.children)]
    drawn = False
    for inner in (one for scope in scopes for one in scope.calls):
        given = [*inner.args, *(word.value for word in inner.keywords)]
        given += [part for arg in given if isinstance(arg, ast.Dict) for part in arg.values]
        if not name or not any(isinstance(arg, ast.Name) and arg.id == name for arg in given):
            continue
        last = inner.func.attr if isinstance(inner.func, ast.Attribute) else text(inner.func)
        if last == "fold_in":
            return False
        drawn = (
            drawn or last in ("init", "apply", "apply_fn", "split") or home.dotted(inner.func).startswith("jax.random.")
        )
        further = behind(home, inner.func, home.where(inner)) if deep and not drawn else None
        if further is not None and further is not func:
            key = next(arg for arg in given if isinstance(arg, ast.Name) and arg.id == name)
            drawn = draws_from(home, further, inner, key, deep - 1)
    return drawn


def is_key(script: Script, node: ast.Name) -> bool:
    """Whether a name surely holds a jax key: made or split off here, or a parameter that is called like one."""
    for made in script.scope(node).defs.get(node.id, []):
        if made.how == "param":
            known = bool(KEY.search(node.id)) and script.mentions("jax")
        else:
            call = made.value if made.how == "=" and isinstance(made.value, ast.Call) else None
            known = call is not None and (script.dotted(call.func) in MAKES or split_off(script, call))
        if not known:
            return False
    return True


def split_off(script: Script, node: ast.Call) -> bool:
    """next_rng_key(), or a project's own function that splits."""
    return any(
        value.kind == "function" and value.func is not None and "split" in ast.unparse(value.func.node)
        for value in script.value(node.func)
    )


def turns(script: Script, scope: Scope, name: str, call: ast.Call, node: ast.AST) -> bool:
    """Whether a call runs again with the same key: in a loop, or in a comprehension, that does not make a new one."""
    at: ast.AST | None = node
    while isinstance(at, ast.expr):
        at = script.parent(at)
        if isinstance(at, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return not any(
                isinstance(part, ast.Name) and part.id == name for one in at.generators for part in ast.walk(one.target)
            )
    return loops_on(script, scope, name, call) and not ends(script, call)


def ends(script: Script, call: ast.Call) -> bool:
    """Whether the loop is left right after the call."""
    body = script.where(call).block
    return any(
        script.where(node).block is body
        for kind in (ast.Break, ast.Return)
        for node in script.module.statements.get(kind, [])
    )


KEY = re.compile(r"(^|_)(key|rng|prng)(_|$|\d)|rng_?key", re.I)
MAKES = ("jax.random.PRNGKey", "jax.random.key", "jax.random.split", "jax.random.fold_in")


def renewed(script: Script, scope: Scope, name: str, first: ast.Call, second: ast.Call) -> bool:
    """Whether the name is bound again between two places, or one of them ends the function."""
    low, high = script.where(first).order, script.where(second).order
    if low == high and script.statement(first) is script.statement(second):
        return False
    if any(low <= made.where.order <= high and made.how != "param" for made in scope.defs[name]):
        return True
    statement = script.statement(first)
    return isinstance(statement, ast.Return)


def loops_on(script: Script, scope: Scope, name: str, call: ast.Call) -> bool:
    loops = script.where(call).block.loops()
    if not loops:
        return False
    return not any(loops[0] in made.where.block.chain() for made in scope.defs[name])
