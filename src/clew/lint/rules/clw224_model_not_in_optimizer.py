"""A network takes part in training and no optimiser holds it.

What it sees: two networks made side by side, an optimiser over the parameters of one, and the other applied in the
loop that steps it, while nothing ever asks for its parameters; an optimiser over one part of a model that is made
here with fresh weights, or over one entry of a Sequential, while nothing asks for the rest.
Why it matters: the forgotten part stays at its random start. The rest learns around it, so the loss falls, only not
as far as it should.
Silent when: its parameters are used anywhere, it is frozen, put into eval(), loaded, copied or passed on, or it runs
without gradients.
Fix: give the optimiser the parameters of both.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Class
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS
from clew.lint.rules.clw401_unregistered_modules import weighty
from clew.lint.script import Hit, Script, text
from clew.lint.training import Loop, trained, training
from clew.lint.validation import called_in
from clew.lint.value import Value


@rule(
    "CLW224",
    "model-not-in-optimizer",
    "train.params_not_in_optimizer",
    "likely",
    "backward manual_backward configure_optimizers",
)
def check(script: Script) -> Iterator[Hit]:
    yield from half_configured(script)
    yield from one_part(script)
    yield from in_groups(script)
    seen: set[ast.AST] = set()
    for loop in training(script).training():
        held = trained(script, loop) if loop.has("step", "scaler_step") else set()
        if not held:
            continue
        for name, node in networks(script, loop):
            if name not in held and node not in seen and forgotten(script, name, loop):
                seen.add(node)
                yield Hit(node, f"{name} takes part in the loss, and no optimiser holds its parameters.")


def one_part(script: Script) -> Iterator[Hit]:
    """Adam(model.encoder.parameters()), Adam(model[-1].parameters()), and nothing for the other parts."""
    for call in built(script):
        given = script.arg(call, 0, "params")
        func = given.func if isinstance(given, ast.Call) else None
        part = func.value if isinstance(func, ast.Attribute) and func.attr == "parameters" else None
        whole = part.value if isinstance(part, ast.Attribute | ast.Subscript) else None
        name = text(whole)
        if not name or name == "self" or part is None or whole is None or asks_for_more(script, name, part):
            continue
        for value in script.value(whole):
            rest = others(script, value, part)
            if rest:
                yield Hit(call, f"holds {ast.unparse(part)} only; {rest} of {name} is never trained.")
                break


def built(script: Script) -> list[ast.Call]:
    """The optimisers of a file in which nothing is frozen or loaded."""
    if "built" not in script.known:
        made = [call for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)]
        said = words_in(script.module.tree) if made else set()
        script.known["built"] = [] if FREEZES & said - AT_REST else made
    found: list[ast.Call] = script.known["built"]
    return found


def in_groups(script: Script) -> Iterator[Hit]:
    """Groups of some parts of a model, with a part left out."""
    for call in built(script):
        given = script.arg(call, 0, "params")
        values = script.value(given) if given is not None else ()
        if len(values) != 1 or values[0].kind != "items" or isinstance(values[0].node, ast.Dict):
            continue
        parts = [part for item in values[0].items for part in asked(item)]
        wholes = {text(part.value) for part in parts if isinstance(part, ast.Attribute)}
        if len(parts) < 2 or len(parts) != len(values[0].items) or len(wholes) != 1 or "" in wholes:
            continue
        names = {part.attr for part in parts if isinstance(part, ast.Attribute)}
        for value in script.value(parts[0].value) if isinstance(parts[0], ast.Attribute) else ():
            rest = left_out(script, value, names)
            if rest:
                yield Hit(call, f"holds {', '.join(sorted(names))} only; {rest} of {wholes.pop()} is in no group.")
                break


def asked(node: ast.AST) -> list[ast.expr]:
    """The parts whose parameters a group asks for."""
    return [
        part.func.value
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "parameters"
    ]


def left_out(script: Script, value: Value, names: set[str]) -> str:
    if value.kind != "instance" or value.cls is None or value.const == "self" or not script.is_module(value.cls):
        return ""
    for name, defs in value.cls.attrs.items():
        made = script.values.defined(defs[0], None) if len(defs) == 1 and name not in names else ()
        if made and all(one.kind == "instance" and weighs(script, one) for one in made):
            return name
    return ""


def asks_for_more(script: Script, name: str, part: ast.AST | None) -> bool:
    """Whether anything else of the model is asked for its parameters, or the model goes somewhere that may do so."""
    for node in script.loads(name):
        if text(node) != name:
            continue
        above = script.parent(node)
        if above is part:
            continue
        said = ast.unparse(script.statement(node)) if isinstance(above, ast.Attribute | ast.Subscript) else ""
        if "parameters(" in said and not isinstance(script.statement(node), ast.For | ast.With | ast.If):
            return True
        if isinstance(above, ast.Call) and above.func is not node and "optim" in ast.unparse(above.func).lower():
            return True
    return False


def others(script: Script, value: Value, part: ast.AST | None) -> str:
    """The first part with weights that is not the one given."""
    if value.kind != "instance" or value.const == "self":
        return ""
    if isinstance(part, ast.Subscript):
        layers = (
            [arg for arg in value.node.args if weighty(f".{last(arg)}")] if value.name == "torch.nn.Sequential" else []
        )
        return "the rest" if len(layers) > 1 else ""
    if value.cls is None or not script.is_module(value.cls) or not isinstance(part, ast.Attribute):
        return ""
    for name, defs in value.cls.attrs.items():
        made = script.values.defined(defs[0], None) if len(defs) == 1 and name != part.attr else ()
        if made and all(one.kind == "instance" and weighs(script, one) for one in made):
            return name
    return ""


def last(node: ast.AST) -> str:
    func = node.func if isinstance(node, ast.Call) else None
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def half_configured(script: Script) -> Iterator[Hit]:
    """In Lightning: an optimiser over one part of the module, while another part with weights is applied beside it."""
    for cls in script.module.classes:
        method = cls.methods.get("configure_optimizers")
        made = [call for call in method.calls if script.dotted(call.func).startswith("torch.optim.")] if method else []
        made = [call for call in made if "lr_scheduler" not in script.dotted(call.func)]
        if len(made) != 1 or FREEZES & called_in(cls.node) or FREEZES & words_in(cls.node):
            continue
        given = ast.unparse(script.arg(made[0], 0, "params") or made[0])
        if not given.startswith("self.") or not given.endswith(".parameters()") or given.count(".") != 2:
            continue
        held = given.split(".")[1]
        for name, defs in cls.attrs.items():
            values = script.values.defined(defs[0], None) if len(defs) == 1 and name != held else ()
            applied = any(text(call.func) == f"self.{name}" for one in cls.methods.values() for call in one.calls)
            if applied and any(value.kind == "instance" and weighs(script, value) for value in values):
                yield Hit(
                    made[0], f"the optimiser holds self.{held} only; self.{name} is applied and never trained.", "look"
                )
                break


FREEZES = frozenset(
    "requires_grad requires_grad_ freeze no_grad eval detach from_pretrained load_state_dict pretrained weights "
    "inference_mode load_from_checkpoint".split()
)


SAME = frozenset(("compile", "DataParallel", "DistributedDataParallel"))
"""These give back a network with the parameters of the one that they are given."""
AT_REST = frozenset(("eval", "no_grad", "detach", "weights", "inference_mode"))


def words_in(node: ast.AST) -> set[str]:
    return {getattr(part, "attr", getattr(part, "id", getattr(part, "arg", ""))) or "" for part in ast.walk(node)}


def weighs(script: Script, value: Value) -> bool:
    """A layer with weights, a Sequential that has one, or a network of the project."""
    if value.cls is not None:
        return script.is_module(value.cls) and has_weights(script, value.cls)
    if value.name == "torch.nn.Sequential":
        parts = [arg for arg in value.node.args if isinstance(arg, ast.Call)]
        open_ = len(parts) < len(value.node.args) or not parts
        return open_ or any(weighty(f".{name}") for part in parts for name in called_in(part))
    return value.name.startswith("torch.nn.") and weighty(value.name)


def networks(script: Script, loop: Loop) -> Iterator[tuple[str, ast.AST]]:
    """Networks with weights that the scope itself makes."""
    scope = loop.block.scope
    outside = () if scope is script.module.main else script.module.main.defs.items()
    for name, defs in (*scope.defs.items(), *outside):
        if defs[0].where.block.scope is not scope and name in scope.defs:
            continue
        if len(defs) != 1 or defs[0].how != "=" or not isinstance(defs[0].value, ast.Call | ast.Tuple):
            continue
        if last(defs[0].value) in SAME:
            continue
        for value in script.values.named(name, script.where(loop.block.node), None):
            own = value.kind == "instance" and value.node is not None and value.const != "self"
            layer = value.name.startswith("torch.nn.") and weighty(value.name)
            if own and (
                layer or (value.cls is not None and script.is_module(value.cls) and has_weights(script, value.cls))
            ):
                yield name, defs[0].node


def has_weights(script: Script, cls: Class) -> bool:
    """Whether a class of the project makes layers to be trained: a loss has none, and some freeze their own."""
    for held in script.values.lineage(cls):
        words = {getattr(part, "attr", getattr(part, "id", getattr(part, "arg", ""))) for part in ast.walk(held.node)}
        if words & {"requires_grad", "requires_grad_", "pretrained", "from_pretrained", "load_state_dict", "weights"}:
            return False
    return any(weighty(f".{name}") for held in script.values.lineage(cls) for name in called_in(held.node))


def forgotten(script: Script, name: str, loop: Loop) -> bool:
    """Whether the network is applied in the loop, with gradients, and used in no other way."""
    applied = False
    for node in script.loads(name):
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        where = script.where(node)
        above = script.module.up[node]
        if isinstance(above, ast.Attribute) and above.attr in ("to", "cuda", "train"):
            continue
        if not isinstance(above, ast.Call) or above.func is not node or script.grad_off(where) is not None:
            return False
        if where.block.scope is loop.block.scope and loop.block in where.block.chain():
            applied = True
    return applied
