"""A layer is replaced after the optimiser took the parameters.

What it sees: an optimiser over model.parameters(), made there or by a function of the project, then a new layer
assigned to an attribute or an index of that model, again in either way, and no optimiser made after it.
Why it matters: the new layer's parameters are in no optimiser. Usually it is the new head, so the one part that must
be trained stays at its random start.
Silent when: a later optimiser or add_param_group takes the new parameters, or the change lies on another branch.
Fix: change the model first.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.flow import apart
from clew.lint.given import argument
from clew.lint.index import Class, Scope, Where
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script, text


@rule(
    "CLW213",
    "model-changed-after-optimizer",
    "train.params_not_in_optimizer",
    "certain",
    "backward Linear " + " ".join(OPTIMIZERS),
)
def check(script: Script) -> Iterator[Hit]:
    made = [
        (owner(script.arg(call, 0, "params"), script), script.where(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    ]
    made = [(model, where) for model, where in (*made, *built_elsewhere(script)) if model]
    if not made:
        return
    for scope in script.module.scopes:
        for target, value, where in scope.attr_sets:
            yield from late(script, target, target.value, value, where, made)
    for name, at in made:
        yield from by_helper(script, name, at, made)
    yield from grown(script, made)
    for item, value, where in script.module.subscript_sets:
        yield from late(script, item, item.value, value, where, made)
    for call in script.calls("append", "add_module", "extend", "insert"):
        if isinstance(call.func, ast.Attribute) and call.args:
            yield from late(script, call, call.func.value, call.args[-1], script.where(call), made)


def grown(script: Script, made: list[tuple[str, Where]]) -> Iterator[Hit]:
    """net.grow(), which appends layers to the net, after the optimiser took its parameters."""
    if script.mentions("add_param_group"):
        return
    for model, at in made:
        scope = at.block.scope
        for call in scope.calls:
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            where = script.where(call)
            if base is None or text(base) != model or where.order <= at.order:
                continue
            if any(other == model and place.order > where.order for other, place in made):
                continue
            func = helper(script, call, where)
            adds = [
                one
                for one in (func.calls if func is not None and func.me else ())
                if isinstance(one.func, ast.Attribute)
                and one.func.attr in ("append", "extend", "insert", "add_module")
                and text(one.func.value).startswith("self")
                and one.args
                and isinstance(one.args[-1], ast.Call)
                and LAYERS.match(text(one.args[-1].func).rsplit(".", 1)[-1])
            ]
            if adds:
                yield Hit(call, f"adds layers to {model} after the optimiser took its parameters.", "likely")
                break


def built_elsewhere(script: Script) -> Iterator[tuple[str, Where]]:
    """optimizer = make_optimizer(model, lr), engine = Engine(model): a function or class of the project gives an
    optimiser the parameters of what it is given."""
    put = any(
        isinstance(value, ast.Call)
        and text(target.value).split(".")[0] not in ("", scope.me)
        and LAYERS.match(text(value.func).rsplit(".", 1)[-1])
        for scope in script.module.scopes
        for target, value, _ in scope.attr_sets
    )
    if not put and not script.mentions("backward"):
        return
    for node in script.module.statements.get(ast.Assign, []):
        call = node.value
        if not isinstance(call, ast.Call) or not MAKES.search(text(call.func).rsplit(".", 1)[-1]):
            continue
        for value in script.value(call.func):
            if value.kind == "function" and value.func is not None:
                func, held = value.func, from_function(script, value.func)
            elif value.kind == "class" and value.cls is not None and "__init__" in value.cls.methods:
                func, held = value.cls.methods["__init__"], from_class(script, value.cls)
            else:
                continue
            for name in held:
                given = text(argument(call, func, name))
                if given:
                    yield given, script.where(node)


def from_function(script: Script, func: Scope) -> set[str]:
    """The parameters whose weights an optimiser holds that a function returns."""
    found: set[str] = set()
    for given, at in func.returns:
        for part in given.elts if isinstance(given, ast.Tuple) else [given]:
            for value in script.values.value(part, at, None):
                if value.kind == "instance" and value.name.startswith("torch.optim.") and "sched" not in value.name:
                    found.add(whole(script.at_home(at), value.node))
    return found & set(func.params)


def from_class(script: Script, cls: Class) -> set[str]:
    """The parameters of a constructor whose weights an optimiser holds that the object keeps."""
    found: set[str] = set()
    for held in cls.attrs.values():
        value = held[0].value if len(held) == 1 else None
        said = text(value.func).lower() if isinstance(value, ast.Call) else ""
        if not (said.startswith(("torch.optim.", "optim.")) or "opt" in said or said.rsplit(".", 1)[-1] in LOWER):
            continue
        for one in script.values.defined(held[0], None):
            if one.kind != "instance" or not one.name.startswith("torch.optim.") or "sched" in one.name:
                continue
            name = whole(script.at_home(held[0].where), one.node)
            kept = cls.attrs.get(name.removeprefix("self."), []) if name.startswith("self.") else []
            source = kept[0].value if len(kept) == 1 and not kept[0].path else None
            found.add(source.id if isinstance(source, ast.Name) else name)
    return found & set(cls.methods["__init__"].params)


LOWER = tuple(name.lower() for name in OPTIMIZERS)


def whole(script: Script, made: ast.Call) -> str:
    """The one model that all of an optimiser's groups come from."""
    given = Script.arg(made, 0, "params")
    if isinstance(given, ast.List) and all(isinstance(item, ast.Dict) for item in given.elts):
        inner = [part for part in ast.walk(given) if isinstance(part, ast.Call)]
        names = {owner(part) for part in inner}
        return names.pop() if len(names) == 1 else ""
    return owner(given, script)


LAYERS = re.compile(r"Linear|Sequential|Conv|Embedding|MLP|ModuleList|\w*(Head|Classifier|Decoder)")
MAKES = re.compile(r"(?i:opt|build|make|create|get_|config|setup|prepare|param)|^[A-Z]")


def late(
    script: Script, target: Any, base: Any, value: Any, where: Where, made: list[tuple[str, Where]]
) -> Iterator[Hit]:
    said = text(base)
    if not said or not is_layer(script, value):
        return
    for model, at in made:
        below = said == model or said.startswith(f"{model}.")
        if below and at.block.scope is not where.block.scope and model.startswith("self."):
            where = called_from(script, where, at) or where
        if (
            not below
            or at.block.scope is not where.block.scope
            or at.order >= where.order
            or apart(at.block, where.block.chain())
        ):
            continue
        later = [other for name, other in made if name == model and other.order > where.order]
        if not later and not adds(script, where):
            yield Hit(
                script.statement(target),
                f"the optimiser was built from the old parameters of {model}; the new layer's are in no optimiser.",
            )
            return


def by_helper(script: Script, model: str, at: Where, made: list[tuple[str, Where]]) -> Iterator[Hit]:
    """A function of the project that puts a new layer into the model it is given, called after the optimiser."""
    for call in at.block.scope.calls:
        where = script.where(call)
        given = [arg for arg in (*call.args, *(word.value for word in call.keywords)) if text(arg) == model]
        own = text(call.func).startswith(f"{model}.") and text(call.func).count(".") == model.count(".") + 1
        near = where.block is at.block or (where.block.kind == "for" and where.block.parent is at.block)
        if (not given and not own) or where.order <= at.order or not near or stepped_in(script, where):
            continue
        if any(name == model and other.order > where.order for name, other in made) or adds(script, where):
            continue
        values = script.value(call.func)
        func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
        if func is not None and text(call.func) == f"{model}.{func.name}":
            if func.cls is not None and replaces(script, func, func.me):
                yield Hit(
                    call,
                    f"the optimiser was built from the old parameters of {model}; the new layer's are in no optimiser.",
                )
            continue
        name = next((name for name in func.params if argument(call, func, name) is given[0]), "") if func else ""
        if func is not None and name and replaces(script, func, name):
            yield Hit(
                call,
                f"the optimiser was built from the old parameters of {model}; the new layer's are in no optimiser.",
            )


def replaces(script: Script, func: Scope, name: str) -> bool:
    """Whether a function always sets a layer on its parameter."""
    held = [(target.value, value, where) for target, value, where in func.attr_sets]
    held += [
        (item.value, value, where) for item, value, where in func.module.subscript_sets if where.block.scope is func
    ]
    for call in func.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "add_module", "register_module"):
            held += [(call.func.value, arg, func.module.where(call)) for arg in call.args[-1:]]
        elif text(call.func) == "setattr" and len(call.args) == 3:
            held.append((call.args[0], call.args[2], func.module.where(call)))
    return any(
        of_each(where, base, name, func)
        and isinstance(value, ast.Call)
        and any(
            one.kind == "instance"
            and (one.name.startswith("torch.nn.") or (one.cls is not None and script.is_module(one.cls)))
            for one in script.values.value(value, where, None)
        )
        for base, value, where in held
    )


def of_each(where: Where, base: Any, name: str, func: Scope) -> bool:
    """model.fc in the function itself, or block.proj for every block in model.blocks."""
    first = text(base).split(".")[0]
    if where.block is func.body:
        return first == name
    loop = where.block.node
    if where.block.parent is not func.body or not isinstance(loop, ast.For) or text(loop.target) != first:
        return False
    over = loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter
    return text(over).startswith(f"{name}.")


def stepped_in(script: Script, where: Where) -> bool:
    """Whether the loop that a place lies in trains: a model that grows as it goes has its own ways."""
    loops = where.block.loops()
    return bool(loops) and any(
        isinstance(call.func, ast.Attribute) and call.func.attr in ("backward", "step") and loops[0] in chain
        for call in where.block.scope.calls
        for chain in [script.where(call).block.chain()]
    )


def is_layer(script: Script, node: Any) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return any(
        value.kind == "instance"
        and (value.name.startswith("torch.nn.") or (value.cls is not None and script.is_module(value.cls)))
        for value in script.value(node)
    )


def adds(script: Script, where: Where) -> bool:
    return any(script.where(call).order > where.order for call in script.calls("add_param_group"))


def called_from(script: Script, where: Where, at: Where) -> Where | None:
    """When a method that changes the model is called by the one that made the optimiser, the place of that call."""
    for call, place in script.project.callers(where.block.scope):
        if place.block.scope is at.block.scope and place.order > at.order and call in script.module.up:
            return place
    return None
