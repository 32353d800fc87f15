"""A network averages over the examples of a batch.

What it sees: in a forward pass, mean, sum, max or another reduction over axis 0, or normalize and cosine_similarity
over axis 0, of something that surely has the batch there: the output of a layer with batch_first=True, of a
convolution or a batch norm; softmax over an axis that one unit has made one wide.
Why it matters: each prediction then depends on its neighbours in the batch, all of them get the same features, and
with a batch of one the network does something else than in training. A softmax over one number is always one.
Silent when: an axis was moved in between, or the layers keep the batch elsewhere.
Fix: reduce over the intended axis, usually dim=1 for positions.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.given import argument
from clew.lint.index import Def, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

REDUCES = ("mean", "sum", "max", "amax", "min", "amin", "logsumexp", "normalize", "cosine_similarity", "std", "norm")
FIRST = ("Conv1d", "Conv2d", "Conv3d", "BatchNorm1d", "BatchNorm2d", "MaxPool2d", "AdaptiveAvgPool2d", "MaxPool1d")
CAN_TURN = ("LSTM", "GRU", "RNN", "TransformerEncoder", "TransformerDecoder", "MultiheadAttention", "Transformer")
KEEPS = frozenset("relu gelu tanh sigmoid float contiguous to dropout clone half elu leaky_relu silu squeeze".split())
SAME = frozenset("Dropout LayerNorm ReLU GELU Linear Tanh SiLU Identity Embedding".split())


@rule("CLW114", "reduced-over-batch", "loss.wrong_dim", "likely", "forward")
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        if "forward" not in cls.methods:
            continue
        hits = [
            hit
            for method in cls.methods.values()
            for call in (method.calls if method.name != "__init__" else ())
            for hit in (*reduced(script, call), *over_one(script, call))
        ]
        if hits and script.is_module(cls):
            yield from hits


def reduced(script: Script, call: ast.Call) -> Iterator[Hit]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in REDUCES:
        return
    dotted = script.dotted(call.func)
    if dotted and not dotted.startswith("torch."):
        return
    at = {"normalize": 2, "cosine_similarity": 2, "norm": 1}.get(name, 0) + (1 if dotted and name in REDUCES[:7] else 0)
    given = script.arg(call, at, "dim") or script.arg(call, -1, "axis")
    if given is None or script.constant(given) != 0 or script.constant(given) is False:
        return
    operand = script.operand(call) if name != "cosine_similarity" else script.arg(call, 0)
    if operand is None:
        return
    over_features = name in ("normalize", "cosine_similarity") and of_linear(script, operand, call)
    if over_features or batch_first(script, operand, script.where(call), 8):
        yield Hit(call, f"{name} over axis 0 mixes the examples of the batch.")
    elif name in ("mean", "sum", "max", "amax") and embedded(script, operand, call):
        yield Hit(call, f"{name} over axis 0 of the embedded batch mixes its examples.", "look")


def of_linear(script: Script, node: Any, call: ast.Call) -> bool:
    """normalize(self.proj(x), dim=0): a layer's output has its features last."""
    made = plain_call(node, script.where(call))
    values = script.value(made.func) if made is not None and isinstance(made.func, ast.Name | ast.Attribute) else ()
    return bool(values) and all(
        value.kind == "instance" and value.name in ("torch.nn.Linear", "torch.nn.Sequential") for value in values
    )


def embedded(script: Script, node: Any, call: ast.Call) -> bool:
    """self.emb(ids), where ids is what forward was given."""
    scope = script.scope(call)
    made = plain_call(node, script.where(call))
    given = made.args[0] if made is not None and made.args else None
    if scope.name != "forward" or not isinstance(given, ast.Name) or given.id not in scope.params:
        return False
    values = script.value(made.func) if made is not None else ()
    return bool(values) and all(value.kind == "instance" and value.name == "torch.nn.Embedding" for value in values)


def over_one(script: Script, call: ast.Call) -> Iterator[Hit]:
    """softmax(self.score(h), dim=-1), where score has one unit: the weights are all one."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("softmax", "log_softmax"):
        return
    dotted = script.dotted(call.func)
    given = script.arg(call, 1 if dotted else 0, "dim")
    operand = script.operand(call)
    if operand is None or given is None or script.constant(given) != -1:
        return
    where = script.where(call)
    layer = plain_call(operand, where)
    values = script.value(layer) if layer is not None else ()
    made = values[0].owner.node if len(values) == 1 and values[0].name == "linear" and values[0].owner else None
    direct = layer is not None and all(value.kind == "instance" for value in script.value(layer.func))
    if direct and isinstance(made, ast.Call) and str(values[0].owner and values[0].owner.name).endswith("Linear"):
        home = script.at_home(values[0].owner.where) if values[0].owner and values[0].owner.where else script
        if home.constant(script.arg(made, 1, "out_features")) == 1:
            yield Hit(call, "softmax over an axis of size one: every weight is 1. Use the axis of the positions.")


def plain_call(node: Any, where: Where) -> ast.Call | None:
    """The call that made a value, behind one name."""
    scope = where.block.scope
    if isinstance(node, ast.Name) and node.id in scope.defs:
        made = reaching(scope.defs[node.id], where)
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    return node if isinstance(node, ast.Call) else None


def batch_first(script: Script, node: Any, where: Where, deep: int) -> bool:
    """Whether axis 0 of a value surely counts the examples."""
    if deep <= 0 or where.block.scope.module is not script.module:
        return False
    scope = where.block.scope
    if isinstance(node, ast.Name):
        defs = reaching(scope.defs[node.id], where) if node.id in scope.defs else []
        return bool(defs) and all(defined(script, made, deep) for made in defs)
    if isinstance(node, ast.BinOp):
        return any(batch_first(script, side, where, deep - 1) for side in (node.left, node.right))
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
        operand = node.args[0] if script.dotted(node.func) and node.args else node.func.value
        return batch_first(script, operand, where, deep - 1)
    values = script.value(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else ()
    return bool(values) and all(layer(script, value, node, where, deep) for value in values)


def defined(script: Script, made: Def, deep: int) -> bool:
    """A name for what a layer gave, the first of two things it gave, or what all callers hand over."""
    if made.how == "param":
        calls = script.project.callers(made.value)[:4]
        given = [(argument(call, made.value, made.name), at) for call, at in calls]
        return bool(given) and all(batch_first(script, arg, at, deep - 2) for arg, at in given)
    if made.how != "=" or made.path not in ((), (0,)):
        return False
    return batch_first(script, made.value, made.where, deep - 1 if not made.path else min(deep - 1, 4))


def layer(script: Script, value: Any, node: ast.Call, where: Where, deep: int) -> bool:
    """Whether what a layer gives has the examples first."""
    last = value.name.rsplit(".", 1)[-1]
    if value.kind != "instance" or not value.name.startswith("torch.nn.") or not isinstance(value.node, ast.Call):
        return False
    if last in FIRST:
        return True
    if last in CAN_TURN:
        return turned(script, value)
    return last in SAME and bool(node.args) and batch_first(script, node.args[0], where, deep - 1)


def turned(script: Script, value: Any) -> bool:
    """batch_first=True of a recurrent layer, or of the layer that an encoder repeats."""
    home = script.at_home(value.where) if value.where is not None else script
    given = script.arg(value.node, -1, "batch_first")
    if given is not None:
        return home.constant(given) is True
    inner = script.arg(value.node, 0, "encoder_layer") or script.arg(value.node, -1, "decoder_layer")
    for held in home.value(inner) if inner is not None and value.name.endswith(("Encoder", "Decoder")) else ():
        if held.kind == "instance" and isinstance(held.node, ast.Call):
            return home.constant(script.arg(held.node, -1, "batch_first")) is True
    return False
