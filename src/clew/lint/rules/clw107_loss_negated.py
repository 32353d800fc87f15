"""The optimiser is made to maximise a loss that should fall.

What it sees: `backward` on the negative of a cross-entropy, squared error or another loss of torch, or an optimiser
with maximize=True whose loop descends such a loss.
Why it matters: the model is trained to be wrong. With a bounded metric the curve looks like a model that does not
learn.
Silent when: names around it speak of attacks, adversaries, ascent, unlearning or reversal, or the loss is weighed
against others.
Fix: change the sign on this line. Remove the minus or maximize=True, or put the minus that is missing.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.gradient import ends
from clew.lint.index import Where
from clew.lint.losses import loss_calls
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.signs import apart, climbs

MEANT = re.compile(
    r"advers|attack|ascent|unlearn|forget|revers|maximi|perturb|fgsm|pgd|gan|discrim|generat|confus|critic|deep_?dream",
    re.I,
)


@rule("CLW107", "loss-negated", "loss.wrong_sign", "likely", "backward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    losses = {loss.node for loss in loss_calls(script)}
    if MEANT.search(script.module.path.rsplit("/", 1)[-1]):
        return
    yield from climbed(script)
    if not losses:
        return
    for end in ends(script):
        if MEANT.search(names_around(script, end.node)):
            continue
        minus = negative(end.node, end.where, losses)
        if minus is not None:
            fix = Fix("remove the minus", False, (script.replace(minus, script.source(minus.operand)),))
            yield Hit(
                minus, "the optimiser minimises what it is given: with this minus it maximises the loss.", fix=fix
            )
    for call, _ in script.calls_to("torch.optim.", *(name for name in script.module.calls if name[:1].isupper())):
        given = script.arg(call, -1, "maximize")
        if given is not None and script.constant(given) is True and not MEANT.search(names_around(script, call)):
            yield Hit(
                given, "maximize=True makes the optimiser maximise, and the loss of this file should be minimised."
            )


def climbed(script: Script) -> Iterator[Hit]:
    """A bound, or a likelihood, that is to be maximised and goes to backward as it is."""
    if script.tests or not script.mentions("step", "configure_optimizers", "compute_loss"):
        return
    for end in ends(script):
        if end.cut is not None or MEANT.search(names_around(script, end.node)):
            continue
        wrong = climbs(script, end.node, end.where)
        if wrong:
            yield Hit(
                statement_of(end.node, end.where),
                f"the optimiser minimises what it is given, and {wrong} should grow: a minus is missing.",
            )
        turned = apart(script, end.node, end.where)
        if turned is not None:
            node, module = turned
            yield Hit(
                node if module is script.module else statement_of(end.node, end.where),
                "the divergence enters the loss with a minus, so the optimiser increases it.",
            )


def statement_of(node: Any, where: Where) -> Any:
    """Where the loss is computed, when it only has a name here."""
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    held = reaching(defs, where) if defs else []
    return held[0].value if len(held) == 1 and held[0].how == "=" and not held[0].path else node


def names_around(script: Script, node: ast.AST) -> str:
    scope = script.scope(node)
    cls = script.class_of(scope)
    return f"{scope.name} {cls.name if cls else ''} {' '.join(scope.defs)}"


def negative(node: ast.AST, where: Where, losses: set[ast.Call]) -> ast.UnaryOp | None:
    """The minus before a loss, when that is all that goes into `backward`."""
    for _ in range(4):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return node if is_loss(node.operand, where, losses) else None
        if not isinstance(node, ast.Name) or node.id not in where.block.scope.defs:
            return None
        found = reaching(where.block.scope.defs[node.id], where)
        if len(found) != 1 or found[0].how != "=" or found[0].path:
            return None
        node, where = found[0].value, found[0].where
    return None


def is_loss(node: ast.AST, where: Where, losses: set[ast.Call]) -> bool:
    if isinstance(node, ast.Name) and node.id in where.block.scope.defs:
        found = reaching(where.block.scope.defs[node.id], where)
        return len(found) == 1 and found[0].value in losses
    return node in losses
