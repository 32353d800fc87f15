"""Which way the parts of a loss pull: a likelihood with a plus in what is minimised pulls the wrong way."""

import ast
import re
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.gradient import LOSSES
from clew.lint.index import Module, Scope, Where
from clew.lint.script import Script
from clew.lint.value import Context

# Methods and functions that keep the sign of what they work on.
KEEPS = frozenset(
    "mean sum squeeze unsqueeze view reshape flatten float to cuda cpu clone contiguous double half nanmean "
    "nansum div".split()
)
# A similarity is no loss: it is pulled up as often as down.
DOWN = (LOSSES - {"cosine_similarity"}) | frozenset(
    "kl_divergence ctc_loss triplet_margin_loss cross_entropy_loss".split()
)
UP = re.compile(
    r"(^|_)(elbo|evidence_lower_bound|log_?likelihood|loglik|log_marginal\w*|marginal_log_likelihood)$|"
    r"(^|_)(dice|iou|jaccard|ssim|psnr)_?(coef\w*|score|index|metric)?$",
    re.I,
)
DEEP = 14
# Minus twice the divergence of a normal distribution from the standard one.
GAUSSIAN = re.compile(r"^1(\.0)? \+ (\w+) - .*(\2\.exp\(\)|exp\(\2\))$")


class Part(NamedTuple):
    """One term of a loss: what it is, which way it should pull (-1: down to zero, +1: up), its sign, and the nodes that
    turned its sign, from the loss inwards, with the term itself at the end."""

    name: str
    wants: int
    sign: int
    turns: tuple[tuple[Any, Module], ...]


def apart(script: Script, node: Any, where: Where) -> tuple[Any, Module] | None:
    """Where the sign of a divergence is turned that is taken away from a loss which falls: it would grow for ever."""
    walker = _Walker(script)
    walker.visit(node, where, None, 1, DEEP)
    parts = walker.parts
    away = [part for part in parts if part.name in ("a divergence", "kl_divergence") and part.sign == part.wants]
    falls = [part for part in parts if part not in away]
    if walker.open or len(away) != 1 or not falls or any(part.sign == part.wants for part in falls):
        return None
    shared = [turn for part in falls for turn in part.turns]
    return next(turn for turn in away[0].turns if turn not in shared)


def climbs(script: Script, node: Any, where: Where) -> str:
    """The part of a loss that is pulled the wrong way, when no part is pulled the right way; "" otherwise."""
    walker = _Walker(script)
    walker.visit(node, where, None, 1, DEEP)
    wrong = [part for part in walker.parts if part.sign == part.wants]
    if walker.open or not wrong or len(wrong) != len(walker.parts):
        return ""
    alike = [part for part in wrong if part.name == "a similarity"]
    if alike and len(alike) != len(wrong):
        return ""  # beside other terms a similarity may well be there to fall
    up = [part for part in wrong if part.wants == 1]
    if up or walker.hint:
        return up[0].name if up else walker.hint
    return "a bound" if len(wrong) > 1 else ""


class _Walker:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.parts: list[Part] = []
        self.open = False
        self.fuel = 80
        self.hint = ""
        self.turns: list[tuple[Any, Module]] = []

    def part(self, name: str, wants: int, sign: int, node: Any, where: Where) -> None:
        self.parts.append(Part(name, wants, sign, (*self.turns, (node, where.block.scope.module))))

    def turned(self, node: Any, where: Where, context: Context | None, sign: int, deep: int) -> None:
        self.turns.append((node, where.block.scope.module))
        self.visit(node, where, context, -sign, deep)
        self.turns.pop()

    def visit(self, node: Any, where: Where, context: Context | None, sign: int, deep: int) -> None:
        self.fuel -= 1
        if deep == 0 or self.fuel < 0:
            self.open = True
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self.turned(node.operand, where, context, sign, deep - 1)
        elif isinstance(node, ast.BinOp) and GAUSSIAN.search(ast.unparse(node)):
            self.part("a divergence", -1, -sign, node, where)
        elif isinstance(node, ast.BinOp) and overlap(node, where):
            self.part("an overlap", 1, sign, node, where)
        elif isinstance(node, ast.BinOp):
            self.arithmetic(node, where, context, sign, deep)
        elif isinstance(node, ast.Name):
            self.named(node, where, context, sign, deep)
        elif isinstance(node, ast.Call):
            self.called(node, where, context, sign, deep)
        elif not isinstance(node, ast.Constant):
            self.open = True

    def arithmetic(self, node: ast.BinOp, where: Where, context: Context | None, sign: int, deep: int) -> None:
        if isinstance(node.op, ast.Add | ast.Sub):
            self.visit(node.left, where, context, sign, deep - 1)
            visit = self.turned if isinstance(node.op, ast.Sub) else self.visit
            visit(node.right, where, context, sign, deep - 1)
            return
        factor = number(node.left) if isinstance(node.op, ast.Mult) else None
        if factor is not None:
            (self.visit if factor > 0 else self.turned)(node.right, where, context, sign, deep - 1)
            return
        factor = number(node.right) if isinstance(node.op, ast.Mult | ast.Div) else None
        if factor is not None:
            (self.visit if factor > 0 else self.turned)(node.left, where, context, sign, deep - 1)
        elif isinstance(node.op, ast.Div) and isinstance(node.right, ast.Name | ast.Call | ast.Attribute):
            self.visit(node.left, where, context, sign, deep - 1)  # by a count
        elif isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Name | ast.Attribute) and weight(node.left):
            self.visit(node.right, where, context, sign, deep - 1)
        else:
            self.open = True

    def named(self, node: ast.Name, where: Where, context: Context | None, sign: int, deep: int) -> None:
        defs = where.block.scope.defs.get(node.id, [])
        held = reaching(defs, where) if defs else []
        made = held[0] if len(held) == 1 else None
        if made is None or made.how != "=":
            self.open = True
            return
        value = made.value
        for step in made.path:
            if isinstance(value, ast.Call) and len(made.path) == 1:
                self.result(value, made.where, context, sign, deep, step)
                return
            inside = isinstance(value, ast.Tuple) and 0 <= step < len(value.elts)
            value = value.elts[step] if inside else None
        self.visit(value, made.where, context, sign, deep - 1)

    def called(self, node: ast.Call, where: Where, context: Context | None, sign: int, deep: int) -> None:
        func = node.func
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        if last == "log_prob" or UP.search(last):
            below = _Walker(self.script)
            below.fuel = self.fuel
            if below.result(node, where, context, sign, deep, None) and below.parts and not below.open:
                self.hint = last
                self.parts += below.parts
                return
            self.part("a log-likelihood" if last == "log_prob" else last, 1, sign, node, where)
        elif last in DOWN:
            self.part(last, -1, sign, node, where)
        elif last == "cosine_similarity":
            self.part("a similarity", 1, sign, node, where)
        elif last in KEEPS and isinstance(func, ast.Attribute):
            dotted = self.script.at_home(where).dotted(func)
            inner = node.args[0] if dotted and node.args else func.value
            self.visit(inner, where, context, sign, deep - 1)
        elif not self.result(node, where, context, sign, deep, None):
            self.likelihood(node, where, context, sign)

    def likelihood(self, node: ast.Call, where: Where, context: Context | None, sign: int) -> None:
        """mll(model(x), y) with an object that is named for what it computes."""
        values = self.script.values.value(node.func, where, context)
        if len(values) == 1 and values[0].name.endswith("MarginalLogLikelihood"):
            self.part("a marginal log-likelihood", 1, sign, node, where)
        elif len(values) == 1 and values[0].name.startswith("torch.nn.") and values[0].name.endswith("Loss"):
            self.part(values[0].name.rsplit(".", 1)[-1], -1, sign, node, where)
        else:
            self.open = True

    def result(
        self, node: ast.Call, where: Where, context: Context | None, sign: int, deep: int, at: int | None
    ) -> bool:
        """Look into a function of the project."""
        values = self.script.values.value(node.func, where, context)
        func: Scope | None = values[0].func if len(values) == 1 and values[0].kind == "function" else None
        if func is None and len(values) == 1 and values[0].cls is not None and values[0].kind == "instance":
            func = values[0].cls.methods.get("forward")
        if func is None or len(func.returns) != 1 or func.yields or deep < 2:
            return False
        given: Any = func.returns[0][0]
        if at is not None:
            inside = isinstance(given, ast.Tuple) and 0 <= at < len(given.elts)
            given = given.elts[at] if inside else None
        inner = Context(func, node, where, values[0].owner, context)
        self.visit(given, func.returns[0][1], inner, sign, deep - 2)
        return True


def overlap(node: ast.BinOp, where: Where) -> bool:
    """2 * (p * t).sum() / (p.sum() + t.sum()): the Dice coefficient, or the share of the union, by hand."""
    if not isinstance(node.op, ast.Div):
        return False
    for above, below in (
        (ast.unparse(node.left), ast.unparse(node.right)),
        (resolved(node.left, where), resolved(node.right, where)),
    ):
        twice = re.search(r"\b2(\.0)? \* ", above) is not None
        if twice and re.search(r"\* \w+\)?\.sum\(", above) is not None and below.count("sum(") >= 2:
            return True
    return False


def resolved(node: ast.expr, where: Where) -> str:
    """An expression as text, with names replaced by what they were set to."""
    said = ast.unparse(node)
    defs = where.block.scope.defs
    for part in ast.walk(node):
        held = reaching(defs[part.id], where) if isinstance(part, ast.Name) and part.id in defs else []
        if (
            len(held) == 1
            and held[0].how == "="
            and not held[0].path
            and isinstance(held[0].value, ast.Call | ast.BinOp)
        ):
            said = re.sub(rf"\b{part.id}\b", lambda _, one=held[0].value: ast.unparse(one), said)  # type: ignore[attr-defined,misc]
    return said


def number(node: ast.expr) -> float | None:
    """A constant factor other than zero."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value:
        return float(node.value)
    return None


def weight(node: ast.expr) -> bool:
    """A factor that is named like a weight is positive."""
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return bool(re.search(r"beta|alpha|lam|weight|coef|kl_w|^w", name, re.I))
