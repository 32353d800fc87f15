"""The same layer is repeated instead of several layers made.

What it sees: a list of layers multiplied, `[nn.Linear(8, 8)] * 4`, that becomes a ModuleList, a Sequential or an
attribute.
Why it matters: all entries are one object with one set of weights. The model has a fraction of the parameters it
seems to have, and looks deep while it is not.
Silent when: the members are made by a comprehension or are not layers.
Fix: [nn.Linear(8, 8) for _ in range(4)].
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.rules.clw401_unregistered_modules import weighty
from clew.lint.script import Hit, Script


@rule("CLW408", "shared-layers", "arch.capacity", "likely", "Module ModuleList Sequential")
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.nodes.get(ast.BinOp, []):
        if not isinstance(node.op, ast.Mult):
            continue
        held, count = (node.left, node.right) if isinstance(node.left, ast.List) else (node.right, node.left)
        if not isinstance(held, ast.List) or not held.elts or script.constant(count) == 1:
            continue
        if all(isinstance(item, ast.Name) and by_name(script, item) for item in held.elts):
            yield Hit(node, "repeats one layer: all entries share the same weights.")
        elif all(isinstance(item, ast.Call) and made(script, item) for item in held.elts):
            text = f"[{script.source(held.elts[0])} for _ in range({script.source(count)})]"
            fix = (
                Fix("create each layer separately", False, (script.replace(node, text),))
                if len(held.elts) == 1
                else None
            )
            yield Hit(node, "repeats one layer: all entries share the same weights.", fix=fix)


def by_name(script: Script, node: ast.Name) -> bool:
    """block = Block(d); [block] * n"""
    if "shar" in node.id.lower() or "tied" in node.id.lower():
        return False
    values = script.value(node)
    above = script.parent(script.parent(script.parent(node) or node) or node)
    while isinstance(above, ast.Starred):
        above = script.parent(above)
    kept = isinstance(above, ast.Call) and script.dotted(above.func) in ("torch.nn.ModuleList", "torch.nn.Sequential")
    return kept and all(value.kind == "instance" and isinstance(value.node, ast.Call) for value in values)


def made(script: Script, call: ast.Call) -> bool:
    values = script.value(call)
    return all(
        value.kind == "instance"
        and value.node is call
        and (
            (value.name.startswith("torch.nn.") and weighty(value.name))
            or (value.cls is not None and script.is_module(value.cls))
        )
        for value in values
    )
