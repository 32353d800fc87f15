"""All weights of a layer start at the same value.

What it sees: zeros_ or constant_ on the weight of every linear or convolutional layer of a network, in an
initialisation that is applied to all modules.
Why it matters: units that start equal get equal gradients and stay equal. A hidden layer is then no better than one
unit.
Silent when: only biases, normalisation layers or the last layer are set, as residual networks do on purpose.
Fix: leave the default, or use kaiming and xavier initialisation.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

LAYERS = ("Linear", "Conv1d", "Conv2d", "Conv3d")


@rule("CLW410", "zero-init", "arch.zero_init", "likely", "zeros_ constant_ fill_ zero_")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("zeros_", "constant_", "zero_", "fill_"):
        target = weight_of(script, call)
        if target and tests_layer(script, call, target) and applied_to_all(script, call, target):
            yield Hit(call, "gives every weight of these layers the same value: their units stay copies of each other.")

        elif not script.tests and of_parameters(script, call):
            yield Hit(call, "gives every parameter the same value: the units of a layer stay copies of each other.")


def of_parameters(script: Script, call: ast.Call) -> bool:
    """for p in model.parameters(): nn.init.zeros_(p), without a test of its shape or name."""
    dotted = script.dotted(call.func)
    given = script.arg(call, 0) if dotted.startswith("torch.nn.init.") else getattr(call.func, "value", None)
    name = text(given).removesuffix(".data")
    where = script.where(call)
    loop = where.block.node
    if where.block.kind != "for" or not isinstance(loop, ast.For) or not name or text(loop.target) != name:
        return False
    if dotted.endswith("constant_") is False and not dotted.startswith("torch.nn.init.") and not call.args:
        return isinstance(call.func, ast.Attribute) and call.func.attr == "zero_" and whole(loop.iter)
    return whole(loop.iter)


def whole(node: ast.expr) -> bool:
    """model.parameters() of a model that is not there to be filled by another."""
    said = ast.unparse(node)
    quiet = any(word in said.lower() for word in ("target", "ema", "avg", "average", "teacher", "head", "last", "out"))
    return said.endswith(".parameters()") and not quiet


def weight_of(script: Script, call: ast.Call) -> str:
    """`m` of nn.init.zeros_(m.weight) or m.weight.data.zero_()."""
    assert isinstance(call.func, ast.Attribute | ast.Name)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
    dotted = script.dotted(call.func)
    if dotted.startswith("torch.nn.init."):
        said = text(call.args[0]) if call.args else ""
    elif not dotted and isinstance(call.func, ast.Attribute):
        said = text(call.func.value)
        if name == "fill_" and script.constant(script.arg(call, 0)) is None:
            return ""
    else:
        return ""
    parts = said.removesuffix(".data").split(".")
    return parts[0] if len(parts) == 2 and parts[1] == "weight" else ""


def tests_layer(script: Script, call: ast.Call, name: str) -> bool:
    """Whether an isinstance test around says that `name` is a layer with weights."""
    for block in script.where(call).block.chain():
        if block.kind == "if" and isinstance(block.node, ast.If):
            test = block.node.test
            if isinstance(test, ast.Call) and text(test.func) == "isinstance" and text(test.args[0]) == name:
                kinds = test.args[1].elts if isinstance(test.args[1], ast.Tuple) else [test.args[1]]
                return all(text(kind).rsplit(".", 1)[-1] in LAYERS for kind in kinds)
            return False
    return False


def applied_to_all(script: Script, call: ast.Call, name: str) -> bool:
    """In a loop over modules(), or in a function that is handed to apply."""
    where = script.where(call)
    for loop in where.block.loops():
        if isinstance(loop.node, ast.For) and text(loop.node.target) == name:
            return ".modules()" in ast.unparse(loop.node.iter)
    scope = where.block.scope
    return any(text(arg).rsplit(".", 1)[-1] == scope.name for other in script.calls("apply") for arg in other.args)
