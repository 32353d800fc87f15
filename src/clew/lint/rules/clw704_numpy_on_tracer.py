"""numpy is applied to a traced value.

What it sees: a function of numpy, float(), int() or item() on a parameter of a function under jit, grad or vmap, on
what is computed from it, and in functions that are called from there.
Why it matters: numpy needs numbers, a tracer has none yet. It raises, or, where numpy falls back to objects, computes
something else and stays outside of the gradient.
Silent when: the argument is static, or only its shape is used.
Fix: use jax.numpy.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.given import argument
from clew.lint.index import Where
from clew.lint.jitted import traced, tracing
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

HARMLESS = (
    "numpy.prod",
    "numpy.shape",
    "numpy.ndim",
    "numpy.float32",
    "numpy.int32",
    "numpy.dtype",
    "numpy.array_equal",
    "numpy.issubdtype",
)


@rule("CLW704", "numpy-on-tracer", "loss.disconnected", "likely", "jax")
def check(script: Script) -> Iterator[Hit]:
    for held in traced(script):
        for call in held.scope.calls:
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in ("item", "tolist") and not call.args:
                if tracing(script, func.value, held) and not script.dotted(func):
                    yield Hit(call, f"{func.attr}() needs numbers, and this is a tracer under {held.by}.")
                continue
            if not isinstance(func, ast.Attribute | ast.Name) or not call.args:
                continue
            dotted = script.dotted(func)
            known = dotted.startswith(("numpy.", "jax", "builtins.", "optax.", "flax."))
            away = helper(script, call, script.where(call)) if not known else None
            if (
                away is not None
                and away.module is not script.module
                and any(tracing(script, arg, held) for arg in call.args)
            ):
                home = script.at_home(Where(away.body, 0))
                asked = [one for one in away.calls if home.dotted(one.func).startswith("numpy.")]
                given = {
                    name
                    for name in away.params
                    if (arg := argument(call, away, name)) is not None and tracing(script, arg, held)
                }
                if not home.mentions("jax") and any(
                    touched(one, given) and home.dotted(one.func) not in HARMLESS for one in asked
                ):
                    yield Hit(call, f"{away.name} applies numpy to a tracer under {held.by}.")
                continue
            if (
                dotted.startswith("numpy.")
                and dotted not in HARMLESS
                and dotted.count(".") <= 2
                and any(tracing(script, arg, held) for arg in call.args)
            ):
                yield Hit(call, f"{dotted} needs numbers, and the argument is a tracer under {held.by}.")
            elif (
                dotted in ("builtins.float", "builtins.int")
                and isinstance(call.args[0], ast.Name | ast.Call | ast.BinOp)
                and tracing(script, call.args[0], held)
            ):
                yield Hit(call, f"{dotted[9:]}() needs a number, and the argument is a tracer under {held.by}.")


def touched(call: ast.Call, names: set[str]) -> bool:
    """Whether one of the names goes into a call."""
    return any(isinstance(part, ast.Name) and part.id in names for arg in call.args for part in ast.walk(arg))
