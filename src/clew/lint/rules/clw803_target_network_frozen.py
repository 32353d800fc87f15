"""The target network is never updated.

What it sees: a network kept under a name with target in it, made as a copy of another or with the same class, used to
compute targets, and nothing in the file that writes to it again; a target network that is the online network itself.
Why it matters: targets come from a random network for ever. The loss falls nicely, towards nothing of use.
Silent when: load_state_dict, a soft update, a copy_ or any call that takes the network by name updates it.
Fix: copy the online weights every so many steps, or average them in at every step.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.index import Def, Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TARGET = re.compile(
    r"(^|_)target(_?(net|network|model|critic|actor|q|qnet|q_network|policy|encoder)\w*)?$|(^|_)(q|critic|actor|net|model|qf\d?)_?target$|target_(net|network|q|model|critic)",
    re.I,
)


@rule("CLW803", "target-network-frozen", "rl.target_network", "likely", "deepcopy Module Sequential load_state_dict")
def check(script: Script) -> Iterator[Hit]:
    yield from itself(script)
    if not script.mentions("backward"):
        return
    for name, made in networks(script):
        if isinstance(made.value, ast.Name | ast.Attribute):
            yield Hit(
                script.statement(made.node),
                f"{name} is {text(made.value)} itself, not a copy: the targets move with every step.",
            )
        elif not updated(script, name, made):
            yield Hit(
                script.statement(made.node),
                f"{name} is made here and nothing updates it afterwards: targets stay those of the start.",
            )


def networks(script: Script) -> Iterator[tuple[str, Def]]:
    """Target networks made in this file, as variables or attributes."""
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if TARGET.search(name) and len(defs) == 1 and is_network(script, defs[0]):
                yield name, defs[0]
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            if TARGET.search(name) and len(defs) == 1 and is_network(script, defs[0]):
                yield f"self.{name}", defs[0]


def is_network(script: Script, made: Def) -> bool:
    if made.how != "=" or made.path or not isinstance(made.value, ast.Call | ast.Name | ast.Attribute):
        return False
    values = script.values.value(made.value, made.where, None)
    if isinstance(made.value, ast.Call) and text(made.value.func) in ("copy.deepcopy", "deepcopy"):
        return True
    return all(
        value.kind == "instance"
        and (
            (value.name.startswith("torch.nn.") and not value.name.endswith("Loss"))
            or (value.cls is not None and script.is_module(value.cls))
        )
        for value in values
    )


def own_state(script: Script, node: ast.AST) -> bool:
    """target.load_state_dict(target.state_dict())"""
    call = script.parent(script.parent(node) or node)
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    return isinstance(given, ast.Call) and text(given.func) == f"{text(node)}.state_dict"


def itself(script: Script) -> Iterator[Hit]:
    for call in script.calls("load_state_dict"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if base is not None and text(base) and TARGET.search(text(base).rsplit(".", 1)[-1]) and own_state(script, base):
            yield Hit(call, f"copies {text(base)} onto itself: it never follows the network that learns.")


def uncalled(script: Script, scope: Scope) -> bool:
    """Whether a method is called nowhere in a project that does use its class from another file."""
    cls = scope.cls
    if cls is None or scope.name.startswith("__") or scope.name in ("forward", "update", "learn", "train", "step"):
        return False
    if any(isinstance(node, ast.Attribute) and node.attr == scope.name for node in script.loads(scope.name)):
        return False
    path = script.module.path
    used = script.project.neighbours_with(path, cls.name) > 0
    return used and script.project.neighbours_with(path, f".{scope.name}") == 0


def updated(script: Script, name: str, made: Def) -> bool:
    """Whether anything writes to the network after it was made. Its first synchronisation, where it is made, does not
    count."""
    last = name.rsplit(".", 1)[-1]
    for node in script.loads(last):
        # A local variable `target` is not the network that is kept as self.target.
        if isinstance(node, ast.Name) == name.startswith("self."):
            continue
        above: Any = script.module.up[node]
        if uncalled(script, script.scope(node)):
            continue
        if isinstance(above, ast.Attribute):
            verb = above.attr
            if verb in ("eval", "to", "cuda", "requires_grad_", "train", "state_dict", "forward"):
                continue
            if verb == "load_state_dict" and own_state(script, node):
                continue
            if verb == "load_state_dict":
                where = script.where(node)
                if (
                    where.block.scope is made.where.block.scope
                    and not where.block.loops()
                    and made.where.block.scope.kind != "module"
                ):
                    continue
                if where.block.scope is made.where.block.scope and where.block is made.where.block:
                    continue
            return True
        if isinstance(above, ast.Call) and above.func is node:
            continue
        return True
    return False
