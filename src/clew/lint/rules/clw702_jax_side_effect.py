"""A side effect inside a traced function.

What it sees: print, append to an outer list, or assignment to a global, nonlocal or self, in a function under jax.jit
or another tracing transformation; a draw from numpy's or Python's random numbers, or a look at the clock, in there.
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
            elif (held.by in JITS or jitted_around(script, scope)) and drawn(script, call):
                yield Hit(call, "is drawn once, while the function is traced: every later call gets the same numbers.")
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


def drawn(script: Script, call: ast.Call) -> bool:
    """np.random.normal(...), random.random(), rng.normal(...) of a numpy generator, time.time()."""
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return False
    dotted = script.dotted(call.func)
    if dotted:
        last = dotted.rsplit(".", 1)[-1]
        random = dotted.startswith(("numpy.random.", "random."))
        return (random and last not in MAKERS) or dotted in ("time.time", "time.perf_counter", "time.monotonic")
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(base, ast.Name | ast.Attribute) or call.func.attr not in DRAWS:  # type: ignore[union-attr]
        return False
    return any(value.name.startswith(("numpy.random.", "random.Random")) for value in script.value(base))


MAKERS = ("default_rng", "RandomState", "Random", "Generator", "SeedSequence", "seed", "getstate", "get_state")
DRAWS = frozenset(
    "normal uniform standard_normal integers randint random choice permutation shuffle rand randn random_sample beta "
    "binomial poisson exponential gauss sample".split()
)


def jitted_around(script: Script, scope: Scope) -> bool:
    """Whether the function stands in one that is compiled: grad alone traces anew in every call."""
    held = {one.scope for one in traced(script) if one.by in JITS}
    at = scope.parent
    while at is not None:
        if at in held:
            return True
        at = at.parent
    return False


def plain(call: ast.Call) -> bool:
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant)


def of_object(scope: Scope, said: str) -> bool:
    """self.history.append"""
    return bool(scope.me) and said.startswith(f"{scope.me}.") and said.count(".") == 2


def outer(scope: object, name: str) -> bool:
    """Whether a name lives outside of the function."""
    return name not in scope.defs and name != ""  # type: ignore[attr-defined]
