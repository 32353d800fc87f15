"""Calls that compute a loss, and what goes into them."""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.given import argument
from clew.lint.script import Script
from clew.lint.value import Alternatives, Value

# What a loss wants of its predictions, by the name of its function and of its class.
WANTS = {
    "cross_entropy": "logits",
    "CrossEntropyLoss": "logits",
    "binary_cross_entropy_with_logits": "binary logits",
    "BCEWithLogitsLoss": "binary logits",
    "sigmoid_focal_loss": "binary logits",
    "MultiLabelSoftMarginLoss": "binary logits",
    "multilabel_soft_margin_loss": "binary logits",
    "nll_loss": "log-probabilities",
    "NLLLoss": "log-probabilities",
    "binary_cross_entropy": "probabilities",
    "BCELoss": "probabilities",
    "kl_div": "log-probabilities of kl",
    "KLDivLoss": "log-probabilities of kl",
    "mse_loss": "values",
    "MSELoss": "values",
    "l1_loss": "values",
    "L1Loss": "values",
    "smooth_l1_loss": "values",
    "SmoothL1Loss": "values",
    "huber_loss": "values",
    "HuberLoss": "values",
}
CLASSES = tuple(name for name in WANTS if name[0].isupper())
FUNCTIONS = tuple(name for name in WANTS if name[0].islower())
PREFIXES = ("torch.nn.", "torchvision.ops.")
LOSSY = re.compile("loss|crit|mse|ce|nll|cost|obj|fn|func|l1|xent", re.IGNORECASE)


class LossCall(NamedTuple):
    """One computation of a loss. `made` is the loss object that is called, when it is one."""

    node: ast.Call
    name: str
    wants: str
    prediction: Any
    target: Any
    made: Value | None


def loss_calls(script: Script) -> list[LossCall]:
    """Every loss computed in the file, whether by a function of torch or by an object made anywhere in the project."""
    if "losses" not in script.known:
        script.known["losses"] = list(_find(script))
    found: list[LossCall] = script.known["losses"]
    return found


def _find(script: Script) -> Iterator[LossCall]:
    seen: set[ast.Call] = set()
    for name in FUNCTIONS:
        for call in script.calls(name):
            if script.dotted(call.func).startswith(PREFIXES):
                seen.add(call)
                yield _made(script, call, name, None)
    if not any(name in script.module.names for name in CLASSES) and not _may_receive(script):
        return
    for scope in script.module.scopes:
        for call in scope.calls:
            if call in seen or not 1 <= len(call.args) + len(call.keywords) <= 4 or not _callable(script, call.func):
                continue
            values = script.value(call.func)
            if len(values) == 1 and values[0].kind == "instance" and values[0].cls is not None:
                around = _around(script, call, values[0])
                if around is not None:
                    yield around
            elif all(value.kind == "ref" and value.name.startswith(PREFIXES) for value in values):
                called = {value.name.rsplit(".", 1)[-1] for value in values}
                if len(called) == 1 and (name := called.pop()) in WANTS and name[0].islower():
                    yield _made(script, call, name, None)
            elif all(value.kind == "instance" for value in values):
                names = {value.name.rsplit(".", 1)[-1] for value in values if value.name.startswith("torch.nn.")}
                if len(names) == 1 and len(values) <= 3 and (name := names.pop()) in WANTS:
                    yield _made(script, call, name, values[0])


def _around(script: Script, call: ast.Call, value: Value) -> LossCall | None:
    """A call of the project's own module, whose forward hands its input on, as it is, to a loss of torch."""
    forward = value.cls.methods.get("forward") if value.cls is not None else None
    if forward is None or value.const == "self":
        return None
    for given in forward.calls:
        first = given.args[0] if given.args else None
        if not isinstance(first, ast.Name) or not isinstance(given.func, ast.Name | ast.Attribute):
            continue
        plain = first.id in forward.params and len(forward.defs[first.id]) == 1
        prediction = argument(call, forward, first.id) if plain else None
        if prediction is None:
            continue
        for held in script.values.value(given.func, forward.module.where(given), None)[:1]:
            name = held.name.rsplit(".", 1)[-1]
            known = held.name.startswith("torch.nn.") and held.kind in ("instance", "ref")
            if name in WANTS and (known or str(held.name).startswith(PREFIXES)):
                return LossCall(call, name, WANTS[name], prediction, None, held)
    return None


def _callable(script: Script, func: ast.expr) -> bool:
    """Cheaply: may this be a loss object? Names and attributes that are called, and classes that are called at once."""
    if isinstance(func, ast.Call):
        last = func.func.attr if isinstance(func.func, ast.Attribute) else getattr(func.func, "id", "")
        return last in WANTS or any(last in script.aliases.get(name, ()) for name in CLASSES)
    if isinstance(func, ast.Subscript) and isinstance(func.value, ast.Name | ast.Attribute):
        kept = func.value.id if isinstance(func.value, ast.Name) else func.value.attr
        return any(word in kept.lower() for word in ("loss", "crit", "obj"))  # LOSSES["ce"](logits, y)
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return bool(name) and not name[0].isupper() and name in _suspects(script)


def _suspects(script: Script) -> set[str]:
    """Names that hold something made elsewhere: parameters, attributes, variables; never functions of the file."""
    if "loss names" not in script.known:
        found: set[str] = set()
        classes = {alias for name in CLASSES for alias in (name, *script.aliases.get(name, ()))}
        for scope in script.module.scopes:
            for name, defs in scope.defs.items():
                held = LOSSY.search(name) is not None
                for made in defs:
                    plain = made.how in ("param", "import") or (
                        made.how == "=" and isinstance(made.value, ast.Call | ast.Attribute)
                    )
                    if (held and plain) or _makes(made.value, classes):
                        found.add(name)
                        break
        for cls in script.module.classes:
            for name, defs in cls.attrs.items():
                if LOSSY.search(name) or any(_makes(made.value, classes) for made in defs):
                    found.add(name)
        script.known["loss names"] = {name for name in found if not name[0].isupper()}
    names: set[str] = script.known["loss names"]
    return names


def _makes(node: Any, classes: set[str]) -> bool:
    at = node
    while isinstance(at, ast.Call):
        func = at.func
        name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
        if name in classes or (name[:1].isupper() and name.endswith(("Loss", "Criterion"))):
            return True
        at = func.value if isinstance(func, ast.Attribute) else None
    return isinstance(node, ast.Tuple | ast.Dict | ast.IfExp | ast.List | ast.Subscript)


def _may_receive(script: Script) -> bool:
    """Whether a loss object may come in from another file."""
    return script.speaks("loss", "crit")


def _made(script: Script, call: ast.Call, name: str, made: Value | None) -> LossCall:
    wants = WANTS[name]
    return LossCall(call, name, wants, script.arg(call, 0, "input"), script.arg(call, 1, "target"), made)


def activation(script: Script, values: Alternatives) -> tuple[str, Value] | None:
    """The activation that every alternative went through last, with one place of it."""
    names: set[str] = set()
    at: Value | None = None
    values = tuple(part for value in values for part in parted(script, value))
    for value in values:
        name = value.name if value.kind == "made" else ""
        if name not in ACTIVATIONS and raw(script, value):
            name = "linear"
        if name == "log" and value.where is not None and isinstance(value.node, ast.Call):
            inner = value.node.args[0] if value.node.args else getattr(value.node.func, "value", None)
            below = activation(script, script.values.value(inner, value.where, None)) if inner is not None else None
            name = {"softmax": "log_softmax", "sigmoid": "logsigmoid"}.get(below[0], "") if below else ""
        if name not in ACTIVATIONS:
            return None
        names.add(name)
        at = value
    return (names.pop(), at) if len(names) == 1 and at is not None else None


ACTIVATIONS = frozenset("softmax log_softmax sigmoid logsigmoid linear".split())
JOINS = frozenset("cat stack concat concatenate hstack vstack".split())
# Of unbounded scores these make unbounded scores.
LINEAR = frozenset("sum mean matmul bmm mm spmm einsum dot inner mul add sub squeeze unsqueeze baddbmm addmm".split())
PRODUCTS = frozenset("matmul bmm mm spmm einsum dot inner baddbmm addmm".split())
# Layers of other libraries that end in a product with weights.
GRAPH = ("torch_geometric.nn.", "dgl.nn.")


def parted(script: Script, value: Value) -> Alternatives:
    """The parts that a tensor was put together from."""
    if value.kind != "made" or value.name not in JOINS or value.where is None or not isinstance(value.node, ast.Call):
        return (value,)
    first = value.node.args[0] if value.node.args else None
    if not isinstance(first, ast.List | ast.Tuple) or not first.elts:
        return (value,)
    return tuple(one for item in first.elts for one in script.values.value(item, value.where, None))


def raw(script: Script, value: Value, deep: int = 5) -> bool:
    """Whether a value is computed from a layer's output by nothing but sums and products: it can be any number."""
    if deep == 0 or value.where is None:
        return False
    if value.kind == "made":
        name = value.name.rsplit(".", 1)[-1]
        if name == "linear" or (value.name.startswith(GRAPH) and name.endswith(("Conv()", "Linear()"))):
            return True
        if name not in LINEAR or not isinstance(value.node, ast.Call):
            return False
        func = value.node.func
        library = isinstance(value.const, str)
        given = list(value.node.args) if library else []
        given = [arg for arg in given if not isinstance(arg, ast.Constant)]
        if not library and isinstance(func, ast.Attribute):
            given.append(func.value)
        product = name in PRODUCTS
        return any(_raw(script, arg, value, deep) or (product and _weights(script, arg, value)) for arg in given)
    node = value.node
    if value.kind == "unop" and isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and _raw(script, node.operand, value, deep)
    if value.kind == "binop" and isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            sides = (node.left, node.right)
            return any(_raw(script, side, value, deep) or _weights(script, side, value) for side in sides)
        if isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant | ast.Attribute):
            return _raw(script, node.left, value, deep)  # by a setting, not by a norm of its own
        if isinstance(node.op, ast.Mult | ast.Add | ast.Sub):
            # Whatever is added to a score, or multiplied with it, leaves it without bounds.
            return any(_raw(script, side, value, deep) for side in (node.left, node.right))
    return False


def _raw(script: Script, node: ast.AST, value: Value, deep: int) -> bool:
    assert value.where is not None
    context = value.const if isinstance(value.const, tuple) else None
    found = script.values.value(node, value.where, context)  # type: ignore[arg-type]
    return all(raw(script, one, deep - 1) for one in found)


def _weights(script: Script, node: ast.AST, value: Value) -> bool:
    """Whether a side of a product is a parameter: a layer written out by hand."""
    assert value.where is not None
    context = value.const if isinstance(value.const, tuple) else None
    found = script.values.value(node, value.where, context)  # type: ignore[arg-type]
    return all(one.name in ("torch.nn.Parameter", "torch.nn.parameter.Parameter") for one in found)
