"""The old policy's log-probabilities carry gradients.

What it sees: old_log_prob computed from the current policy without detach or no_grad, and used in a ratio with the
new one that is then optimised over several epochs; old and new from the very same call.
Why it matters: the ratio is differentiated through both terms, or through a graph of weights that have changed. In
the first epoch the two gradients cancel exactly and nothing is learned; later autograd complains, which retain_graph
hides.
Silent when: it is detached, computed under no_grad, or read from a buffer.
Fix: .detach(), or compute it under no_grad while collecting.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.index import Def, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

OLD = re.compile(
    r"^old$|^old_lp$|(^|_)old_?(action)?_?(log_?p\w*|logp\w*|log_prob\w*|pi\w*)$|(log_?probs?|logp)_old$", re.I
)

# A policy that is kept as a copy is not the one being trained: no gradient of the ratio ends in its weights.
COPY = re.compile(r"(^|[^a-z])(\w+_(old|ref|prev|behaviou?r|target|frozen)|(old|ref|prev|behaviou?r)_\w+)[.(]", re.I)


@rule("CLW804", "old-log-prob-with-gradient", "rl.kl_spike", "likely", "log_prob")
def check(script: Script) -> Iterator[Hit]:
    yield from inline(script)
    yield from stored(script)
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if not OLD.search(name):
                continue
            for made in defs:
                if again(script, made) and optimised(script, made):
                    yield Hit(
                        script.statement(made.node),
                        f"{name} is computed by the same call as the new one: the ratio is always one.",
                    )
                elif graded(script, made) and optimised(script, made):
                    yield Hit(
                        script.statement(made.node),
                        f"{name} is part of the graph: the ratio is differentiated through the old policy too.",
                    )


def stored(script: Script) -> Iterator[Hit]:
    """data.append((obs, act, dist.log_prob(act), ...)) while collecting, for a ratio that is clipped later."""
    if not script.mentions("clamp", "clip") or not script.mentions("exp") or not script.mentions("step"):
        return
    if any("detach" in ast.unparse(script.statement(node)) for name in OLDS for node in script.loads(name)):
        return
    for call in script.calls("append", "add", "push", "store"):
        where = script.where(call)
        stepped = any(
            isinstance(one.func, ast.Attribute) and one.func.attr == "step" and "env" in text(one.func.value)
            for one in where.block.scope.calls
        )
        if not stepped or not where.block.loops() or script.grad_off(where) is not None:
            continue
        for part in ast.walk(call):
            if (
                not isinstance(part, ast.Call)
                or not isinstance(part.func, ast.Attribute)
                or part.func.attr != "log_prob"
            ):
                continue
            above = script.parent(part)
            wrapped = isinstance(above, ast.Attribute) and above.attr in ("detach", "item", "cpu", "sum")
            base = part.func.value
            made = reaching(where.block.scope.defs.get(base.id, []), where) if isinstance(base, ast.Name) else []
            quiet = any(script.grad_off(one.where) is not None for one in made)
            if not wrapped and not quiet and not isinstance(script.parent(call), ast.Assign):
                yield Hit(part, "is kept with its graph while collecting: the old policy must not carry gradients.")


OLDS = ("old_logp", "old_log_probs", "old_log_prob", "old_logprobs", "old_logps", "logp_old", "log_probs_old")


def inline(script: Script) -> Iterator[Hit]:
    """(logp - dist(obs).log_prob(act)).exp(), where logp is the same thing by name."""
    for call in script.calls("exp"):
        operand = script.operand(call)
        if (
            not isinstance(operand, ast.BinOp)
            or not isinstance(operand.op, ast.Sub)
            or isinstance(operand.right, ast.Name)
        ):
            continue
        where = script.where(call)
        right = spelled(operand.right, where)
        if "log_prob" in right and "detach" not in right and right == spelled(operand.left, where):
            told = "both sides of this ratio are computed from the same policy: it is always one."
            yield Hit(call, told)


def spelled(node: ast.expr, where: Where, deep: int = 3) -> str:
    """An expression as text, with names of the function replaced by what they were given."""
    defs = where.block.scope.defs
    found = ast.unparse(node)
    for part in ast.walk(node) if deep else ():
        if isinstance(part, ast.Name) and part.id in defs:
            held = reaching(defs[part.id], where)
            plain = len(held) == 1 and held[0].how == "=" and not held[0].path
            if plain and isinstance(held[0].value, ast.Call):
                inner = spelled(held[0].value, held[0].where, deep - 1)
                found = inner.join(re.split(rf"\b{part.id}\b", found))
    return found


def graded(script: Script, made: Def) -> bool:
    """log_prob(...) as it comes, outside of no_grad."""
    value = made.value
    if made.how != "=" or not isinstance(value, ast.Call) or script.grad_off(made.where) is not None:
        return False
    calls = [
        part.func.attr
        for part in ast.walk(value)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)
    ]
    if "log_prob" not in calls or set(calls) & {"detach", "item", "numpy", "clone_detached"}:
        return False
    return not COPY.search(spelled(value, made.where)) and not quietly_made(script, value, made.where)


def quietly_made(script: Script, value: ast.expr, where: Where) -> bool:
    """Whether the distribution that is asked was made under no_grad."""
    defs = where.block.scope.defs
    asked = [
        part.func.value.id
        for part in ast.walk(value)
        if isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr == "log_prob"
        and isinstance(part.func.value, ast.Name)
    ]
    made = [one for name in asked for one in reaching(defs.get(name, []), where)]
    return bool(made) and all(script.grad_off(one.where) is not None for one in made)


def again(script: Script, made: Def) -> bool:
    """Whether another name of the same block holds the result of the very same call, with gradients."""
    if made.how != "=" or not isinstance(made.value, ast.Call) or script.grad_off(made.where) is not None:
        return False
    said = ast.dump(made.value)
    return any(
        other.value is not made.value
        and other.path == made.path
        and other.where.block is made.where.block
        and isinstance(other.value, ast.Call)
        and ast.dump(other.value) == said
        for defs in made.where.block.scope.defs.values()
        for other in defs
    )


def optimised(script: Script, made: Def) -> bool:
    """Whether the same function computes gradients and never detaches it later."""
    scope = made.where.block.scope
    calls = [call.func.attr for call in scope.calls if isinstance(call.func, ast.Attribute)]
    if "backward" not in calls:
        return False
    for node in script.loads(made.name):
        if isinstance(node, ast.Name) and node.id == made.name:
            above = script.module.up[node]
            if isinstance(above, ast.Attribute) and above.attr in ("detach", "detach_", "data", "numpy", "cpu", "item"):
                return False
    return True
