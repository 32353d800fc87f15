"""A time limit is stored as the end of the task.

What it sees: `terminated or truncated` from env.step, and the result put into a replay buffer, a memory or a target.
Why it matters: a state cut off by the time limit still has value, and its target sets it to zero. The agent learns that
late states are worthless, and value estimates depend on the time limit.
Silent when: the flag only resets the environment, or terminated and truncated are stored or used apart; to count the
true ends for a log is no such use.
Fix: store terminated; use both to reset.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.index import Def, Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import verb

STORES = re.compile(
    r"(^|_)(add|append|push|store|remember|insert|put|save|cache|record)(_|$)|store_transition|memory$", re.I
)
MEMORY = re.compile(r"buffer|memory|replay|transition|storage|traject|rollout|experience|^rb$|^mem$|^buf$", re.I)
COUNTS = frozenset("sum mean any count_nonzero print info debug log log_metric add_scalar write".split())


@rule("CLW802", "truncation-as-termination", "rl.truncation_as_terminal", "likely", "step")
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if not any(merged(made) and not told_apart(script, made) for made in defs):
                continue
            for call in scope.calls:
                if (
                    isinstance(call.func, ast.Attribute)
                    and STORES.search(call.func.attr)
                    and MEMORY.search(text(call.func.value).rsplit(".", 1)[-1])
                    and gives(call, name)
                    and not apart(call)
                ):
                    yield Hit(
                        call,
                        f"stores {name}, which is also true at the time limit: a truncated state still has value.",
                    )
                    break

        yield from at_once(scope)


def at_once(scope: Scope) -> Iterator[Hit]:
    """buffer.add(obs, action, reward, next_obs, terminated or truncated)"""
    for call in scope.calls:
        stores = isinstance(call.func, ast.Attribute) and STORES.search(call.func.attr)
        if not stores or not MEMORY.search(text(call.func.value).rsplit(".", 1)[-1]):  # type: ignore[attr-defined]
            continue
        for arg in call.args:
            if isinstance(arg, ast.BoolOp | ast.BinOp | ast.Call) and either(arg) and flags(arg):
                yield Hit(call, "stores a flag that is also true at the time limit: a truncated state still has value.")
                break


def flags(node: ast.AST) -> bool:
    said = ast.unparse(node).lower()
    return "trunc" in said and "term" in said


def either(value: ast.AST) -> bool:
    return (
        (isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or))
        or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr))
        or (isinstance(value, ast.Call) and text(value.func).endswith("logical_or"))
    )


def merged(made: Def) -> bool:
    """terminated or truncated, in any spelling."""
    value = made.value
    if made.how != "=" or not isinstance(value, ast.BoolOp | ast.BinOp | ast.Call):
        return False
    if not either(value):
        return False
    said = ast.unparse(value)
    if "truncat" in said and "terminat" in said:
        return True
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
    places = {one.path for name in names for one in made.where.block.scope.defs.get(name, []) if stepped(one)}
    return {(2,), (3,)} <= places


def stepped(made: Def) -> bool:
    """A name from `obs, reward, terminated, truncated, info = env.step(action)`."""
    call, target = made.value, made.node
    func = call.func if made.how == "=" and isinstance(call, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr == "step" and "env" in text(func.value) and target is not None


def gives(call: ast.Call, name: str) -> bool:
    return any(
        isinstance(part, ast.Name) and part.id == name
        for arg in (*call.args, *(word.value for word in call.keywords))
        for part in ast.walk(arg)
    )


def apart(call: ast.Call) -> bool:
    """Whether the same call also stores one of the two flags by itself."""
    said = " ".join(ast.unparse(arg) for arg in (*call.args, *(word.value for word in call.keywords)))
    return any(word in said for word in ("terminat", "truncat", "info", "term,", "trunc,"))


def told_apart(script: Script, made: Def) -> bool:
    """Whether the flag of a true end is used by itself too, and not only counted or printed: then the author keeps the
    two apart."""
    names = {part.id for part in ast.walk(made.value) if isinstance(part, ast.Name)}
    own = {name for name in names if "term" in name.lower()}
    for node in (node for name in own for node in script.loads(name)):
        if isinstance(node, ast.Name) and not counted(script, node):
            where = script.where(node)
            if where.block.scope is made.where.block.scope and where.order != made.where.order:
                return True
    return False


def counted(script: Script, node: ast.AST) -> bool:
    """Whether a flag is only summed up or said."""
    statement = script.statement(node)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        return True
    at = script.parent(node)
    while isinstance(at, ast.expr):
        if isinstance(at, ast.JoinedStr) or verb(at) in COUNTS:
            return True
        at = script.parent(at)
    return False
