"""Assignment into a jax array.

What it sees: x[i] = v, or x[i] += v, where x was made by jax.numpy or is a parameter of a traced function.
Why it matters: jax arrays do not change. The line raises when it runs, which may be in a branch that tests do not
reach.
Silent when: x is a numpy array, a list or a dict.
Fix: x = x.at[i].set(v).
"""

import ast
from collections.abc import Iterator

from clew.lint.jitted import traced
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


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
                fix = Fix("make a changed copy", made, (script.replace(statement, fixed),))
            yield Hit(
                statement,
                f"{name} is a jax array, which cannot be changed in place.",
                "certain" if made else "look",
                fix,
            )


def numeric(node: ast.AST) -> bool:
    return isinstance(node, ast.Slice | ast.Tuple) or (isinstance(node, ast.Constant) and isinstance(node.value, int))
