"""All parameters are frozen and then handed to the optimiser.

What it sees: requires_grad switched off for all of a model's parameters, then an optimiser over the same model, with no
new layer and nothing switched on again between; a new layer put into a model before all of it is frozen; a part frozen
for a first stage of training that nothing unfreezes before the next.
Why it matters: what is frozen does not learn, and often nothing else is left to train. The usual slips are freezing
the backbone after its new head was put in, and a second stage that trains the head alone once more.
Silent when: a layer is replaced after freezing, anything is unfrozen, or the freezing is conditional or selective.
Fix: freeze first, then replace the head; or unfreeze the head.
"""

import ast
from collections.abc import Iterator

from clew.lint.freezing import effects, freezes, frozen_after
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script, text
from clew.lint.stages import still_frozen


@rule(
    "CLW220",
    "everything-frozen",
    "train.frozen_params",
    "likely",
    "requires_grad requires_grad_ backward freeze freeze_backbone freeze_all",
)
def check(script: Script) -> Iterator[Hit]:
    made = [
        (owner(script.arg(call, 0, "params"), script) or asked(script.arg(call, 0, "params")), script.where(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    ]
    seen = list(new_head_frozen(script))
    yield from seen
    if not seen:
        yield from step_by_step(script)
    for last, says, confidence in still_frozen(script):
        yield Hit(last, says, confidence)
    for model, where, node in (*frozen(script), *by_helper(script)):
        taken = [
            at for name, at in made if name == model and at.block.scope is where.block.scope and at.order > where.order
        ]
        if taken and not changed(script, model, where, taken[0]):
            yield Hit(node, f"freezes all of {model}, and the optimiser then has no trainable parameter.")


def asked(node: object) -> str:
    """`net` of `[p for p in net.parameters() if p.requires_grad]` and of `filter(..., net.parameters())`."""
    found = (
        {
            text(part.func.value)
            for part in ast.walk(node)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "parameters"
        }
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.Call)
        else set()
    )
    return found.pop() if len(found) == 1 else ""


def frozen(script: Script) -> Iterator[tuple[str, Where, ast.AST]]:
    """Loops over all parameters, or requires_grad_(False) on a model, outside of conditions."""
    for scope in script.module.scopes:
        for target, value, where in scope.attr_sets:
            loop = where.block.node
            if target.attr != "requires_grad" or not isinstance(value, ast.Constant) or value.value is not False:
                continue
            if (
                isinstance(loop, ast.For)
                and where.block.kind == "for"
                and owner(loop.iter)
                and text(loop.target) == text(target.value)
            ):
                yield owner(loop.iter), script.where(loop), loop
    for call in script.calls("requires_grad_"):
        where = script.where(call)
        if (
            script.constant(script.arg(call, 0)) is False
            and isinstance(call.func, ast.Attribute)
            and where.block.kind == "body"
        ):
            yield text(call.func.value), where, call
        elif script.constant(script.arg(call, 0)) is False and isinstance(call.func, ast.Attribute):
            loop = where.block.node
            whole = owner(loop.iter) if isinstance(loop, ast.For) and where.block.kind == "for" else ""
            if whole and isinstance(loop, ast.For) and text(loop.target) == text(call.func.value):
                yield whole, script.where(loop), loop


def step_by_step(script: Script) -> Iterator[Hit]:
    """The same through functions of the project that put the layer in, freeze, and set other parts free."""
    for scope in script.module.scopes:
        said: set[str] = set()
        for call in scope.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else text(call.func)
            if "freez" in name or "frozen" in name or name == "requires_grad_":
                if name != "requires_grad_" and not freezes(script, call, script.where(call)):
                    continue
                said |= {text(arg) for arg in call.args[:2]}
                base = text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
                said |= {base.split(".")[0]}
                if scope.me and base.split(".")[0] == scope.me and scope.cls is not None:
                    said |= {f"{scope.me}.{attr}" for attr in scope.cls.attrs}
        for target, _, where in scope.attr_sets if script.mentions("requires_grad") else ():
            loop = where.block.node
            if target.attr == "requires_grad" and isinstance(loop, ast.For):
                said |= {owner(loop.iter).split(".")[0], owner(loop.iter)}
        for model in sorted(said - {"", "self"}):
            if model not in scope.defs and not model.startswith("self."):
                continue
            found = frozen_after(effects(script, scope, model))
            if found is not None and (found[1].node in script.module.up or found[1].node in script.module.place):
                put, freeze = found
                yield Hit(freeze.node, f"freezes all of {model}, the {put.part} that was inserted before included.")


def new_head_frozen(script: Script) -> Iterator[Hit]:
    """A layer is put into a model, and then all of the model is frozen, by a loop or by a function of the project."""
    if any(
        target.attr == "requires_grad" and not (isinstance(value, ast.Constant) and value.value is False)
        for scope in script.module.scopes
        for target, value, _ in scope.attr_sets
    ) or any(
        script.constant(script.arg(call, 0), True) is not False and isinstance(script.parent(call), ast.Expr)
        for call in script.calls("requires_grad_")
    ):
        return
    for model, where, node in (*frozen(script), *by_helper(script)):
        scope = where.block.scope
        sets = [(at, value) for target, value, at in scope.attr_sets if within(text(target.value), model)]
        sets += [
            (at, value)
            for item, value, at in script.module.subscript_sets
            if at.block.scope is scope and within(text(item.value), model)
        ]
        sets += [
            (script.where(call), call.args[-1])
            for call in scope.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr in ("append", "add_module", "register_module")
            and call.args
            and within(text(call.func.value), model)
        ]
        put = [at for at, value in sets if at.block is where.block and at.order < where.order and layer(script, value)]
        later = any(at.order > where.order for at, _ in sets) or any(
            text(call.func) == f"{model}.eval" or "unfreeze" in text(call.func) for call in scope.calls
        )
        if put and not later:
            yield Hit(node, f"freezes all of {model}, including the layer that was just inserted.")


def within(name: str, model: str) -> bool:
    """Whether a name is the model's or that of a part of it."""
    return name == model or name.startswith(f"{model}.")


def layer(script: Script, node: object) -> bool:
    values = script.value(node) if isinstance(node, ast.Call) else ()
    return any(
        value.kind == "instance"
        and (value.name.startswith("torch.nn.") or (value.cls is not None and script.is_module(value.cls)))
        for value in values
    )


def by_helper(script: Script) -> Iterator[tuple[str, Where, ast.AST]]:
    """Calls of a function that does nothing but freeze all of its parameter."""
    for owner_, _, loop in list(frozen(script)):
        func = script.scope(loop)
        if func.kind == "function" and func.cls is not None and owner_ == func.me and not func.returns:
            yield from by_method(script, func)
        if func.kind != "function" or func.cls is not None or func.params[:1] != [owner_] or func.returns:
            continue
        if script.where(loop).block is not func.body or len(func.loops) > 1:
            continue
        for call in script.calls(func.name):
            if isinstance(call.func, ast.Name) and len(call.args) == 1 and not call.keywords and text(call.args[0]):
                yield text(call.args[0]), script.where(call), call


def by_method(script: Script, func: Scope) -> Iterator[tuple[str, Where, ast.AST]]:
    """model.freeze(), where that freezes all of the model and does nothing else."""
    if len(func.loops) > 1 or len(func.attr_sets) > 1 or func.name == "__init__":
        return
    for call in script.calls(func.name):
        base = call.func.value if isinstance(call.func, ast.Attribute) and not call.args else None
        values = script.value(base) if base is not None else ()
        if len(values) == 1 and values[0].cls is func.cls and text(base):
            yield text(base), script.where(call), call


def changed(script: Script, model: str, start: Where, end: Where) -> bool:
    """Whether anything of the model is replaced, switched on or made between freezing and the optimiser."""
    if start.block is not end.block:
        return True
    for target, value, where in end.block.scope.attr_sets:
        if start.order < where.order < end.order:
            if target.attr == "requires_grad" and not (isinstance(value, ast.Constant) and value.value is False):
                return True
            if text(target).startswith(f"{model}."):
                return True
    for item, _, where in script.module.subscript_sets:
        if start.order < where.order < end.order and text(item.value).startswith(f"{model}."):
            return True
    for call in end.block.scope.calls:
        at = script.where(call)
        if start.order < at.order < end.order and any(
            text(arg).split(".")[0] == model.split(".")[0] for arg in call.args
        ):
            return True
        if (
            start.order < at.order < end.order
            and text(call.func).startswith(f"{model}.")
            and not text(call.func).endswith((".parameters", ".to", ".cuda", ".train", ".eval"))
        ):
            return True
    return any(made.where.order > start.order for made in end.block.scope.defs.get(model.split(".")[0], []))
