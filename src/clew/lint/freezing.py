"""What happens to the weights of a model one thing after the other: layers put in, everything frozen, parts set free.

Functions of the project that are handed the model, here or in other files, count as if their text stood there.
"""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.data import helper
from clew.lint.index import Scope, Where
from clew.lint.script import Script, text

DEEP = 3


class Effect(NamedTuple):
    """`put` a layer under a name, `freeze` or `free` a part ("" is all of the model, "?" is not known)."""

    kind: str
    part: str
    order: tuple[int, ...]
    node: Any
    sure: bool


def effects(script: Script, scope: Scope, model: str, deep: int = DEEP) -> list[Effect]:
    """What a scope does to the model that it knows under a name."""
    home = script.at_home(Where(scope.body, 0))
    found = [*own(home, scope, model), *through(script, home, scope, model, deep)]
    return sorted(found, key=lambda effect: effect.order)


def own(home: Script, scope: Scope, model: str) -> Iterator[Effect]:
    for target, value, where in scope.attr_sets:
        said = text(target)
        if target.attr == "requires_grad":
            yield from switched(home, where, text(target.value), value, model, target)
        elif said.startswith(f"{model}.") and isinstance(value, ast.Call):
            yield Effect("put", said[len(model) + 1 :], (where.order,), target, plain(where))
    for item, value, where in scope.module.subscript_sets:
        said = text(item.value)
        if where.block.scope is scope and said.startswith(f"{model}.") and isinstance(value, ast.Call):
            yield Effect("put", said[len(model) + 1 :], (where.order,), item, plain(where))
    for call in scope.calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        where = home.where(call)
        if call.func.attr == "requires_grad_":
            given = call.args[0] if call.args else ast.Constant(True)
            yield from switched(home, where, text(call.func.value), given, model, call)
        elif call.func.attr in ("add_module", "register_module", "append") and call.args:
            said = text(call.func.value)
            if said == model or said.startswith(f"{model}."):
                name = call.args[0].value if isinstance(call.args[0], ast.Constant) else said[len(model) + 1 :]
                yield Effect("put", str(name), (where.order,), call, plain(where))


def switched(home: Script, where: Where, what: str, value: Any, model: str, node: Any) -> Iterator[Effect]:
    """p.requires_grad = False in a loop over parameters, model.part.requires_grad_(True)."""
    known = isinstance(value, ast.Constant) and isinstance(value.value, bool)
    kind = "free" if not known or value.value else "freeze"
    if what == model or what.startswith(f"{model}."):
        yield Effect(kind, what[len(model) + 1 :], (where.order,), node, plain(where))
        return
    for block in where.block.chain():
        loop = block.node
        if block.kind != "for" or not isinstance(loop, ast.For):
            continue
        names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
        if what.split(".")[0] not in names:
            continue
        over = loop.iter
        while isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.args:
            over = over.args[0]  # list(...), enumerate(...)
        base = over.func.value if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) else over
        said = text(base)
        if said == model or said.startswith(f"{model}."):
            part = said[len(model) + 1 :]
            whole = where.block is block  # every parameter, without a test
            if kind == "free" and not whole and not part:
                part = "?"
            if whole or kind == "free":
                yield Effect(kind, part.removesuffix("[]"), (home.where(loop).order,), loop, plain(home.where(loop)))
        return


def plain(where: Where) -> bool:
    return not any(block.kind in ("if", "else", "case", "except") for block in where.block.chain())


def through(script: Script, home: Script, scope: Scope, model: str, deep: int) -> Iterator[Effect]:
    if deep == 0:
        return
    for call in scope.calls:
        places = [at for at, arg in enumerate(call.args) if text(arg) == model]
        words = [word.arg for word in call.keywords if word.arg and text(word.value) == model]
        own_method = isinstance(call.func, ast.Attribute) and text(call.func.value) == model
        mine = bool(scope.me) and isinstance(call.func, ast.Attribute) and text(call.func.value) == scope.me
        mine = mine and model.startswith(f"{scope.me}.")
        if not places and not words and not own_method and not mine:
            continue
        where = home.where(call)
        func = helper(script, call, where)
        if func is None or func is scope:
            continue
        offset = 1 if func.me else 0
        if own_method:
            inner = func.me
        elif mine and not places and not words:
            inner = f"{func.me}{model[len(scope.me) :]}" if func.me else ""
        elif words:
            inner = words[0] or ""
        else:
            inner = func.params[places[0] + offset] if places[0] + offset < len(func.params) else ""
        if not inner:
            continue
        for effect in effects(script, func, inner, deep - 1):
            sure = effect.sure and plain(where)
            yield Effect(effect.kind, effect.part, (where.order, *effect.order), call, sure)


def freezes(script: Script, call: ast.Call, where: Where, deep: int = DEEP - 1) -> bool:
    """Whether a call leads to a function of the project that switches gradients; asked first, as it is cheap."""
    func = helper(script, call, where)
    known: dict[tuple[Scope, int], bool] = script.known.setdefault("freezes", {})
    if func is not None and (func, deep) not in known:
        known[func, deep] = False
        sets = any(target.attr == "requires_grad" for target, _, _ in func.attr_sets)
        place = func.module.where
        known[func, deep] = sets or any(
            (isinstance(one.func, ast.Attribute) and one.func.attr == "requires_grad_")
            or (deep > 0 and freezes(script, one, place(one), deep - 1))
            for one in func.calls
        )
    return func is not None and known[func, deep]


def frozen_after(found: list[Effect]) -> tuple[Effect, Effect] | None:
    """A layer that was put in and then frozen with the rest, and nothing sets it free afterwards."""
    for at, freeze in enumerate(found):
        if freeze.kind != "freeze" or freeze.part or not freeze.sure:
            continue
        put = [one for one in found[:at] if one.kind == "put" and one.sure]
        later = found[at + 1 :]
        for one in reversed(put):
            first = one.part.split(".")[0].removesuffix("[]")
            saved = any(
                (other.kind == "free" and other.part.split(".")[0].removesuffix("[]") in ("", "?", first))
                or (other.kind == "put")
                for other in later
            )
            if not saved:
                return one, freeze
    return None
