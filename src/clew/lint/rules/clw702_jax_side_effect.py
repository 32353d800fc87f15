"""A side effect inside a traced function.

What it sees: print, append to an outer list, or assignment to a global, nonlocal or self, in a function under jax.jit
or another tracing transformation.
Why it matters: the function's Python runs once, while it is traced. Later calls skip the effect, and what was stored
is a tracer that fails or leaks when it is used.
Silent when: jax.debug.print or callbacks are used, or the list is local.
Fix: return the value, or jax.debug.print.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Scope
from clew.lint.jitted import JITS, traced
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW702", "jax-side-effect", "env.stale_cache", "likely", "jax")
def check(script: Script) -> Iterator[Hit]:
    for held in traced(script):
        scope = held.scope
        for call in scope.calls:
            said = text(call.func)
            if said == "print" and held.by in JITS:
                fix = (
                    Fix("print at run time", False, (script.replace(call.func, "jax.debug.print"),))
                    if plain(call)
                    else None
                )
                yield Hit(call, "runs once, while the function is traced, and prints tracers.", "look", fix)
            elif said.endswith(".append") and (outer(scope, said.split(".")[0]) or of_object(scope, said)):
                yield Hit(call, f"appends a tracer to {said[:-7]}, once, while the function is traced.")
        for name in scope.outside:
            for made in [
                made
                for other in script.module.scopes
                for made in other.defs.get(name, [])
                if made.where.block.scope is scope
            ]:
                yield Hit(made.node, f"{name} is set once, while the function is traced, and then holds a tracer.")
        if scope.me:
            for target, _, _ in scope.attr_sets:
                if text(target.value) == scope.me:
                    yield Hit(
                        target, f"{text(target)} is set once, while the function is traced, and then holds a tracer."
                    )


def plain(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant)


def of_object(scope: Scope, said: str) -> bool:
    """self.history.append"""
    return bool(scope.me) and said.startswith(f"{scope.me}.") and said.count(".") == 2


def outer(scope: object, name: str) -> bool:
    """Whether a name lives outside of the function."""
    return name not in scope.defs and name != ""  # type: ignore[attr-defined]
