"""The policy loss has the wrong sign.

What it sees: a loss made of log-probabilities times returns, advantages or rewards that goes into backward without a
minus.
Why it matters: the optimiser descends, so the policy makes good actions rarer. The return falls to the worst there
is, or the policy collapses onto the action with the least reward.
Silent when: a minus stands anywhere between, the log-probabilities or weights were negated before, the weight is a
constant or that of the entropy, or the optimiser maximises.
Fix: loss = -(log_prob * advantage).mean().
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
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
ENTROPY = re.compile(r"entropy|(^|_)ent(_|$)|temperature", re.IGNORECASE)


@rule(
    "CLW805",
    "policy-gradient-sign",
    "rl.policy_gradient_sign",
    "certain",
    ("backward manual_backward"),
)
def check(script: Script) -> Iterator[Hit]:
    yield from entropies(script)
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
                actor, "minimises the critic's value: without a minus the actor seeks the worst action.", "likely"
            )
        if found is not None:
            yield Hit(found, "minimises log-probability times reward: without a minus good actions become rarer.")


def entropies(script: Script) -> Iterator[Hit]:
    """pg_loss + beta * dist.entropy().mean(): what is minimised then makes the policy certain, not curious."""
    told = any("entropy" in name for name in script.module.names)
    for node in script.module.nodes.get(ast.BinOp, []) if told else ():
        above = script.parent(node)
        if not isinstance(node.op, ast.Add | ast.Sub) or (isinstance(above, ast.BinOp) and above.right is node):
            continue
        added = isinstance(node.op, ast.Add)
        while isinstance(above, ast.BinOp):
            above = script.parent(above)
        where = script.where(node)
        scope = where.block.scope
        named = isinstance(above, ast.Assign) and "loss" in text(above.targets[0]).lower()
        given = isinstance(above, ast.Return) and "loss" in scope.name.lower()
        if not (named or given):
            continue
        if not added and owed(node.right, where):
            yield Hit(
                node.right, "p log p is negative: subtracting it pushes the policy to become deterministic.", cause=ENT
            )
        if not added or not script.mentions("log_prob", "log_probs"):
            continue
        if bonus(node.right, where) and not bonus(node.left, where):
            yield Hit(
                node.right,
                "adds the entropy to a minimised loss: the policy is pushed to become deterministic.",
                cause=ENT,
            )


ENT = "rl.entropy_collapse"


def bonus(node: Any, where: Where, deep: int = 3) -> bool:
    """beta * dist.entropy().mean(), with a plus; an entropy loss has its minus inside."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factor = [side for side in (node.left, node.right) if isinstance(side, ast.UnaryOp)]
        return not factor and any(bonus(side, where, deep) for side in (node.left, node.right))
    if isinstance(node, ast.Name) and deep:
        held = reaching(where.block.scope.defs.get(node.id, []), where)
        plain = len(held) == 1 and held[0].how == "=" and not held[0].path
        return plain and bonus(held[0].value, held[0].where, deep - 1)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("mean", "sum"):
        node = node.func.value
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "entropy"


def owed(node: Any, where: Where, deep: int = 3) -> bool:
    """beta * (torch.log(p) * p).sum(1).mean(), an entropy that lacks its minus."""
    if isinstance(node, ast.Name) and deep:
        held = reaching(where.block.scope.defs.get(node.id, []), where)
        plain = len(held) == 1 and held[0].how == "=" and not held[0].path
        return plain and "entropy" in node.id.lower() and owed(held[0].value, held[0].where, deep - 1)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("mean", "sum"):
        node = node.func.value
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(one, ast.Call) and ast.unparse(other) in logged(one):
            return True
        if isinstance(one, ast.Name | ast.Attribute) and owed(other, where, deep):
            return True
    return False


def logged(call: ast.Call) -> tuple[str, ...]:
    """What a call takes the logarithm of: torch.log(p), p.log()."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "log":
        return ()
    return (ast.unparse(call.args[0] if call.args else call.func.value),)


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
        if surrogate(script, node, where) is not None:
            return node
        inner = node.func.value if not script.dotted(node.func) else script.arg(node, 0)
        return positive(script, inner, where, deep - 1) if inner is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return positive(script, node.left, where, deep - 1) or None
    found = surrogate(script, node, where)
    if found is not None:
        return found
    func = helper(script, node, where) if isinstance(node, ast.Call) else None
    if func is not None and len(func.returns) == 1 and not func.yields:
        home = script.at_home(Where(func.body, 0))
        inner = positive(home, *func.returns[0], deep - 1)
        return (inner if home is script else node) if inner is not None else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and product(script, node, where):
        return node
    return None


def collected(script: Script, node: Any, where: Where, deep: int) -> ast.AST | None:
    """What was appended to a list that is then summed, or what a comprehension puts into it."""
    if isinstance(node, ast.Name) and node.id in where.block.scope.defs:
        made = reaching(where.block.scope.defs[node.id], where)
        if len(made) == 1 and isinstance(made[0].value, ast.ListComp | ast.GeneratorExp):
            node, where = made[0].value, made[0].where
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return of_each(node)
    for call in where.block.scope.calls:
        if isinstance(node, ast.Name) and text(call.func) == f"{node.id}.append" and call.args:
            return positive(script, call.args[0], script.where(call), deep - 1)
    return None


def of_each(node: ast.ListComp | ast.GeneratorExp) -> ast.AST | None:
    """log_prob * weight for each pair of a zip: the names that are zipped say what they are."""
    pair, made = node.elt, node.generators[0]
    if not isinstance(pair, ast.BinOp) or not isinstance(pair.op, ast.Mult) or not isinstance(made.target, ast.Tuple):
        return None
    zipped = made.iter.args if isinstance(made.iter, ast.Call) and text(made.iter.func) == "zip" else []
    names = {
        text(target): text(given).rsplit(".", 1)[-1] for target, given in zip(made.target.elts, zipped, strict=False)
    }
    sides = [names.get(text(side), text(side)) for side in (pair.left, pair.right)]
    for one, other in (sides, sides[::-1]):
        if LOGP.search(one) and WEIGHT.search(other) and not one.startswith(("neg", "nll")):
            return pair
    return None


def surrogate(script: Script, node: Any, where: Where) -> ast.AST | None:
    """torch.min(ratio * adv, clipped * adv) without a minus in front: what PPO maximises."""
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "mean"
        and not node.args
    ):
        node = node.func.value
    if not isinstance(node, ast.Call) or script.at_home(where).dotted(node.func) not in ("torch.min", "torch.minimum"):
        return None
    sides = [resolved(arg, where) for arg in node.args]
    if len(sides) != 2 or not all(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult) for side in sides):
        return None
    words = [{text(part).rsplit(".", 1)[-1] for part in (side.left, side.right)} for side in sides]
    weighted = all(any(WEIGHT.search(word) for word in held) for held in words)
    return (
        node
        if weighted and any("ratio" in word for held in words for word in held) and not any(map(minus, sides))
        else None
    )


def resolved(node: Any, where: Where) -> Any:
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    return defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else node


def climbs_critic(node: Any, where: Where) -> ast.AST | None:
    """The loss of an actor that is what its critic says, without a minus."""
    if not isinstance(node, ast.Name) or node.id not in where.block.scope.defs:
        return None
    made = reaching(where.block.scope.defs[node.id], where)
    value = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "mean":
        return None
    inner = value.func.value
    if not isinstance(inner, ast.Call) or len(inner.args) < 2 or not CRITIC.search(text(inner.func).rsplit(".", 1)[-1]):
        return None
    acts = any(
        isinstance(part, ast.Call) and POLICY.search(text(part.func).rsplit(".", 1)[-1])
        for arg in inner.args
        for part in ast.walk(arg)
    )
    return value if ACTOR.search(node.id) or (acts and "loss" in node.id.lower()) else None


POLICY = re.compile(r"^(actor|policy|pi|mu)(_?net|_?network)?$", re.IGNORECASE)
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
    name = text(node).rsplit(".", 1)[-1]
    # ENTROPY_WEIGHT * log_prob is the entropy that a soft actor is paid for; a constant of the module is no return.
    return bool(WEIGHT.search(name)) and not ENTROPY.search(name) and not (name.isupper() and len(name) > 1)


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
