"""The policy loss sends gradients into the critic.

What it sees: advantage = returns - values with values from a network, multiplied by log-probabilities in the policy
loss without detach or no_grad.
Why it matters: the critic is then also trained to make the policy loss small, which means to make advantages large
and wrong. The baseline stops being one.
Silent when: the advantage or the values are detached, taken out of the graph, or computed under no_grad.
Fix: (log_prob * advantage.detach()).
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.gradient import cut
from clew.lint.registry import rule
from clew.lint.rules.clw805_policy_gradient_sign import logs
from clew.lint.script import Hit, Script, text
from clew.lint.validation import applied

ADVANTAGE = re.compile(r"^(adv|advantages?|td_errors?|deltas?)$", re.I)


@rule("CLW807", "advantage-with-gradient", "rl.advantage_wrong", "likely", "log_prob log_probs")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("backward"):
        return
    for node in script.module.nodes.get(ast.BinOp, []):
        if not isinstance(node.op, ast.Mult):
            continue
        where = script.where(node)
        for one, other in ((node.left, node.right), (node.right, node.left)):
            bare = other.operand if isinstance(other, ast.UnaryOp) else other
            if (
                isinstance(one, ast.Name)
                and ADVANTAGE.match(one.id)
                and logs(script, bare, where)
                and carries(script, one)
            ):
                yield Hit(one, f"{one.id} keeps the critic's gradient: the policy loss trains the critic too.")


def carries(script: Script, node: ast.Name) -> bool:
    """returns - values, with values straight from a network in the same function."""
    where = script.where(node)
    defs = where.block.scope.defs.get(node.id, [])
    for made in reaching(defs, where) if defs else []:
        value = made.value
        if (
            made.how != "="
            or made.path
            or not isinstance(value, ast.BinOp)
            or not isinstance(value.op, ast.Sub)
            or script.grad_off(made.where) is not None
        ):
            return False
        if not from_network(script, value.right) or cut(script, value, made.where) is not None:
            return False
    return bool(defs)


def trained(script: Script, func: ast.expr) -> bool:
    """Whether what is called is asked for its parameters somewhere, under the same last name."""
    name = text(func).rsplit(".", 1)[-1]
    return bool(name) and any(
        isinstance(call.func, ast.Attribute) and text(call.func.value).rsplit(".", 1)[-1] == name
        for call in script.calls("parameters")
    )


def from_network(script: Script, node: Any) -> bool:
    if isinstance(node, ast.Name):
        where = script.where(node)
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        return (
            len(made) == 1
            and made[0].how == "="
            and (not made[0].path or isinstance(made[0].value, ast.Call))
            and script.grad_off(made[0].where) is None
            and from_network(script, made[0].value)
        )
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("squeeze", "view", "reshape", "flatten"):
            return from_network(script, node.func.value)
        return (
            bool(applied(script, node))
            or trained(script, node.func)
            or bool(re.search(r"critic|value_?(net|fn|function)", ast.unparse(node.func), re.I))
        )
    return False
