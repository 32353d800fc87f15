"""In which order the axes of an attention tensor lie, as far as views and transposes tell."""

import ast
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.script import Script, text

SWAPS = ({1, 2}, {-3, -2}, {1, -2}, {-3, 2})
FOUR, FIRST, BACK, PARTS = "four axes", "heads first", "positions first", "parts, heads first"
KEEPS = frozenset(
    "contiguous float double half to cuda cpu type_as clone softmax masked_fill dropout relu mul add div masked_fill_ "
    "detach bfloat16".split()
)
DEEP = 10


def layout(script: Script, node: Any, where: Where, deep: int = DEEP) -> str:
    """`heads first` for (batch, heads, positions, width) that was made from positions first by a transpose; "" when the
    source does not say."""
    if deep == 0:
        return ""
    if isinstance(node, ast.Name):
        return named(script, node, where, deep)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            return layout(script, node.right, where, deep - 1)
        return layout(script, node.left, where, deep - 1)
    if isinstance(node, ast.Subscript):
        inner = layout(script, node.value, where, deep - 1)
        return FIRST if inner == PARTS and isinstance(node.slice, ast.Constant) else ""
    if isinstance(node, ast.Call):
        return called(script, node, where, deep)
    return ""


def named(script: Script, node: ast.Name, where: Where, deep: int) -> str:
    scope = where.block.scope
    found = set()
    for made in reaching(scope.defs[node.id], where) if node.id in scope.defs else []:
        if made.how != "=":
            return ""
        value = made.value
        for step in made.path:
            if isinstance(value, ast.GeneratorExp | ast.ListComp) and len(made.path) == 1:
                value = value.elt  # q, k, v = (split(part) for part in parts)
            elif isinstance(value, ast.Tuple | ast.List) and 0 <= step < len(value.elts):
                value = value.elts[step]
            else:
                inner = layout(script, value, made.where, deep - 1)
                return FIRST if inner == PARTS else ""
        found.add(layout(script, value, made.where, deep - 1))
    return found.pop() if len(found) == 1 else ""


def called(script: Script, node: ast.Call, where: Where, deep: int) -> str:
    func = node.func
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    own = script.values.value(func, where, None) if isinstance(func, ast.Name | ast.Attribute) else ()
    held = own[0].func if len(own) == 1 and own[0].kind == "function" else None
    if held is not None:
        if len(held.returns) != 1 or held.yields:
            return ""
        given, at = held.returns[0]
        return layout(script, given, at, deep - 1)
    here = where.block.scope.module is script.module
    dotted = script.dotted(func) if here else ""
    method = isinstance(func, ast.Attribute) and not dotted.startswith(("torch.", "numpy."))
    if not method and name in ("scaled_dot_product_attention", "dropout", "softmax") and node.args:
        return layout(script, node.args[0], where, deep - 1)
    if not method and name in ("matmul", "bmm") and len(node.args) == 2:
        return layout(script, node.args[1], where, deep - 1)
    if len(own) == 1 and own[0].kind == "instance" and own[0].name.endswith("Dropout") and node.args:
        return layout(script, node.args[0], where, deep - 1)
    if not isinstance(func, ast.Attribute) or not method:
        return ""
    return moved(script, name, func.value, node, where, deep)


def moved(script: Script, name: str, base: Any, node: ast.Call, where: Where, deep: int) -> str:
    if name in ("view", "reshape"):
        sizes = node.args[0].elts if len(node.args) == 1 and isinstance(node.args[0], ast.Tuple) else node.args
        at = heads(sizes)
        if len(sizes) == 4:
            return {1: FIRST, 2: FOUR}.get(at, "")
        return "five axes" if len(sizes) == 5 and at == 3 else ""
    numbers = [number(arg) for arg in node.args]
    if name in ("transpose", "swapaxes", "swapdims") and len(numbers) == 2:
        inner = layout(script, base, where, deep - 1)
        if set(numbers) in SWAPS:
            return {FOUR: FIRST, BACK: FIRST, FIRST: BACK}.get(inner, "")
        return ""
    if name == "permute":
        inner = layout(script, base, where, deep - 1)
        if numbers == [0, 2, 1, 3]:
            return {FOUR: FIRST, BACK: FIRST, FIRST: BACK}.get(inner, "")
        return PARTS if inner == "five axes" and numbers == [2, 0, 3, 1, 4] else ""
    if name == "unbind":
        return layout(script, base, where, deep - 1)
    if name == "matmul" and node.args:
        return layout(script, node.args[0], where, deep - 1)
    return layout(script, base, where, deep - 1) if name in KEEPS else ""


def heads(sizes: list[ast.expr]) -> int:
    """Which of the sizes is the number of heads, by its name; -1 when none is."""
    for at, size in enumerate(sizes):
        name = text(size).rsplit(".", 1)[-1].lower()
        if name in ("h", "nh", "n_h") or (
            "head" in name and not any(word in name for word in ("dim", "size", "width"))
        ):
            return at
    return -1


def number(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    return None
