"""The optimiser holds a model that has been replaced.

What it sees: an optimiser over net.parameters(), after which `net` is bound to another, newly made model that
training then uses.
Why it matters: the optimiser moves the parameters of the first model, which nothing uses any more. The second never
changes.
Silent when: the new value is made from the old one (wrapping, moving, compiling), or another optimiser follows.
Fix: build the optimiser after the model is final.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.flow import apart
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script, text
from clew.lint.training import training
from clew.lint.value import Value


@rule("CLW214", "optimizer-of-old-model", "train.params_not_in_optimizer", "likely", "backward " + " ".join(OPTIMIZERS))
def check(script: Script) -> Iterator[Hit]:
    made = [
        (call, owner(script.arg(call, 0, "params"), script), script.where(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    ]
    yield from of_a_copy(script)
    yield from of_the_same(script, [call for call, _, _ in made])
    yield from made_again(script)
    yield from unnamed(script)
    for _, model, where in made:
        scope = where.block.scope
        for target, value, at in scope.attr_sets if model.startswith(f"{scope.me}.") and scope.me else ():
            anew = text(target) == model and at.order > where.order and at.block is where.block
            again = any(other == model and place.order > at.order for _, other, place in made)
            if (
                anew
                and not again
                and isinstance(value, ast.Call)
                and (builds(value, model) or newly(script, value, model))
            ):
                yield Hit(target, f"replaces {model} after the optimiser took the old model's parameters.")
    for call, model, where in made:
        if not model or "." in model or where.block.loops():
            continue
        scope = where.block.scope
        for later in scope.defs.get(model, []):
            if (
                later.where.order <= where.order
                or later.how != "="
                or later.path
                or apart(later.where.block, where.block.chain())
            ):
                continue
            again = any(other == model and at.order > later.where.order for _, other, at in made)
            anew = builds(later.value, model) or (
                isinstance(later.value, ast.Call) and newly(script, later.value, model)
            )
            if not again and anew and later.where.block is where.block:
                yield Hit(call, f"holds the parameters of a model that line {later.node.lineno} replaces.")  # type: ignore[attr-defined]
                break


def made_again(script: Script) -> Iterator[Hit]:
    """A method makes self.model anew as __init__ did, and leaves the optimiser with the old one."""
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            if len(defs) < 2 or not MODEL.search(name):
                continue
            first = [
                one for one in defs if one.where.block.scope.name == "__init__" and isinstance(one.value, ast.Call)
            ]
            held = [
                attr
                for attr, given in cls.attrs.items()
                for one in given
                if isinstance(one.value, ast.Call)
                and text(value_owner(one.value)) == f"self.{name}"
                and one.where.block.scope.name == "__init__"
            ]
            for made in defs if first and held else ():
                method = made.where.block.scope
                same = isinstance(made.value, ast.Call) and alike(made.value, first[0].value)
                if method.name == "__init__" or not same or made.how != "=" or method.name not in script.module.calls:
                    continue
                inner = {text(call.func) for call in method.calls}
                again = any(one.where.block.scope is method for attr in held for one in cls.attrs[attr])
                if not again and not any("optim" in said.lower() for said in inner):
                    yield Hit(made.node, f"rebuilds self.{name}; self.{held[0]} still holds the old parameters.")


def alike(one: ast.Call, other: ast.Call) -> bool:
    """build(cfg) and self.build(self.cfg): the same maker under its last name."""
    return text(one.func).rsplit(".", 1)[-1] == text(other.func).rsplit(".", 1)[-1] != "" and len(one.args) == len(
        other.args
    )


def of_the_same(script: Script, made: list[ast.Call]) -> Iterator[Hit]:
    """[Adam(nets[0].parameters()) for _ in nets]: each entry holds the same parameters."""
    for call in made:
        above = script.parent(call)
        if not isinstance(above, ast.ListComp | ast.DictComp) or len(above.generators) != 1:
            continue
        own = {part.id for part in ast.walk(above.generators[0].target) if isinstance(part, ast.Name)}
        given = script.arg(call, 0, "params")
        if given is not None and not own & {part.id for part in ast.walk(given) if isinstance(part, ast.Name)}:
            yield Hit(call, f"every one of these optimisers holds {ast.unparse(given)}: the others are never trained.")


def unnamed(script: Script) -> Iterator[Hit]:
    """Adam(Net().parameters()): the model is made for the optimiser alone."""
    for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS):
        if not script.mentions("backward") and not isinstance(script.parent(call), ast.Return):
            continue
        given = script.arg(call, 0, "params")
        func = given.func if isinstance(given, ast.Call) else None
        base = func.value if isinstance(func, ast.Attribute) and func.attr == "parameters" else None
        if not isinstance(base, ast.Call) or not isinstance(base.func, ast.Name) or script.tests:
            continue
        values = script.value(base)
        if values and all(one.kind == "instance" and one.const != "self" and is_made(script, one) for one in values):
            yield Hit(call, "optimises a model built only for it: the trained model is not in it.")


def newly(script: Script, node: ast.Call, model: str) -> bool:
    """Whether a function or method of the project makes a network, without being given the old one."""
    given = [text(arg) for arg in (*node.args, *(word.value for word in node.keywords))]
    func = helper(script, node, script.where(node))
    if func is None or model in given:
        return False
    return all(
        value.kind == "instance" and value.const != "self" and is_made(script, value) for value in script.value(node)
    )


def is_made(script: Script, value: Value) -> bool:
    """Whether a value is a network that a call has just made."""
    if not isinstance(value.node, ast.Call):
        return False
    return value.name.startswith("torch.nn.") or (value.cls is not None and script.is_module(value.cls))


def of_a_copy(script: Script) -> Iterator[Hit]:
    """opt = make_optimizer(cfg), where that function builds a model of its own and hands back only the optimiser."""
    homes = {script.scope(call) for call in script.module.calls.get("step", [])}
    for scope in (scope for scope in script.module.scopes if scope in homes):
        for event in training(script).events(scope):
            value = event.value
            if event.kind != "step" or event.through or value is None or not isinstance(value.node, ast.Call):
                continue
            home = value.where.block.scope if value.where is not None else scope
            model = text(value_owner(value.node))
            if home is scope or home.kind != "function" or home.cls is not None or not model or "." in model:
                continue
            defs = home.defs.get(model, [])
            fresh = len(defs) == 1 and defs[0].how == "=" and isinstance(defs[0].value, ast.Call)
            told = {name.id for given, _ in home.returns for name in ast.walk(given) if isinstance(name, ast.Name)}
            words = {name.id for name in ast.walk(defs[0].value) if isinstance(name, ast.Name)} if fresh else set()
            if (
                not fresh
                or model in told - owners(home)
                or any(MODEL.search(word) for word in words & set(home.params))
            ):
                continue
            place = next((call for call in scope.calls if helper(script, call, script.where(call)) is home), None)
            if place is not None:
                yield Hit(place, f"steps a model that {home.name} builds for itself and nothing else uses.")
                return


MODEL = re.compile(r"model|net|module", re.I)


def owners(home: Scope) -> set[str]:
    """Names that what a function returns mentions only to ask for parameters."""
    found = set()
    for given, _ in home.returns:
        plain = {part.id for part in ast.walk(given) if isinstance(part, ast.Name)}
        asked = {
            part.value.id
            for part in ast.walk(given)
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.attr == "parameters"
        }
        direct = {item.id for item in getattr(given, "elts", [given]) if isinstance(item, ast.Name)}
        found |= (plain & asked) - direct
    return found


def value_owner(call: ast.Call) -> ast.expr | None:
    """`net` of `Adam(net.parameters(), lr=...)`."""
    given = call.args[0] if call.args else None
    func = given.func if isinstance(given, ast.Call) else None
    return func.value if isinstance(func, ast.Attribute) and func.attr == "parameters" else None


def builds(node: object, model: str) -> bool:
    """Whether an expression makes a new model without using the old one."""
    if isinstance(node, ast.Call) and text(node.func) in ("copy.deepcopy", "deepcopy"):
        return True
    if not isinstance(node, ast.Call) or any(
        isinstance(part, ast.Name) and part.id == model for part in ast.walk(node)
    ):
        return False
    at: ast.AST = node
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and isinstance(at.func.value, ast.Call):
        at = at.func.value  # Net(8).to(device)
    name = (
        at.func.attr
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute)
        else getattr(getattr(at, "func", None), "id", "")
    )
    return name[:1].isupper()
