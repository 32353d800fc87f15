"""Assignment into a jax array.

What it sees: x[i] = v, or x[i] += v, where x was made by jax.numpy, here or by the callers, or is a parameter of a
traced function.
Why it matters: jax arrays do not change. The line raises when it runs, which may be in a branch that tests do not
reach.
Silent when: x is a numpy array, a list or a dict.
Fix: x = x.at[i].set(v).
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.index import Where
from clew.lint.jitted import traced
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.trail import Step, said_by, trail


@rule("CLW703", "jax-inplace", "train.inplace_corruption", "certain", "jax jnp")
def check(script: Script) -> Iterator[Hit]:
    params = {held.scope: held.params for held in traced(script)}
    for target, value, where in script.module.subscript_sets:
        if not isinstance(target.value, ast.Name) or (
            isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str)
        ):
            continue
        name = target.value.id
        values = script.value(target.value)
        made = all(one.kind == "made" and one.name.startswith("jax.numpy.") for one in values)
        made = made or array(script, target.value, where)
        given = (
            name in params.get(where.block.scope, ())
            and numeric(target.slice)
            and len(where.block.scope.defs.get(name, [])) == 1
        )
        if made or given:
            statement = script.statement(target)
            verb = "add" if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) else "set"
            given_value = statement.value if isinstance(statement, ast.AugAssign) else value
            fix = None
            if isinstance(given_value, ast.expr) and (isinstance(statement, ast.Assign) or verb == "add"):
                fixed = f"{name} = {name}.at[{script.source(target.slice)}].{verb}({script.source(given_value)})"
                fix = Fix("make an updated copy", made, (script.replace(statement, fixed),))
            yield Hit(
                statement,
                f"{name} is a jax array, which cannot be changed in place.",
                "certain" if made else "look",
                fix,
            )


def array(script: Script, node: Any, where: Where) -> bool:
    """Whether a value is a jax array by everything that is in sight: how it was computed, here or by the callers."""
    found = False
    for step in trail(script, node, where, stop=lambda step: bool(origin(script, step)), steps=60):
        kind = origin(script, step)
        if kind == "other":
            return False
        found = found or kind == "jax"
    return found


def origin(script: Script, step: Step) -> str:
    """`jax` for what a jax function gives, `other` for a numpy array, a list or a dict; "" when it says nothing."""
    node = step.node
    if isinstance(node, ast.Dict | ast.List | ast.ListComp | ast.DictComp | ast.Set):
        return "other"
    if not isinstance(node, ast.Call):
        return ""
    dotted = said_by(script, step)
    if dotted.startswith(("numpy.", "builtins.", "torch.", "pandas.", "copy.", "collections.")):
        return "other"
    return "jax" if dotted.startswith(("jax.numpy.", "jax.random.", "jax.nn.", "jax.lax.")) else ""


def numeric(node: ast.AST) -> bool:
    return isinstance(node, ast.Slice | ast.Tuple) or (isinstance(node, ast.Constant) and isinstance(node.value, int))
