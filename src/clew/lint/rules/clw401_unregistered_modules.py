"""Layers live in a plain list or dict.

What it sees: a list, tuple or dict of layers, written out, comprehended, appended to or made by a function of the
project, kept on self in a class that is a module; layers kept by an object that is no module itself; layers made in
forward.
Why it matters: the module does not see them. They are not in parameters(), so no optimiser trains them; not in
state_dict(), so they are lost on saving; and they stay behind when the model moves to another device.
Silent when: the list is wrapped by ModuleList, ModuleDict or Sequential anywhere, its members are added by
add_module, or each is also kept as an attribute of its own.
Fix: nn.ModuleList or nn.ModuleDict.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.divide import element
from clew.lint.index import Class, Def
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule(
    "CLW401", "unregistered-modules", "arch.unregistered_modules", "certain", "Module LightningModule PreTrainedModel"
)
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        attrs = {name: [grown(from_helper(script, made)) for made in defs] for name, defs in cls.attrs.items()}
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
    yield from in_plain_object(script)
    yield from made_while_running(script)


def in_plain_object(script: Script) -> Iterator[Hit]:
    """self.bank = Bank(...), where Bank holds layers and is no module itself."""
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            for made in defs:
                if made.how != "=" or made.path or not isinstance(made.value, ast.Call):
                    continue
                last = text(made.value.func).rsplit(".", 1)[-1]
                if not last[:1].isupper() or script.dotted(made.value.func).startswith(OUTSIDE):
                    continue
                held = [value.cls for value in script.value(made.value) if value.kind == "instance" and value.cls]
                inner = [(one, layer) for one in held if (layer := bare(script, one))]
                if not inner or not script.is_module(cls) or registered(cls, name):
                    continue
                used = any(text(node) == f"self.{name}" for node in script.loads(name))
                if used and not script.is_module(inner[0][0]):
                    one, layer = inner[0]
                    yield Hit(
                        script.statement(made.node),
                        f"{one.name} is not a module: its layers, such as {layer}, are not registered here.",
                        "likely",
                    )


def bare(script: Script, cls: Class) -> str:
    """A layer that a class without any base keeps on itself."""
    if any(text(base) != "object" for base in cls.node.bases) or "parameters" in cls.methods:
        return ""
    home = script.at_home(cls.where)
    for name, defs in cls.attrs.items():
        for made in defs:
            if made.how == "=" and isinstance(made.value, ast.Call) and not made.path:
                values = home.value(made.value)
                if all(
                    value.kind == "instance" and value.name.startswith("torch.nn.") and weighty(value.name)
                    for value in values
                ):
                    return f"self.{name}"
    return ""


def made_while_running(script: Script) -> Iterator[Hit]:
    """nn.Linear(...)(x) in forward: new weights in every call, which nothing trains."""
    for cls in script.module.classes:
        forward = cls.methods.get("forward") or cls.methods.get("training_step")
        for call in forward.calls if forward is not None else ():
            assert forward is not None
            last = text(call.func).rsplit(".", 1)[-1]
            if not last[:1].isupper() or not weighty(last) or last.endswith(SHELLS):
                continue
            if not script.dotted(call.func).startswith("torch.nn.") or not script.is_module(cls):
                continue
            above = script.parent(call)
            held = isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name)
            name = above.targets[0].id if held else ""  # type: ignore[union-attr]
            used = any(isinstance(other.func, ast.Name) and other.func.id == name and name for other in forward.calls)
            chained = isinstance(above, ast.Call) and above.func is call
            moved = isinstance(above, ast.Attribute) and above.attr in ("to", "cuda")
            if used or chained or (moved and applied_at_once(script, above)):
                yield Hit(call, "is created in every call: its weights are random each time and never trained.")


def applied_at_once(script: Script, node: Any) -> bool:
    """nn.Linear(4, 4).to(x.device)(x)"""
    moved = script.parent(node)
    above = script.parent(moved) if moved is not None else None
    return isinstance(above, ast.Call) and above.func is moved


OUTSIDE = ("torch.", "numpy.", "builtins.", "transformers.", "math.", "copy.")
SHELLS = ("ModuleList", "Parameter", "Sequential")


def from_helper(script: Script, made: Def) -> Def:
    """`self.experts = make_experts(n)`, as if what the function returns stood there."""
    value = made.value
    if made.how != "=":
        return made
    if made.path and isinstance(value, ast.Tuple | ast.List):
        inner = element(value, made.path)
        return made._replace(value=inner, path=()) if isinstance(inner, ast.AST) else made
    if not isinstance(value, ast.Call) or made.path or not isinstance(value.func, ast.Name | ast.Attribute):
        return made
    if text(value.func).rsplit(".", 1)[-1][:1].isupper() or script.dotted(value.func).startswith(OUTSIDE):
        return made  # a class, or a library's function
    values = script.value(value.func)
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    if func is None or len(func.returns) != 1 or func.yields or func.decorators():
        return made
    given, where = func.returns[0]
    script.at_home(where)  # what the function returns is asked for there
    inside = grown(Def(made.name, "=", given, (), where, given))
    return made._replace(value=inside.value) if plain(inside) else made


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
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and made.how == "=" and not made.path:
        sides = (value.left, value.right)  # [first] + [Layer() for _ in range(n)]
        if all(isinstance(side, ast.List | ast.ListComp) for side in sides):
            members = [one for side in sides for one in (side.elts if isinstance(side, ast.List) else [side.elt])]  # type: ignore[attr-defined]
            return made._replace(value=ast.copy_location(ast.List(elts=members, ctx=ast.Load()), value))
    if isinstance(value, ast.Call) and made.how == "=" and not made.path:
        name = text(value.func).rsplit(".", 1)[-1]
        if name in ("OrderedDict", "defaultdict", "dict", "list") and not value.keywords and not value.args[1:]:
            bare = not value.args or name == "defaultdict"
            empty: ast.expr = ast.List(elts=[], ctx=ast.Load()) if name == "list" else ast.Dict(keys=[], values=[])
            if bare:
                return made._replace(value=ast.copy_location(empty, value))
        if name in ("list", "tuple") and len(value.args) == 1 and isinstance(value.args[0], ast.Name):
            return grown(made._replace(value=value.args[0]))
    if (
        made.how == "="
        and isinstance(value, ast.Call)
        and text(value.func) in ("list", "tuple")
        and len(value.args) == 1
    ):
        given = value.args[0]  # tuple(nn.Linear(d, 1) for _ in range(n))
        if isinstance(given, ast.Call) and text(given.func) == "map" and isinstance(given.args[0], ast.Lambda):
            single = ast.List(elts=[given.args[0].body], ctx=ast.Load())  # list(map(lambda k: nn.Linear(d, k), ks))
            return made._replace(value=ast.copy_location(single, value))
        if isinstance(given, ast.GeneratorExp | ast.ListComp):
            each = ast.ListComp(elt=given.elt, generators=given.generators)
            return made._replace(value=ast.copy_location(each, value))
    if isinstance(value, ast.Call) and text(value.func) == "dict" and len(value.args) == 1 and made.how == "=":
        pairs = value.args[0]  # dict(zip(names, [nn.Linear(4, 2) for _ in names]))
        zipped = isinstance(pairs, ast.Call) and text(pairs.func) == "zip" and len(pairs.args) == 2
        return grown(made._replace(value=pairs.args[1])) if zipped and isinstance(pairs, ast.Call) else made
    if made.how != "=" or made.path or not isinstance(made.value, ast.Name):
        return made
    defs = scope.defs.get(made.value.id, [])
    first = defs[0].value if defs and not defs[0].path else None
    if len(defs) == 1 and isinstance(first, ast.ListComp | ast.DictComp):
        return made._replace(value=first)
    name = made.value.id
    if len(defs) == 1 and (isinstance(first, ast.Dict) or (isinstance(first, ast.Call) and text(first.func) == "dict")):
        kept = [value for target, value, _ in scope.module.subscript_sets if text(target.value) == name]
        values = [*(first.values if isinstance(first, ast.Dict) else []), *kept]
        held = ast.Dict(keys=[None] * len(values), values=values)
        return made._replace(value=ast.copy_location(held, made.value))
    if not isinstance(first, ast.List) or any(one.how not in ("=", "aug") for one in defs):
        return made
    more = [one.value.value for one in defs[1:] if one.how == "aug"]
    if len(more) != len(defs) - 1 or not all(isinstance(one, ast.List) for one in more):
        return made
    added = [call.args[0] for call in scope.calls if text(call.func) == f"{name}.append" and len(call.args) == 1]
    for call in scope.calls:
        if text(call.func) == f"{name}.extend" and len(call.args) == 1:
            inner = call.args[0]
            added += inner.elts if isinstance(inner, ast.List) else [getattr(inner, "elt", inner)]
    whole = ast.List(elts=[*first.elts, *(item for one in more for item in one.elts), *added], ctx=ast.Load())
    return made._replace(value=ast.copy_location(whole, made.value))


def container(made: Def) -> str:
    return (
        "a module that keeps layers in a dict"
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
    for call in (one for word in ("append", "extend", "insert") for one in script.module.calls.get(word, [])):
        if (
            text(call.func) == f"self.{name}.append"
            and len(call.args) == 1
            and script.class_of(script.scope(call)) is cls
        ):
            members.append(call.args[0])
        if (
            text(call.func) in (f"self.{name}.extend", f"self.{name}.insert")
            and call.args
            and script.class_of(script.scope(call)) is cls
        ):
            members.append(getattr(call.args[-1], "elt", call.args[-1]))
    for target, value, where in script.module.subscript_sets:
        if text(target.value) == f"self.{name}" and script.class_of(where.block.scope) is cls:
            members.append(value)
    flat = [item for member in members for item in (member.elts if isinstance(member, ast.List) else [member])]
    made_here = [member for member in flat if isinstance(member, ast.Call | ast.Name)]
    layers = [member for member in made_here if is_layer(script, member)]
    return bool(layers) and all(member in layers or without_weights(script, member) for member in made_here)


def without_weights(script: Script, node: Any) -> bool:
    """nn.ReLU() and the like, which may stand among the layers."""
    values = script.value(node)
    return all(value.kind == "instance" and value.name.startswith("torch.nn.") for value in values)


def is_layer(script: Script, node: Any) -> bool:
    """A layer with parameters, made here. What is an attribute of self already is registered there."""
    if isinstance(node, ast.Call) and text(node.func).endswith("deepcopy") and len(node.args) == 1:
        return is_layer(script, node.args[0])
    others: dict[Any, Script] = script.known.get("scripts", {})
    home = next((one for one in (script, *others.values()) if node in one.module.up), script)
    values = home.value(node)
    return all(
        value.kind == "instance"
        and value.const != "self"
        and value.node is not None
        and (
            (value.name.startswith("torch.nn.") and weighty(value.name))
            or (value.cls is not None and script.is_module(value.cls))
        )
        for value in values
    ) and not also_attribute(home, node)


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
