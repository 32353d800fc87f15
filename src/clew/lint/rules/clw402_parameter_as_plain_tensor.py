"""A weight is a plain tensor.

What it sees: in a class that is a module, an attribute set to a tensor with requires_grad, and not registered as a
parameter or buffer; a Parameter that is moved, cast or multiplied before it is kept.
Why it matters: it gets gradients, and no optimiser holds it: parameters() does not list it, state_dict() does not
save it, and to(device) leaves it behind.
Silent when: it is wrapped in Parameter, registered, handed to an optimiser by name, or, in another file,
differentiated by or set anew, as meta-learners do.
Fix: nn.Parameter(...).
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.index import Def
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

MAKERS = ("randn", "rand", "zeros", "ones", "tensor", "empty", "full", "eye", "randn_like", "zeros_like")


@rule(
    "CLW402",
    "parameter-as-plain-tensor",
    "arch.unregistered_modules",
    "certain",
    "requires_grad requires_grad_ Variable Parameter",
)
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            for made in defs:
                if (
                    made.how != "="
                    or made.path
                    or made.where.block.scope.name != "__init__"
                    or not (needs_grad(script, made.value) or told_later(script, made))
                ):
                    continue
                if script.is_module(cls) and not handed_over(script, name):
                    fix = Fix(
                        "make it a parameter",
                        False,
                        (script.replace(made.value, f"nn.Parameter({script.source(made.value)})"),),
                    )
                    yield Hit(
                        script.statement(made.node),
                        f"self.{name} requires grad, but parameters() does not list a plain tensor.",
                        fix=fix,
                    )


def moved(script: Script, node: ast.AST) -> bool:
    """nn.Parameter(...).to(device), nn.Parameter(...) * 0.1: what comes out is no parameter any more."""
    if isinstance(node, ast.BinOp):
        return any(is_parameter(script, side) for side in (node.left, node.right))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    changes = node.func.attr in ("cuda", "to", "double", "half", "clone", "float") and bool(
        node.args or node.func.attr not in ("to", "float")
    )
    return changes and is_parameter(script, node.func.value)


def is_parameter(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and script.dotted(node.func) in (
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
    )


def needs_grad(script: Script, node: ast.AST) -> bool:
    if moved(script, node):
        return True
    if isinstance(node, ast.BinOp):  # torch.randn(..., requires_grad=True) * 0.02
        return needs_grad(script, node.left) or needs_grad(script, node.right)
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        off = script.constant(script.arg(node, 0, "requires_grad")) is False
        return not off and fresh(script, node.func.value)
    if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS and isinstance(node.func.value, ast.Call):
        return needs_grad(script, node.func.value)
    on = script.arg(node, -1, "requires_grad")
    return isinstance(on, ast.Constant) and on.value is True and made_by_torch(script, node)


KEEPS = frozenset("to cuda cpu float double half mul mul_ div normal_ uniform_ clone unsqueeze view reshape".split())


def fresh(script: Script, node: ast.AST, deep: int = 6) -> bool:
    """A tensor that torch has just made, also scaled, filled or moved: torch.randn(n, d).mul(std)."""
    if deep == 0:
        return False
    if isinstance(node, ast.BinOp):
        return fresh(script, node.left, deep - 1) or fresh(script, node.right, deep - 1)
    if not isinstance(node, ast.Call):
        return False
    if made_by_torch(script, node):
        return True
    chained = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call | ast.BinOp)
    return chained and fresh(script, node.func.value, deep - 1)  # type: ignore[attr-defined]


def told_later(script: Script, made: Def) -> bool:
    """self.prompt = torch.randn(n, d); self.prompt.requires_grad_(True), or .requires_grad = True."""
    scope = made.where.block.scope
    said = text(made.node)
    if not said or not isinstance(made.value, ast.Call | ast.BinOp) or not fresh(script, made.value):
        return False
    for call in scope.calls:
        if (
            text(call.func) == f"{said}.requires_grad_"
            and script.constant(script.arg(call, 0, "requires_grad")) is not False
        ):
            return True
    return any(
        target.attr == "requires_grad" and text(target.value) == said and script.constant(value) is True
        for target, value, _ in scope.attr_sets
    )


def made_by_torch(script: Script, node: ast.Call) -> bool:
    dotted = script.dotted(node.func)
    return dotted == "torch.autograd.Variable" or (dotted.startswith("torch.") and dotted.rsplit(".", 1)[-1] in MAKERS)


def handed_over(script: Script, name: str) -> bool:
    """Whether the attribute is passed on by name anywhere, to an optimiser for instance."""
    for node in script.loads(name):
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Load):
            above = script.module.up[node]
            if isinstance(above, ast.List | ast.Dict) or (
                isinstance(above, ast.Call) and "Parameter" in ast.unparse(above.func)
            ):
                return True
    wanted = re.compile(ELSEWHERE.replace(b"NAME", re.escape(name.encode())))
    return script.project.matched_around(script.module.path, wanted)


ELSEWHERE = rb"(?m)^.*\b(optim\w*|Adam\w*|SGD|RMSprop|grad)\b.*\.NAME\b|^[^#\n]*[^f]\.NAME\s*=[^=]"
"""In another file: handed to an optimiser, differentiated by, or set anew from outside, as meta-learners do."""
