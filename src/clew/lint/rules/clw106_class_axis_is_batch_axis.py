"""Softmax over the examples of a batch instead of over the classes.

What it sees: softmax or log_softmax with dim=0 on the output of a linear layer, also after masking or scaling, or on
logits beside others that the same function takes over the last axis; argmax over axis 0 of a model's output that is
then compared with labels; softmax over an axis on which the layer before has a single unit.
Why it matters: the examples of a batch then compete with each other. Each prediction depends on its neighbours, and
single examples always get probability one.
Silent when: the axis is not zero, or the input is not the output of a layer. A model that is fed single, unbatched
examples is right to use 0: then suppress this.
Fix: take the last axis, dim=-1.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.given import argument
from clew.lint.index import Scope, Where
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.validation import applied


@rule(
    "CLW106", "class-axis-is-batch-axis", "loss.wrong_dim", "look", "softmax log_softmax Softmax LogSoftmax argmax max"
)
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("softmax", "log_softmax"):
        dotted = script.dotted(call.func)
        if dotted and not dotted.startswith("torch."):
            continue
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        if operand is None or given is None or script.constant(given) != 0 or script.constant(given) is False:
            continue
        values = script.value(peeled(script, operand, script.where(call)))
        if beside(script, call, operand) or all(value.kind == "made" and value.name == "linear" for value in values):
            fix = Fix("take the last axis", False, (script.replace(given, "-1"),))
            yield Hit(
                call,
                "softmax over axis 0 normalises across the examples of a batch; the classes are on the last axis.",
                fix=fix,
            )
    for call, _ in script.calls_to("torch.nn.", "Softmax", "LogSoftmax"):
        given = script.arg(call, 0, "dim")
        kept = isinstance(script.parent(call), ast.Assign) and text(script.parent(call).targets[0]).startswith("self.")  # type: ignore[union-attr]
        if given is not None and script.constant(given) == 0 and (in_sequence(script, call) or kept):
            fix = Fix("take the last axis", False, (script.replace(given, "-1"),))
            yield Hit(
                call,
                "softmax over axis 0 normalises across the examples of a batch; the classes are on the last axis.",
                fix=fix,
            )

    yield from picked(script)
    yield from attended(script)
    yield from over_width(script)
    yield from over_one(script)


def over_one(script: Script) -> Iterator[Hit]:
    """softmax(score(x), dim=-1), where the last layer of score has one unit: every weight is one."""
    for call in script.calls("softmax", "log_softmax"):
        dotted = script.dotted(call.func)
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call) if not dotted or dotted.startswith("torch.") else None
        axis = script.constant(given) if given is not None else None
        if given is None:
            axis, operand = by_object(script, call)
        known = operand is not None and axis in (-1, 1) and axis is not True
        if known and one_wide(script, operand, script.where(call), axis, 8):
            yield Hit(call, "runs over an axis of size one: every weight is 1, whatever the scores.", "likely")
    for call, _ in script.calls_to("torch.nn.", "Softmax"):
        above = script.parent(call)
        items = above.args if isinstance(above, ast.Call) and text(above.func).endswith("Sequential") else []
        before = items[items.index(call) - 1] if call in items[1:] else None
        if isinstance(before, ast.Call) and units(script, before, -1, script.constant(script.arg(call, 0, "dim"))):
            yield Hit(call, "runs over an axis of size one: every weight is 1, whatever the scores.", "likely")


def by_object(script: Script, call: ast.Call) -> tuple[Any, Any]:
    """The axis and operand of self.softmax(x), where self.softmax = nn.Softmax(dim=-1)."""
    values = script.value(call.func) if len(call.args) == 1 else ()
    if len(values) != 1 or values[0].name != "torch.nn.Softmax" or not isinstance(values[0].node, ast.Call):
        return None, None
    return script.constant(script.arg(values[0].node, 0, "dim")), call.args[0]


def units(script: Script, call: ast.Call, last: int, axis: Any) -> bool:
    """Whether a layer has one unit on the axis: Linear(d, 1) on the last, Conv1d(c, 1, 1) on the second."""
    dotted = script.dotted(call.func)
    wide = {"torch.nn.Linear": -1, "torch.nn.LazyLinear": -1, "torch.nn.Conv1d": 1, "torch.nn.Conv2d": 1}.get(dotted)
    if wide is None or wide != axis:
        return False
    place = 0 if dotted.endswith("LazyLinear") else 1
    size = script.arg(call, place, "out_features" if wide == last else "out_channels")
    return isinstance(size, ast.Constant) and size.value == 1


def one_wide(script: Script, node: Any, where: Where, axis: Any, deep: int) -> bool:
    """Whether a value is what a layer of one unit gave, at most masked or scaled since."""
    if deep == 0:
        return False
    if isinstance(node, ast.Name):
        held = reaching(where.block.scope.defs.get(node.id, []), where)
        return bool(held) and all(
            made.how == "=" and not made.path and one_wide(script, made.value, made.where, axis, deep - 1)
            for made in held
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        return one_wide(script, node.left, where, axis, deep - 1)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in ("masked_fill", "masked_fill_", "float", "tanh"):
        return one_wide(script, node.func.value, where, axis, deep - 1)
    values = script.values.value(node.func, where, None)
    made = values[0].node if len(values) == 1 and values[0].kind == "instance" else None
    if not isinstance(made, ast.Call) or values[0].cls is not None or values[0].where is None:
        return False
    home = script.at_home(values[0].where)
    if values[0].name == "torch.nn.Sequential":
        made = made.args[-1] if made.args and isinstance(made.args[-1], ast.Call) else None
    return made is not None and units(home, made, -1, axis)


def over_width(script: Script) -> Iterator[Hit]:
    """softmax(conv(x), dim=-1): of an image the last axis is its width."""
    for call in script.calls("softmax", "log_softmax", "argmax"):
        dotted = script.dotted(call.func)
        if dotted and not dotted.startswith("torch."):
            continue
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        axis = script.constant(given) if given is not None else None
        if operand is None or axis not in (-1, 2, 3) or isinstance(axis, bool):
            continue
        if image(script, operand, script.where(call), 5) and of_model(script, operand, script.where(call)):
            yield Hit(call, "runs along the image; the classes of a convolution's output are on axis 1.", "likely")


def of_model(script: Script, node: Any, where: Where) -> bool:
    """Whether a whole network, or its last layer by name, gave it: attention goes through convolutions too."""
    if isinstance(node, ast.Name):
        made = reaching(where.block.scope.defs.get(node.id, []), where)
        node = made[0].value if len(made) == 1 else None
    func = node.func if isinstance(node, ast.Call) else None
    values = script.values.value(func, where, None) if isinstance(func, ast.Name | ast.Attribute) else ()
    last = text(func).rsplit(".", 1)[-1].lower() if func is not None else ""
    whole = any(value.cls is not None for value in values)
    return whole or any(word in last for word in ("classif", "final", "logit", "seg", "out_conv", "outc"))


def image(script: Script, node: Any, where: Where, deep: int) -> bool:
    """Whether a value is what a two-dimensional convolution gave, as it came."""
    if deep == 0:
        return False
    if isinstance(node, ast.Name):
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        plain = len(made) == 1 and made[0].how == "=" and not made[0].path
        return plain and image(script, made[0].value, made[0].where, deep - 1)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return False
    values = script.values.value(node.func, where, None)
    if len(values) != 1 or values[0].kind != "instance":
        return False
    if values[0].cls is not None:
        forward = values[0].cls.methods.get("forward")
        alone = forward is not None and len(forward.returns) == 1 and not forward.yields
        return alone and forward is not None and image(script, *forward.returns[0], deep - 1)
    if values[0].name == "torch.nn.Sequential" and isinstance(values[0].node, ast.Call) and values[0].node.args:
        last = values[0].node.args[-1]
        return isinstance(last, ast.Call) and text(last.func).rsplit(".", 1)[-1] == "Conv2d"
    return values[0].name == "torch.nn.Conv2d"


def attended(script: Script) -> Iterator[Hit]:
    """softmax(q @ k.transpose(-2, -1), dim=1), and the result applied to the values."""
    for call in script.calls("softmax"):
        dotted = script.dotted(call.func)
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        axis = script.constant(given) if given is not None else None
        if axis not in (0, 1, -2, -3) or isinstance(axis, bool) or operand is None:
            continue
        where = script.where(call)
        product = peeled(script, operand, where)
        if similarity(script, product) and spent(script, call) and not normalised(where.block.scope):
            yield Hit(call, "normalises over the queries; attention must sum to one over the keys, dim=-1.", "likely")


def spent(script: Script, call: ast.Call) -> bool:
    """Whether the weights are multiplied with something: matching by similarity alone may take either axis."""
    at: ast.AST | None = call
    while isinstance(at, ast.expr):
        above = script.parent(at)
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.MatMult) and above.left is at:
            return True
        if isinstance(above, ast.Call) and text(above.func).endswith(("matmul", "bmm")) and above.args[:1] == [at]:
            return True
        at = above
    name = text(at.targets[0]) if isinstance(at, ast.Assign) else ""
    for node in script.loads(name) if name else ():
        above = script.parent(node)
        if isinstance(above, ast.BinOp) and isinstance(above.op, ast.MatMult) and above.left is node:
            return True
        if isinstance(above, ast.Call) and text(above.func).endswith(("matmul", "bmm")) and above.args[:1] == [node]:
            return True
    return False


def similarity(script: Script, node: ast.AST) -> bool:
    """q @ k.transpose(-2, -1), torch.matmul(q, k.mT)"""
    right: ast.AST | None = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        right = node.right
    elif (
        isinstance(node, ast.Call) and script.dotted(node.func) in ("torch.matmul", "torch.bmm") and len(node.args) == 2
    ):
        right = node.args[1]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("matmul", "bmm"):
        right = node.args[0] if node.args else None
    if isinstance(right, ast.Attribute):
        return right.attr == "mT"
    turned = isinstance(right, ast.Call) and isinstance(right.func, ast.Attribute) and right.func.attr == "transpose"
    return turned and {script.constant(arg) for arg in right.args} in ({-1, -2}, {1, 2}, {2, 3})  # type: ignore[union-attr]


def normalised(scope: Scope) -> bool:
    """Slots compete for positions on purpose, and their shares are then made to sum to one."""
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div) and ".sum(" in ast.unparse(node)
        for node in ast.walk(scope.node)
    )


def picked(script: Script) -> Iterator[Hit]:
    """pred = logits.argmax(0), compared with labels: the best example of each class, not the best class of each."""
    for call in script.calls("argmax", "max"):
        dotted = script.dotted(call.func)
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        if (dotted and dotted != f"torch.{dotted.rsplit('.', 1)[-1]}") or given is None or operand is None:
            continue
        axis = script.constant(given)
        if axis != 0 or axis is False or not compared(script, call):
            continue
        where = script.where(call)
        if scores(script, operand, where, 3):
            fix = Fix("take the last axis", False, (script.replace(given, "-1"),))
            yield Hit(call, "takes the best example of each class; the classes are on the last axis.", "likely", fix)


def compared(script: Script, call: ast.Call) -> bool:
    """Whether the result meets labels: in a comparison at once, or through the name it is kept under."""
    above = script.parent(call)
    if isinstance(above, ast.Attribute) and above.attr == "indices":
        above = script.parent(above)
    if isinstance(above, ast.Compare):
        return True
    if not isinstance(above, ast.Assign):
        return False
    last = above.targets[0]
    name = last.elts[-1] if isinstance(last, ast.Tuple) and last.elts else last
    for node in script.loads(text(name)) if isinstance(name, ast.Name) else ():
        user = script.parent(node)
        if isinstance(user, ast.Compare) or (isinstance(user, ast.Attribute) and user.attr in ("eq", "__eq__")):
            return True
    return False


def scores(script: Script, node: ast.AST, where: Where, deep: int) -> bool:
    """Whether a value is what a network gave for a batch."""
    if isinstance(node, ast.Call):
        return bool(applied(script.at_home(where), node))
    if not isinstance(node, ast.Name) or deep == 0:
        return False
    for made in reaching(where.block.scope.defs.get(node.id, []), where) if node.id in where.block.scope.defs else []:
        if made.how == "=" and not made.path:
            return scores(script, made.value, made.where, deep - 1)
        if made.how == "param":
            calls = script.project.callers(made.value)
            handed = [(argument(call, made.value, node.id), at) for call, at in calls]
            return bool(handed) and all(arg is not None and scores(script, arg, at, deep - 1) for arg, at in handed)
    return False


def peeled(script: Script, node: ast.AST, where: Where) -> ast.AST:
    """Scores without what masks or scales them."""
    for _ in range(6):
        if isinstance(node, ast.Name) and node.id in where.block.scope.defs:
            made = reaching(where.block.scope.defs[node.id], where)
            if (
                len(made) != 1
                or made[0].how != "="
                or made[0].path
                or made[0].where.block.scope.module is not script.module
            ):
                return node
            node, where = made[0].value, made[0].where
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult | ast.Add):
            node = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "masked_fill":
            node = node.func.value
        else:
            break
    return node


def beside(script: Script, call: ast.Call, operand: ast.AST) -> bool:
    """Whether the same function takes other logits over the last axis, as when a student is held against a teacher."""
    if "logits" not in ast.unparse(operand).lower():
        return False
    for other in script.scope(call).calls:
        name = other.func.attr if isinstance(other.func, ast.Attribute) else ""
        if other is call or name not in ("softmax", "log_softmax"):
            continue
        dotted = script.dotted(other.func)
        axis = script.constant(script.arg(other, 1 if dotted else 0, "dim"))
        inner = script.operand(other)
        if axis in (1, -1) and axis is not True and inner is not None and "logits" in ast.unparse(inner).lower():
            return True
    return False


def in_sequence(script: Script, call: object) -> bool:
    """Whether the layer ends a Sequential that begins with others."""
    above = script.parent(call)  # type: ignore[arg-type]
    args = getattr(above, "args", [])
    return len(args) > 1 and args[-1] is call
