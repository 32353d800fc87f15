"""A transition is stored with the same state twice.

What it sees: `obs = next_obs` before the transition is put into the buffer, so that obs and next_obs are one and the
same there.
Why it matters: the agent learns that every action leads from a state to itself. Values do not propagate, and nothing
crashes.
Silent when: the state moves on after the transition was stored, or a copy was taken before.
Fix: store first, then obs = next_obs.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

STORES = re.compile(r"^(add|push|store|append|remember|put|insert|record|add_transition|store_transition)$")


@rule("CLW808", "transition-misaligned", "rl.misaligned_transition", "certain", "step")
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        for call in scope.calls:
            if not isinstance(call.func, ast.Attribute) or not STORES.match(call.func.attr) or not call.args:
                continue
            where = script.where(call)
            given = [
                text(part) for arg in call.args for part in ([arg] if not isinstance(arg, ast.Tuple) else arg.elts)
            ]
            for name in given:
                made = [one for one in scope.defs.get(name, []) if one.where.order < where.order]
                last = made[-1] if made else None
                same = last is not None and last.how == "=" and not last.path and isinstance(last.value, ast.Name)
                if last is None or not same or last.value.id not in given or last.where.block is not where.block:
                    continue
                other = scope.defs.get(last.value.id, [])
                if not any(last.where.order < one.where.order < where.order for one in other):
                    yield Hit(
                        call, f"stores {name} and {last.value.id}, which line {last.value.lineno} made the same state."
                    )
                    break
