"""A random key is used twice.

What it sees: the same jax.random key given to two draws, or to one draw in a loop, without a split or fold_in
between.
Why it matters: a key is a value, not a state: the same key gives the same numbers. Two layers start alike, every
dropout mask is the same, every step adds the same noise.
Silent when: the key is split or folded in between, or the draws lie on different branches.
Fix: key, sub = jax.random.split(key) before each draw.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import apart
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

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
    for scope in script.module.scopes:
        if scope.kind in ("function", "module"):
            yield from reused(script, scope)


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
            elif loops_on(script, scope, name, call):
                yield Hit(call, f"{name} is the same in every turn of the loop: every draw gives the same numbers.")


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
