"""A Python branch on a traced value.

What it sees: if, while, assert or a conditional expression that compares a parameter of a function under jit or vmap.
Why it matters: the branch is taken while tracing, when the value is not known. It raises, or, where a concrete value
slipped in, one branch is compiled for all inputs.
Silent when: the parameter is static, or the test is about shape, type, or None.
Fix: jnp.where or jax.lax.cond.
"""

import ast
from collections.abc import Iterator

from clew.lint.jitted import JITS, Traced, traced, tracing
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule("CLW705", "branch-on-tracer", "train.swallowed_exception", "likely", "jax")
def check(script: Script) -> Iterator[Hit]:
    for held in traced(script):
        if held.by not in (*JITS, "jax.vmap"):
            continue
        for either in script.module.nodes.get(ast.IfExp, []):
            if script.scope(either) is held.scope and compares(script, either.test, held):
                yield Hit(either.test, f"branches on a value that is unknown while {held.by} traces.")
        for kind in (ast.If, ast.While):
            for node in script.module.statements.get(kind, []):
                if script.scope(node) is held.scope and compares(script, node.test, held):
                    yield Hit(node.test, f"branches on a value that is unknown while {held.by} traces.")


def compares(script: Script, test: ast.AST, held: Traced) -> bool:
    for part in ast.walk(test):
        if (
            isinstance(part, ast.Compare)
            and any(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in part.ops)
            and tracing(script, part, held)
        ):
            return True
    return False
