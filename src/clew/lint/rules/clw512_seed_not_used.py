"""A seed is asked for and never used.

What it sees: a --seed argument, or a SEED constant next to a training loop, that nothing in the file reads.
Why it matters: runs differ although they were told to be alike, and a comparison over seeds compares nothing.
Silent when: the arguments are passed on as a whole, or anything reads the seed.
Fix: seed Python, numpy and torch from it at the start.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW512", "seed-not-used", "env.nondeterminism", "look", "add_argument")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch", "numpy", "np", "sklearn"):
        return
    for call in script.calls("add_argument"):
        flags = [script.constant(arg) for arg in call.args]
        if "--seed" not in flags or script.arg(call, -1, "dest") is not None:
            continue
        if "seed" not in script.module.names and not passed_on(script):
            yield Hit(call, "--seed is accepted and nothing reads it: runs with the same seed differ.")


def passed_on(script: Script) -> bool:
    """Whether the parsed arguments go somewhere as a whole."""
    holders = set()
    for call in script.calls("parse_args", "parse_known_args"):
        statement = script.statement(call)
        if not isinstance(statement, ast.Assign):
            return True
        holders |= {
            text(part)
            for target in statement.targets
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        }
    if not holders:
        return True
    for node in script.module.up:
        if isinstance(node, ast.Name) and node.id in holders and isinstance(node.ctx, ast.Load):
            above = script.module.up[node]
            if not isinstance(above, ast.Attribute) and not printed(above):
                return True
    return False


def printed(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and text(node.func) in ("print", "vars")
