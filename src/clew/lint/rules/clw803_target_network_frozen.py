"""The target network is never updated.

What it sees: a network kept under a name with target in it, made as a copy of another or with the same class, used to
compute targets, and nothing in the file that writes to it again, or only a method that nothing calls; a target, old,
reference or teacher network that is the trained network itself.
Why it matters: targets come from a random network for ever. The loss falls, but towards a useless target.
Silent when: load_state_dict, a soft update, a copy_ or any call that takes the network by name updates it.
Fix: copy the online weights every so many steps, or average them in at every step.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.divide import element
from clew.lint.index import Def, Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TARGET = re.compile(
    r"(^|_)target(_?(net|network|model|critic|actor|q|qnet|q_network|policy|encoder)\w*)?$|(^|_)(q|critic|actor|net|model|qf\d?)_?target$|target_(net|network|q|model|critic)",
    re.I,
)


@rule(
    "CLW803",
    "target-network-frozen",
    "rl.target_network",
    "likely",
    "deepcopy Module Sequential load_state_dict backward",
)
def check(script: Script) -> Iterator[Hit]:
    yield from itself(script)
    if not script.mentions("backward"):
        return
    yield from aliases(script)
    for name, made in networks(script):
        if isinstance(made.value, ast.Name | ast.Attribute):
            yield Hit(
                script.statement(made.node),
                f"{name} is {text(made.value)} itself, not a copy: the targets move with every step.",
            )
        elif not updated(script, name, made):
            yield Hit(
                script.statement(made.node),
                f"{name} is created here and never updated: the targets stay at their initial values.",
            )


# Names that speak of a copy only when something was copied.
COPIED = re.compile(r"(_|\b)(t|tgt|targ|targs?|bar|prime|slow|tar|target\w*)$|^(tgt|targ|tar)_", re.I)
ALIAS = re.compile(r"(^|_)(old|prev|previous|behaviou?r|ref|reference|teacher|ema|shadow|tgt|targ|frozen)(_|$)", re.I)


def copied(made: Def) -> bool:
    """copy.deepcopy(...), also with something called on it."""
    node = element(made.value, made.path)
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "deepcopy":
        node = node.func.value
    return isinstance(node, ast.Call) and text(node.func) in ("copy.deepcopy", "deepcopy")


def aliases(script: Script) -> Iterator[Hit]:
    """self.policy_old = self.policy: the same object under a second name."""
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            if len(defs) == 1 and (ALIAS.search(name) or (TARGET.search(name) and not is_network(script, defs[0]))):
                yield from same(script, f"self.{name}", defs[0])
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if len(defs) == 1 and ALIAS.search(name):
                yield from same(script, name, defs[0])


def same(script: Script, name: str, made: Def) -> Iterator[Hit]:
    value = made.value
    if made.how != "=" or made.path or not isinstance(value, ast.Name | ast.Attribute) or not text(value):
        return
    other = text(value)
    if ALIAS.search(other.rsplit(".", 1)[-1]) or TARGET.search(other.rsplit(".", 1)[-1]) or other.count(".") > 1:
        return
    scope = made.where.block.scope
    if isinstance(value, ast.Name) and value.id in scope.params and not trains_it(script, other, made):
        return
    if not is_network(script, made) and not trains_it(script, other, made):
        return
    asked = {text(script.parent(node)) for node in script.loads(name) if text(node) == name}
    if f"{name}.load_state_dict" in asked or trains_it(script, other, made):
        cause = "rl.kl_spike" if re.search(r"old|prev|behav", name, re.I) else ""
        told = f"{name} is {other} itself, not a copy: it changes with every step."
        yield Hit(script.statement(made.node), told, cause=cause)


def trains_it(script: Script, name: str, made: Def) -> bool:
    """Whether an optimiser of the same function or object is given the parameters of this network."""
    cls = script.class_of(made.where.block.scope)
    for call in script.calls("parameters"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if base is None or text(base) != name or isinstance(script.statement(call), ast.For):
            continue
        at = script.scope(call)
        if at is made.where.block.scope or (cls is not None and script.class_of(at) is cls and "." in name):
            return "optim" in ast.unparse(script.statement(call)).lower() or "Adam" in ast.unparse(
                script.statement(call)
            )
    return False


def synchronised(script: Script) -> Iterator[tuple[str, Def]]:
    """Networks under any name that are given the weights of another of the same object and used for values of the next
    state: self.frozen.load_state_dict(self.online.state_dict())."""
    if not script.mentions("gamma", "discount", "GAMMA"):
        return
    for call in script.calls("load_state_dict"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        given = call.args[0] if call.args else None
        name, scope = text(base), script.scope(call)
        source = text(given.func.value) if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else ""
        cls = script.class_of(scope)
        if not source or source == name or source.split(".")[0] != name.split(".")[0] or cls is None:
            continue
        defs = cls.attrs.get(name.partition(".")[2], [])
        if name.startswith(f"{scope.me}.") and len(defs) == 1 and not TARGET.search(name) and quiet(script, name):
            yield name, defs[0]


def quiet(script: Script, name: str) -> bool:
    """Whether a network is applied, and only where no gradient is asked for."""
    uses = [node for node in script.loads(name) if text(node) == name]
    calls = [above for node in uses if isinstance(above := script.parent(node), ast.Call) and above.func is node]
    return bool(calls) and all(
        script.grad_off(script.where(call)) is not None
        or (isinstance(above := script.parent(call), ast.Attribute) and above.attr == "detach")
        for call in calls
    )


def networks(script: Script) -> Iterator[tuple[str, Def]]:
    """Target networks made in this file, as variables or attributes."""
    yield from dict(synchronised(script)).items()
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            if not TARGET.search(name) and COPIED.search(name) and len(defs) == 1 and copied(defs[0]):
                yield f"self.{name}", defs[0]
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if not TARGET.search(name) and COPIED.search(name) and len(defs) == 1 and copied(defs[0]):
                yield name, defs[0]
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if TARGET.search(name) and len(defs) == 1 and is_network(script, defs[0]):
                yield name, defs[0]
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            if TARGET.search(name) and len(defs) == 1 and is_network(script, defs[0]):
                yield f"self.{name}", defs[0]


def is_network(script: Script, made: Def) -> bool:
    if made.how == "=" and made.path and isinstance(element(made.value, made.path), ast.Call):
        return synced(script, made)
    if made.how != "=" or made.path or not isinstance(made.value, ast.Call | ast.Name | ast.Attribute):
        return False
    values = script.values.value(made.value, made.where, None)
    if copied(made):
        return True
    return all(
        value.kind == "instance"
        and (
            (value.name.startswith("torch.nn.") and not value.name.endswith("Loss"))
            or (value.cls is not None and script.is_module(value.cls))
        )
        for value in values
    )


def synced(script: Script, made: Def) -> bool:
    """self.a_target, self.c_target = make(), make(), given the weights of another at once."""
    base = f"{made.where.block.scope.me}.{made.name}" if made.where.block.scope.me else made.name
    return copied(made) or any(
        isinstance(call.func, ast.Attribute) and text(call.func.value) in (base, made.name)
        for call in script.calls("load_state_dict")
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
            yield Hit(call, f"copies {text(base)} onto itself: it never follows the trained network.")


def uncalled(script: Script, scope: Scope) -> bool:
    """Whether a method is called nowhere in a project that does use its class from another file."""
    cls = scope.cls
    if cls is None or scope.name.startswith("__") or scope.name in ("forward", "update", "learn", "train", "step"):
        return False
    calls = [node for node in script.loads(scope.name) if isinstance(node, ast.Attribute) and node.attr == scope.name]
    if any(not (script.scope(node).cls is cls and script.scope(node).name == "__init__") for node in calls):
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
