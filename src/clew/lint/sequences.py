"""Which layer of a Sequential comes last, also where its list was filled step by step."""

import ast
from typing import Any

from clew.lint.branches import taken
from clew.lint.index import Where
from clew.lint.value import NOTHING, Alternatives, Context, Value

# An average of scores is a score, one of probabilities a probability.
TRANSPARENT_LAYERS = frozenset(
    "Dropout Dropout1d Dropout2d Flatten Unflatten Identity AlphaDropout AdaptiveAvgPool1d AdaptiveAvgPool2d AvgPool1d "
    "AvgPool2d Upsample PixelShuffle".split()
)


def last_layer(values: Any, sequential: Value, context: Context | None) -> Alternatives:
    args = sequential.node.args
    assert sequential.where is not None
    layers: list[Any] | None = list(args)
    if len(args) == 1:
        layers = sequence(values, args[0].value if isinstance(args[0], ast.Starred) else args[0], sequential)
    for layer in reversed(layers or []):
        if isinstance(layer, ast.Starred):
            inner = sequence(values, layer.value, sequential)
            layer = inner[-1] if inner else None
        if layer is None:
            return NOTHING
        at = sequential.where.block.scope.module.where(layer)
        inner_at = values.inside(sequential, context)
        found: Alternatives = values.value(
            layer, at, inner_at if at.block.scope is sequential.where.block.scope else None
        )
        names = [value.name.rsplit(".", 1)[-1] for value in found]
        if not all(name in TRANSPARENT_LAYERS for name in names):
            return found
    return NOTHING


def sequence(values: Any, node: Any, sequential: Value) -> list[Any] | None:
    """The layers that a list expression holds, with what was appended to it; None when that is not plain."""
    assert sequential.where is not None
    if isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name in ("OrderedDict", "list", "tuple"):
            return sequence(values, node.args[0], sequential)
    if isinstance(node, ast.List | ast.Tuple):
        return [item.elts[1] if isinstance(item, ast.Tuple) and len(item.elts) == 2 else item for item in node.elts]
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.Name):
        return grown(values, node, sequential.where, values.inside(sequential, None))
    return [node] if isinstance(node, ast.Call) else None


def grown(values: Any, node: ast.Name, where: Where, context: Context | None) -> list[Any] | None:
    """What a list holds that was filled step by step; None stands for what may or may not be there."""
    scope = where.block.scope
    around = where.block.chain()
    found: list[tuple[int, Any]] = []
    for made in scope.defs.get(node.id, []):
        value = made.value
        if made.how == "aug" and isinstance(value, ast.AugAssign):
            value = value.value
        for step in made.path:  # layers, width = [], n
            value = value.elts[step] if isinstance(value, ast.Tuple) and 0 <= step < len(value.elts) else None
        if not isinstance(value, ast.List):
            return None
        way = taken(values, made.where.block, around, context) if made.where.block not in around else True
        if way is not False:
            open_ = way is None and not made.where.block.loops()
            found += [(made.where.order, None if open_ else item) for item in value.elts]
    module = scope.module
    for call in scope.calls:
        func = call.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == node.id:
            if func.attr == "append" and len(call.args) == 1:
                at = module.where(call)
                way = taken(values, at.block, around, context) if at.block not in around else True
                if way is not False:
                    open_ = way is None and not at.block.loops()
                    found.append((at.order, None if open_ else call.args[0]))
            elif func.attr in ("extend", "insert"):
                found.append((module.where(call).order, None))
    found.sort(key=lambda pair: pair[0])
    return [item for order, item in found if order < where.order]
