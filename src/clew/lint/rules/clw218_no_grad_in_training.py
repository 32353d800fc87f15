"""The forward pass of training runs without gradients.

What it sees: backward, or the whole loss that backward is called on, under no_grad or inference_mode, as a block or
as a decorator; a part whose parameters an optimiser is given by name, and which its network applies under no_grad
alone; a part of the model in training whose forward, or the method that the model applies it by, lies
under it as a whole.
Why it matters: no graph is recorded. Autograd raises, or, once requires_grad is forced on the loss, every step leaves
the parameters alone.
Silent when: only parts of the loss are computed without gradients (targets, teachers), enable_grad lies between, or
the part is frozen, set to eval or named as fixed.
Fix: move the forward pass out of the block.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.conditions import Known
from clew.lint.flow import reaching
from clew.lint.gradient import ends
from clew.lint.index import Class, Scope, Where
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS
from clew.lint.rules.clw224_model_not_in_optimizer import weighs
from clew.lint.script import Hit, Script, text
from clew.lint.training import Loop, trained, training
from clew.lint.value import Value


@rule(
    "CLW218",
    "no-grad-in-training",
    "train.no_grad_in_training",
    "certain",
    "no_grad inference_mode set_grad_enabled backward",
)
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason == "no_grad":
            yield Hit(end.cut.node, "the loss that backward is called on is computed here, without a graph.")
            continue
        off = script.grad_off(end.where) or switched(script, end.node, end.where)
        if off is not None and end.where.block.scope.name not in ("training_step", "compute_loss"):
            yield Hit(off, "backward is called inside this: no gradient is recorded.")

    for loop in training(script).training():
        if loop.has("step", "scaler_step") and not any(event.through for event in loop.of("backward")):
            for name in sorted(trained(script, loop)):
                off = always_off(script, loop, name)
                if off is not None:
                    yield Hit(
                        off,
                        f"{name} is in the optimiser, and runs inside this in every step: it gets no gradient.",
                        "likely",
                    )

    told: set[ast.AST] = set()
    for hit in (*quiet_forward(script), *asked_for(script)):
        if hit.node not in told:
            told.add(hit.node)
            yield hit


def asked_for(script: Script) -> Iterator[Hit]:
    """An optimiser is given model.backbone.parameters(), and the model applies its backbone under no_grad alone."""
    for call in script.calls("parameters", "named_parameters"):
        part = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(part, ast.Attribute) or not text(part.value) or not to_optimizer(script, call):
            continue
        values = script.value(part.value)
        cls = values[0].cls if len(values) == 1 and values[0].kind == "instance" else None
        off = applied_quietly(script, cls, part.attr) if cls is not None and script.is_module(cls) else None
        if cls is None or off is None:
            continue
        says = f"{text(part)} is in the optimiser, and is only ever applied without gradients: it is never trained."
        if off in script.module.up:
            yield Hit(off, says, "likely")
        else:
            at = (Related(cls.module.path, off.lineno, "gradients are switched off here"),)
            yield Hit(call, says, "likely", related=at)


def applied_quietly(script: Script, cls: Class, attr: str) -> Any:
    """The no_grad that every application of a part in its network's forward lies under."""
    offs: list[Any] = []
    for owner in script.values.lineage(cls):
        home = script.at_home(Where(owner.body.body, 0))
        for method in owner.methods.values():
            for call in method.calls:
                if text(call.func).startswith((f"{method.me}.{attr}.", f"{method.me}.{attr}[")):
                    told = text(call.func).rsplit(".", 1)[-1]
                    if told in ("parameters", "named_parameters", "train", "eval", "to", "state_dict", "modules"):
                        continue
                elif text(call.func) != f"{method.me}.{attr}":
                    continue
                if method.name == "__init__":
                    continue  # a trial run, to see what size comes out
                offs.append(home.grad_off(method.module.where(call)))
    return offs[0] if offs and all(off is not None for off in offs) else None


def to_optimizer(script: Script, call: ast.Call) -> bool:
    """Whether parameters go into an optimiser: at once, in a group, or behind a name that does."""
    at: ast.AST | None = call
    while isinstance(at, ast.expr | ast.keyword | ast.comprehension):
        above = script.parent(at)
        if isinstance(above, ast.Dict) and any(getattr(key, "value", "") == "params" for key in above.keys):
            return True
        if isinstance(above, ast.Call) and above is not call and made_here(script, above):
            return True
        at = above
    name = text(at.targets[0]) if isinstance(at, ast.Assign) else ""
    for node in script.loads(name) if name else ():
        up: ast.AST | None = node
        while isinstance(up, ast.expr | ast.keyword):
            up = script.parent(up)
            if isinstance(up, ast.Call) and made_here(script, up):
                return True
            if isinstance(up, ast.Dict) and any(getattr(key, "value", "") == "params" for key in up.keys):
                return True
    return False


def made_here(script: Script, call: ast.Call) -> bool:
    return script.dotted(call.func).startswith("torch.optim.") or text(call.func).rsplit(".", 1)[-1] in OPTIMIZERS


def quiet_forward(script: Script) -> Iterator[Hit]:
    """A model in training, or a part of it, whose forward is under no_grad as a whole."""
    seen: set[str] = set()
    for loop in training(script).training():
        names = trained(script, loop) if loop.has("step", "scaler_step") else set()
        for name in sorted(names - seen):
            seen.add(name)
            values = script.values.named(name, script.where(loop.block.node), None) if "." not in name else ()
            for value in values:
                if value.kind == "instance" and value.cls is not None and script.is_module(value.cls):
                    yield from quiet_parts(script, value, name)


def quiet_parts(script: Script, model: Value, name: str) -> Iterator[Hit]:
    cls = model.cls
    assert cls is not None
    for attr, defs in cls.attrs.items():
        made = script.values.set_on(defs[0], model) if len(defs) == 1 and defs[0].how == "=" else ()
        for value in made if len(made) == 1 else ():
            part = value.cls if value.kind == "instance" and value.const != "self" else None
            forward = asked(cls, part, attr) if part is not None else None
            off = quiet(script, forward) if forward is not None else None
            if part is None or off is None or MEANT.search(f"{attr} {part.name}") or weighs(script, value):
                continue
            # What else runs without gradients, for a user's own use, sets its own mode.
            others = [one.node for one in part.methods.values() if one is not forward and decorated(script, one)]
            if not FREEZES.isdisjoint(words(part, others)) or not FREEZES.isdisjoint(words(cls)):
                continue
            which = forward.name if forward is not None else "forward"
            says = f"{name}.{attr} is in the optimiser, and its {which} runs without gradients: it is never trained."
            here = off in script.module.up
            places = (off, defs[0].node, model.node)
            node = next((one for one in places if one in script.module.up or one in script.module.place), None)
            at = () if here else (Related(part.module.path, off.lineno, "gradients are switched off here"),)
            if node is not None:
                yield Hit(node, says, "look", related=at)


MEANT = re.compile(r"frozen|freeze|fixed|teacher|target|extractor|ema|vgg|lpips|clip", re.I)
FREEZES = frozenset("requires_grad requires_grad_ freeze eval train frozen trainable".split())


def words(cls: Class, but: list[ast.AST] | None = None) -> set[str]:
    left = {part for node in but or () for part in ast.walk(node)}
    return {
        getattr(part, "attr", getattr(part, "id", getattr(part, "arg", ""))) or ""
        for part in ast.walk(cls.node)
        if part not in left
    }


def asked(cls: Class, part: Class, attr: str) -> Scope | None:
    """The one method by which a model applies a part of its own: self.text(x), or self.text.encode(x) everywhere."""
    found: set[str] = set()
    for method in cls.methods.values():
        for call in method.calls:
            said = text(call.func)
            if said == f"{method.me}.{attr}":
                found.add("forward")
            elif said.startswith(f"{method.me}.{attr}.") and said.count(".") == 2:
                found.add(said.rsplit(".", 1)[-1])
    applied = [name for name in found if name in part.methods]
    return part.methods[applied[0]] if len(applied) == 1 else part.methods.get("forward") if not applied else None


def decorated(script: Script, func: Scope) -> bool:
    return any(script.grad_state(decorator) is False for decorator in func.decorators())


def quiet(script: Script, func: Scope) -> Any:
    """What switches gradients off in a forward: a decorator, or a `with` around every call of a part that was learned
    before."""
    for decorator in func.decorators():
        if script.grad_state(decorator) is False:
            return decorator
    held = func.cls.attrs if func.cls is not None else {}
    for name, defs in held.items():
        if len(defs) != 1 or not LEARNED.search(ast.unparse(defs[0].value) if defs[0].value is not None else ""):
            continue
        calls = [call for call in func.calls if text(call.func) == f"{func.me}.{name}"]
        offs = [script.at_home(Where(func.body, 0)).grad_off(func.module.where(call)) for call in calls]
        if offs and all(off is not None for off in offs):
            return offs[0]
    return None


LEARNED = re.compile(r"pretrained|weights=|create_model|torchvision|children\(\)|\.features")


def switched(script: Script, node: Any, where: Where) -> ast.AST | None:
    """The switch by a condition that the loss was computed under, when it is off on every way to backward."""
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    known = Known(where)
    for made in reaching(defs, where) if defs else []:
        for block in made.where.block.chain():
            for item in block.node.items if isinstance(block.node, ast.With) and block.kind == "with" else ():
                call = item.context_expr
                if not isinstance(call, ast.Call) or text(call.func).rsplit(".", 1)[-1] != "set_grad_enabled":
                    continue
                given = script.arg(call, 0, "mode")
                if given is not None and known.truth(given) is False:
                    return call
    return None


def always_off(script: Script, loop: Loop, name: str) -> ast.AST | None:
    """The no_grad that all applications of a trained model in a loop lie under."""
    found: ast.AST | None = None
    for node in script.loads(name):
        if not isinstance(node, ast.Name | ast.Attribute) or text(node) != name:
            continue
        where = script.where(node)
        if where.block.scope is not loop.block.scope or loop.block not in where.block.chain():
            continue
        above = script.module.up[node]
        if isinstance(above, ast.Attribute) and above.attr in ("train", "parameters", "zero_grad", "eval"):
            continue
        off = script.grad_off(where)
        if off is None or not (isinstance(above, ast.Call) and above.func is node):
            return None
        found = off
    return found
