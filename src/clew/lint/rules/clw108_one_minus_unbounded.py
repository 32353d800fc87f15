"""One minus something that has no upper bound.

What it sees: `1 - x` where x is a squared or absolute error, a cross-entropy, a divergence, a perplexity or a
signal-to-noise ratio, or a product of two embeddings that nothing has normalised.
Why it matters: as a loss it goes to minus infinity as the model gets worse; as a score it goes negative. `1 - x`
turns a similarity between 0 and 1 into a distance, and nothing else.
Silent when: x is a similarity, an accuracy, an overlap, or is clamped.
Fix: minimise the error itself, or divide by the variance first if an explained share is intended.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import outward, reaching
from clew.lint.gradient import computed
from clew.lint.index import Where
from clew.lint.losses import WANTS, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import trail, verb

METRIC = re.compile(
    r"(^|_)(psnr|perplexity|ppl|mse|rmse|mae|nll|cross_entropy|signal_noise_ratio|signal_distortion_ratio|si_?sn?dr|snr|"
    r"mean_(squared|absolute)_error|word_error_rate)(_loss|_score)?$|(NoiseRatio|DistortionRatio|Perplexity|"
    r"MeanSquaredError|MeanAbsoluteError)$",
    re.I,
)


@rule(
    "CLW108",
    "one-minus-unbounded",
    "loss.wrong_for_task",
    "likely",
    "backward mse_loss l1_loss cross_entropy kl_div psnr MSELoss L1Loss CrossEntropyLoss KLDivLoss HuberLoss criterion "
    "mse peak_signal_noise_ratio PeakSignalNoiseRatio signal_noise_ratio PSNR perplexity training_step",
)
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch"):
        return
    losses = {loss.node: loss.name for loss in loss_calls(script) if loss.name in WANTS}
    for node in script.module.nodes.get(ast.BinOp, []):
        if (
            not isinstance(node.op, ast.Sub)
            or not isinstance(node.left, ast.Constant)
            or node.left.value not in (1, 1.0)
        ):
            continue
        right = named(script, node.right)
        if isinstance(right, ast.Call) and right in losses:
            yield Hit(node, f"{losses[right]} has no upper bound, so one minus it has no lower bound.")
        elif (
            isinstance(right, ast.Call)
            and unbounded(script, right)
            and (becomes_loss(script, node) or in_loss(script, node))
        ):
            yield Hit(node, f"{text(right.func)} has no upper bound, so one minus it has no lower bound.", "look")
        elif becomes_loss(script, node) or in_loss(script, node):
            for product, where in products(script, node.right, script.where(node), 8):
                if not normalised(script, product, where):
                    told = "one minus a dot product of unnormalised vectors falls without bound as they grow."
                    yield Hit(node, told)
                    break


def unbounded(script: Script, call: ast.Call) -> bool:
    """Whether a metric has no upper bound: by its name, by its class, or because it is a logarithm."""
    if METRIC.search(text(call.func).rsplit(".", 1)[-1]):
        return True
    for value in script.value(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ():
        if value.kind == "instance" and METRIC.search(value.name.rsplit(".", 1)[-1]):
            return True
        given = value.func.returns if value.kind == "function" and value.func is not None else []
        if len(given) == 1 and isinstance(given[0][0], ast.BinOp) and decibels(given[0][0]):
            return True
    return False


def decibels(node: ast.BinOp) -> bool:
    """10 * log10(peak / error), also as a difference of such."""
    parts = [part for part in (node.left, node.right) if not isinstance(part, ast.Constant | ast.UnaryOp)]
    return isinstance(node.op, ast.Mult | ast.Sub) and all(
        verb(part) == "log10" or (isinstance(part, ast.BinOp) and decibels(part)) for part in parts
    )


def named(script: Script, node: ast.expr) -> ast.expr:
    """What a name was set to, when that is one thing."""
    where = script.where(node)
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    held = reaching(defs, where) if defs else []
    plain = len(held) == 1 and held[0].how == "=" and not held[0].path
    return held[0].value if plain else node


def products(script: Script, node: Any, where: Where, deep: int) -> Iterator[tuple[list[Any], Where]]:
    """The pairs of factors of the dot products that an expression is a sum or a mean of; nothing when it is divided by
    anything but a number, or bounded."""
    if deep == 0:
        return
    home = script.at_home(where)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            yield [node.left, node.right], where
        elif isinstance(node.op, ast.Add):
            yield from products(script, node.left, where, deep - 1)
            yield from products(script, node.right, where, deep - 1)
        elif isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant):
            yield from products(script, node.right, where, deep - 1)
        elif isinstance(node.op, ast.Mult | ast.Div) and isinstance(node.right, ast.Constant):
            yield from products(script, node.left, where, deep - 1)
        return
    if isinstance(node, ast.Name):
        for made in outward(node.id, where):
            if made.how == "=" and not made.path:
                yield from products(script, made.value, made.where, deep - 1)
        return
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return
    dotted = home.dotted(node.func)
    last = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
    base: Any = node.func.value if isinstance(node.func, ast.Attribute) and not dotted else None
    if last in ("sum", "mean"):
        inner = base if base is not None else (node.args[0] if dotted.startswith("torch.") and node.args else None)
        if last == "sum" and isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            yield [inner.left, inner.right], where
        elif inner is not None:
            yield from products(script, inner, where, deep - 1)
    elif last in ("dot", "inner", "matmul", "bmm", "mm", "vdot") and (base is not None or dotted.startswith("torch.")):
        yield [one for one in (base, *node.args) if one is not None][:2], where
    elif last == "einsum" and dotted == "torch.einsum":
        yield list(node.args[1:3]), where
    elif last in ("squeeze", "diag", "diagonal", "view", "flatten") and base is not None:
        yield from products(script, base, where, deep - 1)
    else:
        for value in script.values.value(node.func, where, None):
            func = value.func if value.kind == "function" else None
            if func is not None and len(func.returns) == 1 and not func.yields:
                yield from products(script, *func.returns[0], deep - 2 if deep > 2 else 0)


BOUNDS = frozenset(
    "normalize norm softmax sigmoid tanh cosine_similarity log_softmax one_hot clamp sign renorm l2norm normalise "
    "softmax_ sqrt rsqrt l2_normalize unit_norm".split()
)


def normalised(script: Script, factors: list[Any], where: Where) -> bool:
    """Whether one of the factors is bounded, is no vector that a network gave, or is of unknown origin."""
    for node in factors:
        network = False
        for step in trail(script, node, where, steps=60):
            if verb(step.node) in BOUNDS or (isinstance(step.node, ast.BinOp) and isinstance(step.node.op, ast.Div)):
                return True
            if isinstance(step.node, ast.Call) and computed(script.at_home(step.where), step.node, step.where, 3):
                network = True
        if not network:
            return True
    return False


def in_loss(script: Script, node: ast.AST) -> bool:
    """Whether it stands in the forward of a class that is called a loss, or in a function of that name."""
    scope = script.scope(node)
    cls = script.class_of(scope)
    return "loss" in scope.name.lower() or (cls is not None and "loss" in cls.name.lower())


def becomes_loss(script: Script, node: ast.AST) -> bool:
    statement = script.statement(node)
    names = [text(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    return any("loss" in name for name in names) or isinstance(statement, ast.Return)
