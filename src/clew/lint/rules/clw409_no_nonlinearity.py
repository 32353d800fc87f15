"""Linear layers stacked with nothing between.

What it sees: two Linear layers next to each other in a Sequential, or applied one to the other's output in a forward
pass, where the inner width is not a bottleneck.
Why it matters: two linear maps are one linear map. The extra layer adds parameters but no expressive power.
Silent when: the width between is smaller than what goes in and comes out (a factorised layer, as in low-rank
adapters), or a width is not known.
Fix: put an activation between them.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


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

    yield from in_loops(script)


def in_loops(script: Script) -> Iterator[Hit]:
    """layers.append(nn.Linear(a, b)) in a loop that appends nothing else, and Sequential(*layers)."""
    spreads = {
        text(arg.value)
        for call, _ in script.calls_to("torch.nn.", "Sequential")
        for arg in call.args
        if isinstance(arg, ast.Starred)
    }
    for scope in script.module.scopes if spreads else ():
        for block in scope.loops:
            added = [pair for pair in additions(script, scope) if block in script.where(pair[0]).block.chain()]
            if len(added) != 1 or len(added[0][2]) != 1 or not linear(script, added[0][2][0]):
                continue
            name, layer = added[0][1], added[0][2][0]
            if name in spreads and isinstance(block.node, ast.For):
                yield Hit(layer, "is all that the loop adds: stacked linear layers are one linear map.", "likely")


def additions(script: Script, scope: Scope) -> Iterator[tuple[ast.AST, str, list[ast.expr]]]:
    """What is appended to lists: the statement, the list, the items."""
    for call in scope.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend") and call.args:
            given = call.args[0]
            yield call, text(call.func.value), given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    for node in script.module.statements.get(ast.AugAssign, []):
        if script.scope(node) is scope and isinstance(node.value, ast.List):
            yield node, text(node.target), node.value.elts


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
    outer = script.value(call.func)
    if len(outer) != 1 or outer[0].name != "torch.nn.Linear":
        return False
    below = script.value(inner.func)
    if len(below) != 1 or below[0].name != "torch.nn.Linear":
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
        said = [text(script.arg(first, 0)), text(script.arg(first, 1)), text(script.arg(second, 1))]
        return bool(said[1]) and said[1] == text(script.arg(second, 0)) and said[1] in (said[0], said[2])
    before, between, after = sizes
    return bool(between >= min(before, after))
