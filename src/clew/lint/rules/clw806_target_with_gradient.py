"""The target of a value loss carries gradients.

What it sees: a bootstrapped target, reward + gamma * value of the next state, computed outside of no_grad and without
detach, that goes into a loss against the current value.
Why it matters: the gradient also pulls the target towards the prediction. The two meet in the middle, learning is
biased and often unstable.
Silent when: the target network's output is detached, computed under no_grad, or comes from another network whose
parameters no optimiser holds.
Fix: compute the target under no_grad, or detach it.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Def
from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.rules.clw801_done_ignored import GAMMA, REWARD, words
from clew.lint.script import Hit, Script, text


@rule("CLW806", "target-with-gradient", "rl.value_not_learning", "likely", "gamma GAMMA discount_factor")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("backward"):
        return
    for loss in loss_calls(script):
        if loss.wants != "values" or not isinstance(loss.target, ast.Name):
            continue
        scope = script.scope(loss.node)
        defs = scope.defs.get(loss.target.id, [])
        sides = [loss.prediction or loss.node]
        for part in ast.walk(sides[0]):
            if isinstance(part, ast.Name) and part.id != loss.target.id:
                sides += [one.value for one in scope.defs.get(part.id, []) if one.how == "=" and one.value is not None]
        judged = {text(part.func) for side in sides for part in ast.walk(side) if isinstance(part, ast.Call)}
        if len(defs) == 1 and bootstraps(script, defs[0], judged - {""}):
            yield Hit(
                loss.target,
                f"{loss.target.id} is computed by the trained network and keeps its gradient: detach it.",
            )


def bootstraps(script: Script, made: Def, judged: set[str]) -> bool:
    value = made.value
    if (
        made.how != "="
        or not isinstance(value, ast.BinOp)
        or not isinstance(value.op, ast.Add)
        or script.grad_off(made.where) is not None
    ):
        return False
    said = words(value)
    if (
        not any(GAMMA.search(word) for word in said)
        or not any(REWARD.search(word) for word in said)
        or {"detach", "item", "data"} & set(said)
    ):
        return False
    return any(online(script, call, judged) for call in networks(made))


def networks(made: Def) -> Iterator[ast.Call]:
    """Calls of networks in the target, directly or one name before."""
    scope = made.where.block.scope
    parts: list[ast.AST] = [made.value]
    for part in ast.walk(made.value):
        if isinstance(part, ast.Name):
            defs = scope.defs.get(part.id, [])
            if len(defs) == 1 and defs[0].how == "=" and isinstance(defs[0].value, ast.AST):
                parts.append(defs[0].value)
    for part in parts:
        for call in ast.walk(part):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                yield call


def online(script: Script, call: ast.Call, judged: set[str]) -> bool:
    """Whether the network is the one that the loss also judges, or whose parameters an optimiser holds, and gradients
    are on where it is applied."""
    said = text(call.func)
    if (
        not said
        or "target" in said.lower()
        or call not in script.module.up
        or script.grad_off(script.where(call)) is not None
    ):
        return False
    above = script.statement(call)
    if any(isinstance(part, ast.Attribute) and part.attr in ("detach", "item", "data") for part in ast.walk(above)):
        return False
    if said in judged and said.count(".") < 2 and not said.startswith(("torch.", "F.")):
        return True
    return any(
        text(part.value) == said
        for other in script.calls("Adam", "AdamW", "SGD", "RMSprop")
        for part in ast.walk(other)
        if isinstance(part, ast.Attribute) and part.attr == "parameters"
    )
