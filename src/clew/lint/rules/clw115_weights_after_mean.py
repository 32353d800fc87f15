"""A loss that is already averaged is weighted per example.

What it sees: a loss of torch with its usual reduction, by a function or an object made anywhere in the project,
multiplied with a mask or with weights of the examples and then summed or averaged.
Why it matters: the loss is one number by then. The weights only scale it: every example counts equally, and a mask
masks nothing. Training ignores them.
Silent when: reduction="none" is given, or the factor is a setting.
Fix: reduction="none", multiply, then average.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.losses import LossCall, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

EACH = re.compile(
    r"mask|(^|_|\.)(weights|ws?|trust|importance|is_weights?|sample_weights?|confidence|valid)$|per_sample"
)
SETTING = re.compile(r"alpha|beta|lam|coef|scale|gamma|lambda|loss_weight|_weight$|args|cfg|config", re.I)


@rule(
    "CLW115",
    "weights-after-mean",
    "loss.reduction",
    "likely",
    "cross_entropy mse_loss l1_loss smooth_l1_loss huber_loss nll_loss binary_cross_entropy CrossEntropyLoss MSELoss "
    "binary_cross_entropy_with_logits L1Loss SmoothL1Loss HuberLoss NLLLoss BCELoss BCEWithLogitsLoss criterion crit "
    "loss_fn loss_func",
)
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch"):
        return
    losses: dict[Any, LossCall] | None = None
    for node in script.module.nodes.get(ast.BinOp, []):
        if not isinstance(node.op, ast.Mult) or not reduced(script, node):
            continue
        if losses is None:
            losses = {loss.node: loss for loss in loss_calls(script) if averaged(loss)}
            if not losses:
                return
        where = script.where(node)
        parts = list(factors(node))
        held = [(part, loss) for part in parts if (loss := is_loss(part, where, losses)) is not None]
        others = [part for part in parts if not any(part is one for one, _ in held)]
        if len(held) == 1 and any(each(script, part, where, held[0][0]) for part in others):
            loss = held[0][1]
            yield Hit(loss.node, f"{loss.name} is averaged over the batch before the example weights are applied.")


def factors(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from factors(node.left)
        yield from factors(node.right)
    else:
        yield node


def reduced(script: Script, node: ast.AST) -> bool:
    """(w * loss).mean(), torch.sum(w * loss), or a name that is reduced so."""
    above = script.parent(node)
    if isinstance(above, ast.BinOp) and isinstance(above.op, ast.Mult):
        return False
    if isinstance(above, ast.Attribute):
        return above.attr in ("mean", "sum")
    if isinstance(above, ast.Call):
        return script.dotted(above.func) in ("torch.mean", "torch.sum")
    if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
        name = above.targets[0].id
        scope = script.scope(node)
        return any(
            isinstance(use := script.parent(load), ast.Attribute)
            and use.attr in ("mean", "sum")
            and script.scope(load) is scope
            for load in script.loads(name)
            if isinstance(load, ast.Name)
        )
    return False


def averaged(loss: LossCall) -> bool:
    """Whether a loss comes as one number."""
    call: Any = loss.node if loss.made is None else loss.made.node
    if not isinstance(call, ast.Call) or Script.starred(call):
        return False
    said = {word.arg: word.value for word in call.keywords}
    if "reduce" in said or "size_average" in said:
        return False
    how = said.get("reduction")
    return how is None or (isinstance(how, ast.Constant) and how.value in ("mean", "sum"))


def is_loss(node: ast.expr, where: Where, losses: dict[Any, LossCall]) -> LossCall | None:
    if isinstance(node, ast.Name):
        defs = where.block.scope.defs.get(node.id, [])
        held = reaching(defs, where) if defs else []
        node = held[0].value if len(held) == 1 and held[0].how == "=" and not held[0].path else node
    return losses.get(node)


def each(script: Script, node: ast.expr, where: Where, loss: ast.expr) -> bool:
    """Whether a factor has one number for each example, as far as its name or what is done with it tells."""
    if isinstance(node, ast.Constant):
        return False
    func = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if func is not None and func.attr in PASS and not script.dotted(func):
        return each(script, func.value, where, loss)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Sub | ast.Add):
        # The focal factor: (1 - exp(-loss)) ** gamma of a loss that is one number.
        inside = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        return any(focal(name, where, text(loss)) for name in inside)
    name = text(node)
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(key, str):
            return bool(EACH.search(key.lower())) or "weight" in key.lower()
        return (
            isinstance(node.slice, ast.Name)
            and re.search(r"idx|ind|batch|^i$|^y|label|target", node.slice.id) is not None
        )
    if not name:
        return False
    last = name.rsplit(".", 1)[-1].lower()
    if SETTING.search(name.lower()) and not EACH.search(last):
        return False
    if EACH.search(last):
        return True
    scope = where.block.scope
    defs = scope.defs.get(name, [])
    if any(made.how == "for" and made.path for made in defs):
        return True
    return any(
        isinstance(use := script.parent(load), ast.Attribute) and use.attr in ("sum", "mean")
        for load in script.loads(name)
        if text(load) == name and script.scope(load) is scope
    )


PASS = ("float", "to", "detach", "type_as", "squeeze", "unsqueeze", "view", "cuda", "reshape")


def focal(name: str, where: Where, loss: str) -> bool:
    """pt = torch.exp(-ce)"""
    for made in where.block.scope.defs.get(name, []):
        if made.how == "=" and isinstance(made.value, ast.Call) and loss:
            said = ast.unparse(made.value)
            if "exp" in said and re.search(rf"\b{re.escape(loss)}\b", said):
                return True
    return False
