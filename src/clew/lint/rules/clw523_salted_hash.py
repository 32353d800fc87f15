"""Strings are encoded with Python's own hash.

What it sees: `hash(word) % buckets` where the word is seen to be a string, as a row of a table, a part of a split or a
seed.
Why it matters: Python salts the hash of strings in every process. Runs with the same seed differ, and a saved model
gets other codes for the same words when it is loaded.
Silent when: what is hashed is not seen to be a string (numbers have the same hash everywhere); the result is printed or
made part of a name; a class computes its own `__hash__`; the file speaks of PYTHONHASHSEED.
Fix: use a hash that is the same everywhere, such as zlib.crc32(word.encode()) or hashlib.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import Step, trail, verb

MAKES = frozenset(
    "lower upper strip lstrip rstrip split rsplit splitlines join replace format casefold title findall group".split()
)
SAYS = frozenset("str repr print format hex info debug log".split())
ASIDE = ("colo", "port", "path", "file", "name", "tag", "cache")


@rule("CLW523", "salted-hash", "env.nondeterminism", "likely", "hash")
def check(script: Script) -> Iterator[Hit]:
    if "PYTHONHASHSEED" in script.text:
        return
    for call in script.calls("hash"):
        if not isinstance(call.func, ast.Name) or script.dotted(call.func) != "builtins.hash" or len(call.args) != 1:
            continue
        if script.scope(call).name != "__hash__" and ranged(script, call) and of_a_string(script, call.args[0]):
            yield Hit(
                call,
                "encodes strings with hash(), which Python salts per process: runs with the same seed differ, "
                "and a saved model gets other codes.",
            )


def ranged(script: Script, call: ast.Call) -> bool:
    """Whether the hash is reduced to a range, and not only said."""
    found, at = False, script.parent(call)
    below: ast.AST = call
    while isinstance(at, ast.expr):
        if isinstance(at, ast.BinOp) and isinstance(at.op, ast.Mod | ast.BitAnd) and (at.left is below or not found):
            found = True
        if isinstance(at, ast.JoinedStr | ast.FormattedValue) or verb(at) in SAYS:
            return False
        below, at = at, script.parent(at)
    targets = at.targets if isinstance(at, ast.Assign) else []
    return found and not any(word in text(target).lower() for target in targets for word in ASIDE)


def of_a_string(script: Script, node: ast.expr) -> bool:
    steps = trail(script, node, script.where(node), stop=lambda step: stops(script, step), steps=60)
    return any(stringy(step.node) or annotated(step) for step in steps)


def stops(script: Script, step: Step) -> bool:
    """Behind what is made of a string there may be anything, and behind a number too."""
    made = isinstance(step.node, ast.Call) and isinstance(step.node.func, ast.Name | ast.Attribute)
    return stringy(step.node) or (made and script.at_home(step.where).dotted(step.node.func).startswith("builtins."))


def stringy(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)):
        return True
    if isinstance(node, ast.Call):
        return (isinstance(node.func, ast.Attribute) and node.func.attr in MAKES) or text(node.func) == "str"
    return False


def annotated(step: Step) -> bool:
    """A parameter that the function says is a string."""
    if not isinstance(step.node, ast.Name):
        return False
    scope = step.where.block.scope
    given = getattr(scope.node, "args", None)
    if given is None:
        return False
    return any(
        held.arg == step.node.id and held.annotation is not None and text(held.annotation) == "str"
        for held in (*given.posonlyargs, *given.args, *given.kwonlyargs)
    )
