"""A recurrent layer treats the batch axis as the time axis.

What it sees: a recurrent or attention layer without batch_first, whose output is then read as if the batch came first:
the last or first entry of axis 1, or a mean over axis 1; the reverse, out[-1] of a layer with batch_first=True; an
input whose axes the same function has named batch and time, given to a layer that expects time first.
Why it matters: the layer runs along the batch. Each prediction depends on the neighbours it was drawn with, the order
within a sequence is never seen, and no shape shows it.
Silent when: an axis is moved between the layer and the place that reads it, or batch_first is not written out plainly.
Fix: batch_first=True, or move the time axis to the front before the layer.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.value import Value

RECURRENT = ("LSTM", "GRU", "RNN")
ATTENTIVE = ("TransformerEncoder", "TransformerEncoderLayer", "TransformerDecoder", "MultiheadAttention")
KEEPS = frozenset("relu gelu tanh sigmoid float contiguous to dropout clone".split())
SAME = frozenset("Dropout LayerNorm ReLU GELU Linear Tanh SiLU Identity Sequential".split())
REDUCES = ("mean", "max", "amax", "sum", "logsumexp")
BATCH = frozenset("b bs bsz batch batch_size n nb n_batch num_batch batchsize".split())
TIME = frozenset("t seq s l length time steps seq_len seqlen seq_length window n_steps time_steps timesteps tt".split())
# Where sequences may have been put the other way round.
MOVES = ("transpose", "permute", "swapaxes", "rearrange", "movedim", "einsum", "swapdims", "moveaxis")


@rule(
    "CLW411",
    "time-axis-is-batch-axis",
    "arch.batch_mixing",
    "likely",
    " ".join((*RECURRENT, *ATTENTIVE)),
)
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        forward = cls.methods.get("forward")
        if forward is None or not script.is_module(cls):
            continue
        methods = [one for one in cls.methods.values() if one.name != "__init__"]
        for method in methods:
            yield from misread(script, method)
            yield from named_otherwise(script, method)


def misread(script: Script, method: Scope) -> Iterator[Hit]:
    """out, _ = self.lstm(x); return self.fc(out[:, -1]), where self.lstm wants time first."""
    for node in script.module.nodes.get(ast.Subscript, []):
        axis = entry(node)
        if axis is None or not isinstance(node.ctx, ast.Load) or script.scope(node) is not method:
            continue
        layer = origin(script, node.value, script.where(node), 6)
        if layer is not None and turned(script, layer) is (axis == 0) and (axis == 1 or recurrent(layer)):
            yield Hit(node, told(layer, axis), related=script.related(layer, "the layer"))
    for call in method.calls:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in REDUCES:
            continue
        dotted = script.dotted(call.func)
        given = script.arg(call, 1 if dotted else 0, "dim")
        operand = script.operand(call)
        if given is None or operand is None or script.constant(given) != 1 or script.constant(given) is True:
            continue
        layer = origin(script, operand, script.where(call), 6)
        if layer is not None and turned(script, layer) is False and not script.starred(call):
            yield Hit(call, told(layer, 1), related=script.related(layer, "the layer"))


def told(layer: Value, axis: int) -> str:
    name = layer.name.rsplit(".", 1)[-1]
    if axis == 0:
        return f"{name} has batch_first=True, so this takes the last example of the batch, not the last step."
    return f"{name} is created without batch_first, so axis 1 of its output holds the examples, not the steps."


def entry(node: ast.Subscript) -> int | None:
    """The axis of which one entry is taken: 1 for out[:, -1], 0 for out[-1]."""
    index = node.slice
    if isinstance(index, ast.Tuple) and len(index.elts) in (2, 3):
        whole = isinstance(index.elts[0], ast.Slice) and ast.unparse(index.elts[0]) == ":"
        rest = all(isinstance(part, ast.Slice) for part in index.elts[2:])
        return 1 if whole and rest and ast.unparse(index.elts[1]) in ("-1", "0") else None
    return 0 if ast.unparse(index) == "-1" else None


def origin(script: Script, node: Any, where: Where, deep: int) -> Value | None:
    """The layer whose output a value is, as it came or after what leaves the axes alone."""
    if deep == 0 or where.block.scope.module is not script.module:
        return None
    if isinstance(node, ast.Name):
        made = reaching(where.block.scope.defs.get(node.id, []), where) if node.id in where.block.scope.defs else []
        if len(made) != 1 or made[0].how != "=" or made[0].path not in ((), (0,)):
            return None
        layer = origin(script, made[0].value, made[0].where, deep - 1)
        return layer if layer is not None and pair(script, layer, made[0].value) is (made[0].path == (0,)) else None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
        return origin(script, node.value, where, deep - 1) if isinstance(node.value, ast.Call) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):  # a way around the layer
        left = origin(script, node.left, where, deep - 1)
        return left if left is not None else origin(script, node.right, where, deep - 1)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
        operand = node.args[0] if script.dotted(node.func) and node.args else node.func.value
        return origin(script, operand, where, deep - 1)
    values = script.value(node.func)
    if len(values) != 1 or values[0].kind != "instance" or not values[0].name.startswith("torch.nn."):
        return None
    last = values[0].name.rsplit(".", 1)[-1]
    if last in (*RECURRENT, *ATTENTIVE):
        return None if packed(node.args[0] if node.args else None, where) else values[0]
    return origin(script, node.args[0], where, deep - 1) if last in SAME and node.args else None


def pair(script: Script, layer: Value, node: Any) -> bool:
    """Whether the expression that a name was given is a layer's output and something more, its states or weights."""
    if not isinstance(node, ast.Call) or not layer.name.endswith((*RECURRENT, "MultiheadAttention")):
        return False
    return any(value.node is layer.node for value in script.value(node.func))


def recurrent(layer: Value) -> bool:
    return layer.name.endswith(RECURRENT)


def packed(node: Any, where: Where) -> bool:
    """Whether what goes in is packed, where batch_first says nothing."""
    if isinstance(node, ast.Call):
        return "pack" in text(node.func).lower()
    made = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    return any(isinstance(one.value, ast.Call) and "pack" in text(one.value.func).lower() for one in made)


def turned(script: Script, layer: Value) -> bool | None:
    """What batch_first of a layer is; None when it is not written out."""
    if not isinstance(layer.node, ast.Call) or layer.where is None or script.starred(layer.node):
        return None
    home = script.at_home(layer.where)
    if layer.name.endswith(("TransformerEncoder", "TransformerDecoder")):
        inner = script.arg(layer.node, 0, "encoder_layer") or script.arg(layer.node, 0, "decoder_layer")
        held = script.values.value(inner, layer.where, None) if inner is not None else ()
        plain = (
            len(held) == 1 and held[0].kind == "instance" and held[0].name.endswith("Layer") and held[0] is not layer
        )
        return turned(script, held[0]) if plain else None
    given = script.arg(layer.node, -1, "batch_first")
    if given is None:
        return False if len(layer.node.args) < 5 or not recurrent(layer) else None
    found = home.constant(given)
    return found if isinstance(found, bool) else None


def named_otherwise(script: Script, method: Scope) -> Iterator[Hit]:
    """b, t, _ = x.shape; out, h = self.gru(x), where self.gru wants time first."""
    if any(name in script.module.calls for name in MOVES):
        return
    for name in method.params:
        if not batch_named(method, name) or len(method.defs[name]) != 1:
            continue
        for call in method.calls:
            if not call.args or text(call.args[0]) != name or not isinstance(call.func, ast.Attribute):
                continue
            values = script.value(call.func)
            known = len(values) == 1 and values[0].name.startswith("torch.nn.") and recurrent(values[0])
            if known and turned(script, values[0]) is False:
                yield Hit(call, told(values[0], 1), related=script.related(values[0], "the layer"))


def batch_named(method: Scope, name: str) -> bool:
    """Whether a function calls the first axis of a value its batch and the second its time."""
    firsts = {made.name.lower() for defs in method.defs.values() for made in defs if shape_of(made, name) == (0,)}
    seconds = {made.name.lower() for defs in method.defs.values() for made in defs if shape_of(made, name) == (1,)}
    return bool(firsts & BATCH) and bool(seconds & TIME)


def shape_of(made: Any, name: str) -> tuple[int, ...]:
    value = made.value if made.how == "=" else None
    if isinstance(value, ast.Call) and text(value.func) == f"{name}.size" and not value.args:
        return tuple(made.path)
    return tuple(made.path) if isinstance(value, ast.Attribute) and text(value) == f"{name}.shape" else ()
