"""The policy loss has the wrong sign.

What it sees: a loss made of log-probabilities times returns, advantages or rewards that goes into backward without a
minus.
Why it matters: the optimiser descends, so the policy makes good actions rarer. The return falls to the worst there
is, or the policy collapses onto the action with the least reward.
Silent when: a minus stands anywhere between, the log-probabilities or weights were negated before, or the optimiser
maximises.
Fix: loss = -(log_prob * advantage).mean().
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.gradient import ends
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

LOGP = re.compile(r"log_?p(rob)?s?(_|$|\d)|(^|_)logp|log_pi|action_log", re.I)
CHANCE = re.compile(r"prob|(^|_)pi(_|$)|policy", re.IGNORECASE)
WEIGHT = re.compile(
    r"(^|_)(adv|advantages?|returns?|rewards?|deltas?|td_error|gaes?|gt|rtgs?|discounted_\w+|weights?)($|_|s$)|^(R|G)$",
    re.I,
)


@rule(
    "CLW805",
    "policy-gradient-sign",
    "rl.policy_gradient_sign",
    "certain",
    ("backward manual_backward"),
)
def check(script: Script) -> Iterator[Hit]:
    if any(
        script.constant(script.arg(call, -1, "maximize")) is True
        for name in script.module.calls
        if name[:1].isupper()
        for call in script.calls(name)
    ):
        return
    for end in ends(script):
        found = positive(script, end.node, end.where, 6)
        actor = climbs_critic(end.node, end.where)
        if actor is not None:
            yield Hit(
                actor, "descends what the critic says: without a minus the actor seeks the worst action.", "likely"
            )
        if found is not None:
            yield Hit(found, "descends log-probability times reward: without a minus good actions become rarer.")


def positive(script: Script, node: Any, where: Where, deep: int) -> ast.AST | None:
    """The product of log-probabilities and rewards, when nothing on the way to it negates it."""
    if deep == 0:
        return None
    if isinstance(node, ast.Name) and node.id in where.block.scope.defs:
        made = reaching(where.block.scope.defs[node.id], where)
        if len(made) == 1 and made[0].how == "=" and not made[0].path:
            return positive(script, made[0].value, made[0].where, deep - 1)
        return None
    if (
        isinstance(node, ast.Call)
        and script.dotted(node.func) in ("torch.cat", "torch.stack", "builtins.sum")
        and node.args
    ):
        return collected(script, node.args[0], where, deep)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("mean", "sum"):
        inner = node.func.value if not script.dotted(node.func) else script.arg(node, 0)
        return positive(script, inner, where, deep - 1) if inner is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return positive(script, node.left, where, deep - 1) or None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and product(script, node, where):
        return node
    return None


def collected(script: Script, node: Any, where: Where, deep: int) -> ast.AST | None:
    """What was appended to a list that is then summed."""
    for call in where.block.scope.calls:
        if isinstance(node, ast.Name) and text(call.func) == f"{node.id}.append" and call.args:
            return positive(script, call.args[0], script.where(call), deep - 1)
    return None


def climbs_critic(node: Any, where: Where) -> ast.AST | None:
    """The loss of an actor that is what its critic says, without a minus."""
    if not isinstance(node, ast.Name) or not ACTOR.search(node.id) or node.id not in where.block.scope.defs:
        return None
    made = reaching(where.block.scope.defs[node.id], where)
    value = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "mean":
        return None
    inner = value.func.value
    if not isinstance(inner, ast.Call) or len(inner.args) < 2 or not CRITIC.search(text(inner.func).rsplit(".", 1)[-1]):
        return None
    return value


ACTOR = re.compile(r"(actor|policy|pi)_?loss", re.IGNORECASE)
CRITIC = re.compile(r"^(critic|q|qf|q1|qf1|q_net|q_network|critic_?1)$", re.IGNORECASE)


def product(script: Script, node: ast.BinOp, where: Where) -> bool:
    sides = (node.left, node.right)
    for one, other in (sides, sides[::-1]):
        if (
            logs(script, one, where)
            and weighs(other)
            and not negated(script, one, where)
            and not negated(script, other, where)
        ):
            return True
    return False


def logs(script: Script, node: Any, where: Where) -> bool:
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "log_prob":
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr == "log":
            return bool(CHANCE.search(text(script.operand(node)).rsplit(".", 1)[-1]))
        return any(logs(script, arg, where) for arg in node.args[:1]) or (
            isinstance(node.func, ast.Attribute) and logs(script, node.func.value, where)
        )
    name = text(node).rsplit(".", 1)[-1]
    return bool(LOGP.search(name)) and "ratio" not in name and not name.startswith(("neg", "nll"))


def weighs(node: Any) -> bool:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return bool(WEIGHT.search(text(node).rsplit(".", 1)[-1]))


def negated(script: Script, node: Any, where: Where) -> bool:
    """Whether a name was given a minus where it was made or collected."""
    for part in ast.walk(node):
        if (
            isinstance(part, ast.UnaryOp)
            and isinstance(part.op, ast.USub)
            and not isinstance(part.operand, ast.Constant)
        ):
            return True
        if isinstance(part, ast.Name):
            for made in where.block.scope.defs.get(part.id, []):
                if made.how == "=" and isinstance(made.value, ast.AST) and minus(made.value):
                    return True
            for call in script.calls("append", "insert"):
                if text(call.func).split(".")[0] == part.id and call.args and minus(call.args[-1]):
                    return True
    return False


def minus(node: ast.AST) -> bool:
    return any(
        isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.USub) and not isinstance(part.operand, ast.Constant)
        for part in ast.walk(node)
    )
