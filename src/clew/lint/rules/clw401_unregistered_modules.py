"""Layers live in a plain list or dict.

What it sees: a list, tuple or dict of layers, written out, comprehended or appended to, kept on self in a class that
is a module.
Why it matters: the module does not see them. They are not in parameters(), so no optimiser trains them; not in
state_dict(), so they are lost on saving; and they stay behind when the model moves to another device.
Silent when: the list is wrapped by ModuleList, ModuleDict or Sequential anywhere, its members are added by
add_module, or each is also kept as an attribute of its own.
Fix: nn.ModuleList or nn.ModuleDict.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.index import Class, Def
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule(
    "CLW401", "unregistered-modules", "arch.unregistered_modules", "certain", "Module LightningModule PreTrainedModel"
)
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        attrs = {name: [grown(made) for made in defs] for name, defs in cls.attrs.items()}
        suspects = {name: defs for name, defs in attrs.items() if any(plain(made) for made in defs)}
        if not suspects or not script.is_module(cls):
            continue
        for name, defs in suspects.items():
            if (
                all(plain(made) for made in defs)
                and holds_layers(script, cls, name, defs)
                and not registered(cls, name)
            ):
                made = next(made for made in defs if plain(made))
                yield Hit(
                    script.statement(made.node),
                    f"the layers in self.{name} are not registered: {container(made)} sees none of their parameters.",
                    fix=fix(script, made) if made in cls.attrs[name] else None,
                )


def plain(made: Def) -> bool:
    return (
        made.how == "="
        and isinstance(made.value, ast.List | ast.Dict | ast.ListComp | ast.DictComp | ast.Tuple)
        and not made.path
    )


def grown(made: Def) -> Def:
    """`self.layers = layers`, as if the list stood there: its members and what was appended to it."""
    scope = made.where.block.scope
    value = made.value
    if (
        made.how == "="
        and isinstance(value, ast.Call)
        and text(value.func) in ("list", "tuple")
        and len(value.args) == 1
    ):
        given = value.args[0]  # tuple(nn.Linear(d, 1) for _ in range(n))
        if isinstance(given, ast.GeneratorExp | ast.ListComp):
            each = ast.ListComp(elt=given.elt, generators=given.generators)
            return made._replace(value=ast.copy_location(each, value))
    if made.how != "=" or made.path or not isinstance(made.value, ast.Name):
        return made
    defs = scope.defs.get(made.value.id, [])
    if len(defs) != 1 or not isinstance(defs[0].value, ast.List) or defs[0].path:
        return made
    name = made.value.id
    added = [call.args[0] for call in scope.calls if text(call.func) == f"{name}.append" and len(call.args) == 1]
    whole = ast.List(elts=[*defs[0].value.elts, *added], ctx=ast.Load())
    return made._replace(value=ast.copy_location(whole, made.value))


def container(made: Def) -> str:
    return (
        "a module that keeps them in a dict"
        if isinstance(made.value, ast.Dict | ast.DictComp)
        else "a module that keeps them in a list"
    )


def holds_layers(script: Script, cls: Class, name: str, defs: list[Def]) -> bool:
    members: list[Any] = []
    for made in defs:
        value = made.value
        if isinstance(value, ast.ListComp):
            members.append(value.elt)
        elif isinstance(value, ast.DictComp):
            members.append(value.value)
        elif isinstance(value, ast.Dict):
            members += value.values
        else:
            members += value.elts
    for call in script.module.calls.get("append", []):
        if (
            text(call.func) == f"self.{name}.append"
            and len(call.args) == 1
            and script.class_of(script.scope(call)) is cls
        ):
            members.append(call.args[0])
    for target, value, where in script.module.subscript_sets:
        if text(target.value) == f"self.{name}" and script.class_of(where.block.scope) is cls:
            members.append(value)
    made_here = [member for member in members if isinstance(member, ast.Call | ast.Name)]
    return bool(made_here) and all(is_layer(script, member) for member in made_here)


def is_layer(script: Script, node: Any) -> bool:
    """A layer with parameters, made here. What is an attribute of self already is registered there."""
    values = script.value(node)
    return all(
        value.kind == "instance"
        and value.const != "self"
        and value.node is not None
        and (
            (value.name.startswith("torch.nn.") and weighty(value.name))
            or (value.cls is not None and script.is_module(value.cls))
        )
        for value in values
    ) and not also_attribute(script, node)


def weighty(dotted: str) -> bool:
    last = dotted.rsplit(".", 1)[-1]
    return not last.startswith("Convert") and last.startswith(
        (
            "Linear",
            "Conv",
            "LSTM",
            "GRU",
            "RNN",
            "Embedding",
            "BatchNorm",
            "LayerNorm",
            "Transformer",
            "Multihead",
            "Sequential",
            "Bilinear",
            "Parameter",
            "ModuleList",
            "GroupNorm",
            "LazyLinear",
        )
    )


def also_attribute(script: Script, node: Any) -> bool:
    """Whether the same object is kept under a name of its own: `self.a = layer; self.all = [layer]`."""
    if not isinstance(node, ast.Name):
        return False
    scope = script.scope(node)
    cls = script.class_of(scope)
    return cls is not None and any(
        isinstance(made.value, ast.Name) and made.value.id == node.id for defs in cls.attrs.values() for made in defs
    )


REGISTERING = ("ModuleList", "ModuleDict", "Sequential", "ParameterList", "ParameterDict")


def registered(cls: Class, name: str) -> bool:
    """Whether the class hands the list, or its members, to something that registers them."""
    for method in cls.methods.values():
        for call in method.calls:
            last = text(call.func).rsplit(".", 1)[-1]
            if last in ("add_module", "register_module", "setattr", "register_parameter"):
                return True
            if last in REGISTERING and any(mentions(arg, name) or named(arg, cls, name) for arg in call.args):
                return True
    return False


def named(node: ast.AST, cls: Class, name: str) -> bool:
    """Whether the local list that the attribute was set to is meant."""
    local = {made.value.id for made in cls.attrs[name] if isinstance(made.value, ast.Name)}
    return any(isinstance(part, ast.Name) and part.id in local for part in ast.walk(node))


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == name for part in ast.walk(node))


def fix(script: Script, made: Def) -> Fix:
    kind = "nn.ModuleDict" if isinstance(made.value, ast.Dict | ast.DictComp) else "nn.ModuleList"
    inner = script.source(made.value)
    text_ = f"{kind}()" if inner in ("[]", "{}") else f"{kind}({inner})"
    return Fix(f"keep them in {kind}", False, (script.replace(made.value, text_),))
