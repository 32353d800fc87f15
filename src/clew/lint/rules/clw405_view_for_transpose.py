"""view or reshape where axes should be swapped.

What it sees: a tensor whose shape was unpacked as (batch, length, width) is viewed with the second and third names
exchanged, or with the heads put before the length; heads that were brought forward for attention, in this function or
a helper, and are merged again by a view without being taken back.
Why it matters: view keeps the order in memory and only reinterprets the shape. Values of different positions end up in
one row, the model still trains on the scrambled data, and is worse for a reason that nothing shows.
Silent when: a transpose or permute stands between, or the sizes in the view are in the order of the tensor.
Fix: transpose or permute first. Heads are split by a view in the order of memory and a transpose after it, and merged
by transpose(1, 2) and a reshape after it.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.axes import FIRST, layout
from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

MOVES = (
    "transpose",
    "permute",
    "swapaxes",
    "movedim",
    "swapdims",
    "rearrange",
    "t",
    "mT",
    "T",
    "roll",
    "unfold",
    "moveaxis",
    "einsum",
)
KEEPS = ("contiguous", "float", "to", "cuda", "half", "clone", "detach", "relu", "type_as")


@rule("CLW405", "view-for-transpose", "arch.batch_mixing", "likely", "view reshape")
def check(script: Script) -> Iterator[Hit]:
    for call in script.calls("view", "reshape"):
        many = len(call.args) > 2 or any(isinstance(arg, ast.Tuple) and len(arg.elts) > 2 for arg in call.args)
        if not many or not isinstance(call.func, ast.Attribute):
            continue
        dotted = script.dotted(call.func)
        base, sizes = (call.func.value, call.args) if not dotted else (script.arg(call, 0), call.args[1:])
        if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple):
            sizes = sizes[0].elts
        if (dotted and not dotted.startswith("torch.")) or len(sizes) < 3 or base is None:
            continue
        if len(sizes) == 3 and anchors(script, base, sizes):
            yield Hit(call, "mixes channels with image positions: permute(0, 2, 3, 1) first.", "look")
            continue
        if by_sizes(script, base, sizes):
            yield Hit(call, "reinterprets the axes without moving any values: use transpose instead.")
            continue
        shape = unpacked(script, base, script.where(call), 6)
        if shape and swapped(shape, sizes):
            yield Hit(
                call,
                f"reinterprets ({', '.join(shape)}) without moving any values: use transpose or permute.",
            )
        elif len(sizes) == 3 and merges(script, sizes, call) and layout(script, base, script.where(call)) == FIRST:
            yield Hit(call, "merges heads while the head axis still precedes the positions: transpose(1, 2) first.")


def by_sizes(script: Script, base: Any, sizes: list[Any]) -> bool:
    """x.reshape(x.size(0), x.size(2), -1): the third axis before the second, by numbers."""
    name = text(base)
    at: list[int] = []
    for size in sizes:
        if isinstance(size, ast.Call) and isinstance(size.func, ast.Attribute) and size.func.attr == "size":
            place, owner = script.constant(script.arg(size, 0)), text(size.func.value)
        elif isinstance(size, ast.Subscript) and isinstance(size.value, ast.Attribute) and size.value.attr == "shape":
            place, owner = script.constant(size.slice), text(size.value.value)
        elif script.constant(size) == -1:
            continue
        else:
            return False
        if not isinstance(place, int) or owner != name or place < 0:
            return False
        at.append(place)
    rest = len(sizes) == 3 and at == [0, 2] and script.constant(sizes[2]) == -1
    return bool(name) and (rest or (len(at) == len(sizes) and at != sorted(at) and len(set(at)) == len(at)))


def anchors(script: Script, base: Any, sizes: list[Any]) -> bool:
    """conv(x).view(n, -1, classes): the channels, which hold the classes, still stand before the places."""
    last = ast.unparse(sizes[2])
    if ("class" not in last and last not in ("k", "self.k", "4", "nc", "self.nc")) or script.constant(sizes[1]) != -1:
        return False
    where = script.where(base)
    defs = where.block.scope.defs
    if isinstance(base, ast.Name):
        made = reaching(defs[base.id], where) if base.id in defs else []
        base = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    values = script.value(base.func) if isinstance(base, ast.Call) else ()
    return bool(values) and all(value.kind == "instance" and value.name == "torch.nn.Conv2d" for value in values)


def swapped(shape: list[str], sizes: list[Any]) -> bool:
    """Whether the sizes name axes of the tensor in another order than it has them."""
    # Which way round two axes are multiplied into one does not matter.
    at = [
        place for size in sizes for place in sorted(shape.index(part.id) for part in ordered(size) if part.id in shape)
    ]
    if len(at) < 2 or at == sorted(at):
        return heads_first(shape, sizes)
    return len(set(shape)) == len(shape)


def ordered(size: Any) -> list[ast.Name]:
    """The names in a size, `h * w`, in the order in which they are written; of a quotient none."""
    if isinstance(size, ast.Name):
        return [size]
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        return [*ordered(size.left), *ordered(size.right)]
    return []


def heads_first(shape: list[str], sizes: list[Any]) -> bool:
    """view(batch, heads, length, width) of (batch, length, heads * width)."""
    names = [text(size) for size in sizes]
    if len(shape) != 3 or len(names) != 4 or names[0] != shape[0]:
        return False
    width: Any = sizes[3]
    shared = isinstance(width, ast.BinOp) and isinstance(width.op, ast.FloorDiv) and text(width.right) == names[1]
    return (
        names[2] == shape[1]
        and names[1] not in shape
        and names[3] not in shape
        and names[1] != ""
        and ("head" in names[1].lower() or shared)
    )


def unpacked(script: Script, node: Any, where: Where, deep: int) -> list[str]:
    """The names of the axes of a tensor, from `b, t, d = x.shape`, following steps that keep the first axes."""
    if deep == 0:
        return []
    scope = where.block.scope
    if isinstance(node, ast.Name):
        found = named_axes(scope, node.id, where)
        if found:
            return found
        made = reaching(scope.defs[node.id], where) if node.id in scope.defs else []
        if len(made) == 1 and made[0].how == "=" and not made[0].path:
            return unpacked(script, made[0].value, made[0].where, deep - 1)
        return []
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
        return unpacked(script, node.left, where, deep - 1)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS and not script.dotted(node.func):
            return unpacked(script, node.func.value, where, deep - 1)
        if node.args and script.dotted(node.func) in (
            "torch.from_numpy",
            "torch.tensor",
            "torch.as_tensor",
            "torch.relu",
        ):
            return unpacked(script, node.args[0], where, deep - 1)
        values = script.value(node.func)
        if node.args and all(
            value.kind == "instance" and value.name in ("torch.nn.Linear", "torch.nn.Dropout", "torch.nn.LayerNorm")
            for value in values
        ):
            return unpacked(script, node.args[0], where, deep - 1)
    return []


def named_axes(scope: Any, name: str, where: Where) -> list[str]:
    """The targets of `a, b, c = name.shape` or `.size()`, when `name` has not been bound again since."""
    for axis, defs in scope.defs.items():
        for made in defs:
            value = made.value
            if made.how != "=" or made.path != (0,) or made.where.order > where.order:
                continue
            if isinstance(value, ast.Call):
                value = (
                    value.func
                    if isinstance(value.func, ast.Attribute) and value.func.attr == "size" and not value.args
                    else None
                )
            if isinstance(value, ast.Attribute) and value.attr in ("shape", "size") and text(value.value) == name:
                again = [
                    other for other in scope.defs.get(name, []) if made.where.order < other.where.order < where.order
                ]
                names = [
                    other
                    for at in range(5)
                    for other, held in scope.defs.items()
                    if any(one.value is made.value and one.path == (at,) for one in held)
                ]
                if not again and axis in names and all(len(scope.defs[other]) == 1 for other in names):
                    return names
    return []


def merges(script: Script, sizes: list[Any], call: ast.Call) -> bool:
    """Whether the first two of three sizes are the batch and the positions, as they were unpacked from a shape."""
    names = [text(size) for size in sizes[:2]]
    defs = script.scope(call).defs
    for made in defs.get(names[0], []):
        for other in defs.get(names[1], []) if made.path == (0,) else ():
            if other.value is made.value and other.path == (1,) and made.value is not None:
                return True
    return all(size_of(script, size, at) for at, size in enumerate(sizes[:2]))


def size_of(script: Script, size: Any, at: int) -> bool:
    """x.size(0), x.shape[1]"""
    if isinstance(size, ast.Call) and isinstance(size.func, ast.Attribute) and size.func.attr == "size":
        return bool(script.constant(script.arg(size, 0)) == at)
    if isinstance(size, ast.Subscript) and isinstance(size.value, ast.Attribute) and size.value.attr == "shape":
        return bool(script.constant(size.slice) == at)
    return False
