"""Linear layers stacked with nothing between.

What it sees: two Linear layers next to each other in a Sequential, or applied one to the other's output in a forward
pass, where the inner width is not a bottleneck.
Why it matters: two linear maps are one linear map. The extra layer adds parameters and no power.
Silent when: the width between is smaller than what goes in and comes out (a factorised layer, as in low-rank
adapters), or a width is not known.
Fix: an activation between them.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule("CLW409", "no-nonlinearity", "arch.missing_nonlinearity", "look", "Linear")
def check(script: Script) -> Iterator[Hit]:
    for call, _ in script.calls_to("torch.nn.", "Sequential"):
        for first, second in zip(call.args, call.args[1:], strict=False):
            if linear(script, first) and linear(script, second) and wide(script, first, second):
                yield Hit(second, "follows another linear layer directly: the two are one linear map.")
    for scope in script.module.scopes:
        if scope.name == "forward" and scope.cls is not None:
            yield from (
                Hit(call, "is applied to another linear layer's output directly: the two are one linear map.")
                for call in scope.calls
                if nested(script, call)
            )


def nested(script: Script, call: ast.Call) -> bool:
    """`self.b(self.a(x))` with two Linear layers."""
    inner = call.args[0] if len(call.args) == 1 else None
    if isinstance(inner, ast.Name):
        where = script.where(call)
        defs = where.block.scope.defs.get(inner.id, [])
        made = reaching(defs, where) if defs else []
        inner = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if not isinstance(inner, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    outer, below = script.value(call.func), script.value(inner.func)
    if len(outer) != 1 or len(below) != 1 or not outer[0].name == below[0].name == "torch.nn.Linear":
        return False
    return wide(script, below[0].node, outer[0].node)


def linear(script: Script, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and script.dotted(node.func) == "torch.nn.Linear"


def wide(script: Script, first: ast.AST, second: ast.AST) -> bool:
    """Whether the width between the two is no bottleneck, as far as numbers are written out."""
    if not isinstance(first, ast.Call) or not isinstance(second, ast.Call):
        return False
    sizes = [script.constant(script.arg(first, at)) for at in (0, 1)] + [script.constant(script.arg(second, 1))]
    if not all(isinstance(size, int) for size in sizes):
        return False
    before, between, after = sizes
    return bool(between >= min(before, after))
