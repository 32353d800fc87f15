"""Training in stages: a part that was frozen for the first one and that nothing set free for the next."""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.data import helper
from clew.lint.given import argument
from clew.lint.index import Scope, Where
from clew.lint.script import Script, text

FREES = ("unfreeze", "thaw", "trainable", "unlock")


class Frozen(NamedTuple):
    """A place that freezes a part of a model, and methods of the model that would set it free again."""

    model: str
    where: Where
    node: Any
    frees: frozenset[str]


class Stage(NamedTuple):
    """A place that trains a model: a function of the project that is given it, or an optimiser that is made for it."""

    where: Where
    node: ast.Call
    made: bool
    whole: bool = False


def still_frozen(script: Script) -> Iterator[tuple[ast.Call, str, str]]:
    """Stages that begin with a part still frozen: the place, what to say, and how sure that is."""
    seen: set[ast.AST] = set()
    for held in freezes(script):
        scope = held.where.block.scope
        after = [stage for stage in stages(script, scope, held.model) if stage.where.order > held.where.order]
        made = [stage for stage in after if stage.made]
        after = made if len(made) > 1 else [stage for stage in after if not stage.made]
        unused = [name for name in held.frees if "unfreeze" in name or "thaw" in name]
        waits = bool(unused) and not any(called(script, name) for name in held.frees)
        if (
            len(after) < 2
            and waits
            and script.mentions("backward")
            and not set_free(script, scope, held.where.order, 1 << 60)
        ):
            says = f"freezes a part of {held.model}, and nothing ever calls {unused[0]}, which would unfreeze it."
            yield held.node, says, "likely"
            continue
        if len(after) < 2 or any(stage.where.block is not held.where.block for stage in after):
            continue
        first, last = after[0], after[-1]
        if last.node in seen or set_free(script, scope, held.where.order, last.where.order):
            continue
        waiting = bool(held.frees) and not any(called(script, name) for name in held.frees)
        wider = last.whole and not first.whole
        if waiting or wider or slower(script, first.node, last.node):
            seen.add(last.node)
            says = f"what line {held.node.lineno} froze of {held.model} is still frozen here: nothing has unfrozen it."
            yield last.node, says, "likely" if waiting or wider else "look"


def freezes(script: Script) -> Iterator[Frozen]:
    for scope in script.module.scopes:
        for call in scope.calls:
            said = text(call.func)
            name = said.rsplit(".", 1)[-1].lower()
            where = script.where(call)
            if any(isinstance(arg, ast.Constant) and isinstance(arg.value, bool) for arg in call.args) and "." in said:
                func = helper(script, call, where)
                if func is not None and func.cls is not None and turned_off(func, call):
                    yield Frozen(said.rsplit(".", 1)[0], where, call, frozenset())
                continue
            if any(isinstance(arg, ast.Constant) and arg.value is False for arg in call.args) and "." not in said:
                func = helper(script, call, where)
                given = text(call.args[0]).split(".")[0]
                if func is not None and func.cls is None and given and turned_off(func, call):
                    yield Frozen(given, where, call, frozenset())
                continue
            if "freeze" not in name or any(word in name for word in FREES):
                continue
            func = helper(script, call, where)
            if func is None or not switches(func, False):
                continue
            if func.cls is not None and "." in said:
                frees = [one.name for one in func.cls.methods.values() if one is not func and switches(one, True)]
                yield Frozen(said.rsplit(".", 1)[0], where, call, frozenset(frees))
            elif func.cls is None and call.args and text(call.args[0]):
                yield Frozen(text(call.args[0]).split(".")[0], where, call, frozenset())
        for target, value, where in scope.attr_sets:
            loop = where.block.node
            off = target.attr == "requires_grad" and isinstance(value, ast.Constant) and value.value is False
            if off and isinstance(loop, ast.For) and where.block.kind == "for":
                part = asked(loop.iter)
                if "." in part and not part.startswith("self."):
                    yield Frozen(part.split(".")[0], script.where(loop), loop, frozenset())
    for call in script.calls("requires_grad_"):
        part = text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        off = script.constant(script.arg(call, 0)) is False
        if off and "." in part and not part.startswith("self.") and script.where(call).block.kind == "body":
            yield Frozen(part.split(".")[0], script.where(call), call, frozenset())


def turned_off(func: Scope, call: ast.Call) -> bool:
    """net.set_body(False), net.freeze(True): a method that switches gradients as it is told, and is told off."""
    for target, value, _ in func.attr_sets:
        against = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
        name = value.operand if against and isinstance(value, ast.UnaryOp) else value
        given = argument(call, func, name.id) if isinstance(name, ast.Name) and name.id in func.params else None
        if target.attr == "requires_grad" and isinstance(given, ast.Constant) and given.value is against:
            return True
    return False


def asked(node: ast.expr) -> str:
    """`net.body` of `net.body.parameters()`."""
    func = node.func if isinstance(node, ast.Call) else None
    return text(func.value) if isinstance(func, ast.Attribute) and func.attr == "parameters" else ""


def switches(func: Scope, on: bool) -> bool:
    """Whether a function does nothing but switch the gradients of parameters, one way."""
    found = [value for target, value, _ in func.attr_sets if target.attr == "requires_grad"]
    found += [
        call.args[0] if call.args else ast.Constant(True)
        for call in func.calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_"
    ]
    return bool(found) and all(isinstance(value, ast.Constant) and value.value is on for value in found)


def stages(script: Script, scope: Scope, model: str) -> list[Stage]:
    found: list[Stage] = []
    for call in scope.calls:
        where = script.where(call)
        dotted = script.dotted(call.func)
        if dotted.startswith("torch.optim.") and "lr_scheduler" not in dotted and call.args:
            given = ast.unparse(call.args[0])
            if given.split(".")[0] == model or f"{model}." in given:
                found.append(Stage(where, call, True, given == f"{model}.parameters()"))
            continue
        handed = [text(arg) for arg in (*call.args, *(word.value for word in call.keywords))]
        func = helper(script, call, where) if model in handed else None
        if func is not None and any(trains(one) for one in (func, *below(script, func))):
            name = next((name for name in func.params if text(argument(call, func, name)) == model), "")
            if name:
                found.append(Stage(where, call, False))
    return sorted(found, key=lambda stage: (stage.where.order, stage.node.lineno))


def trains(func: Scope) -> bool:
    return any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in func.calls)


def below(script: Script, func: Scope) -> list[Scope]:
    """The functions of the project that a function calls by their names."""
    named = [call for call in func.calls if isinstance(call.func, ast.Name)][:20]
    return [one for call in named if (one := helper(script, call, func.module.where(call))) is not None]


def set_free(script: Script, scope: Scope, start: int, end: int) -> bool:
    """Whether anything between two places may switch gradients on again."""
    for target, value, where in scope.attr_sets:
        off = isinstance(value, ast.Constant) and value.value is False
        if target.attr == "requires_grad" and not off and start < where.order <= end:
            return True
    for call in scope.calls:
        name = text(call.func).rsplit(".", 1)[-1].lower()
        if not start < script.where(call).order <= end:
            continue
        if name == "requires_grad_" and script.constant(script.arg(call, 0), True) is not False:
            return True
        func = helper(script, call, script.where(call)) if name not in ("print", "range", "to") else None
        if any(word in name for word in FREES) or (func is not None and not trains(func) and touches(func)):
            return True
    return False


def touches(func: Scope) -> bool:
    """Whether a function switches any gradients on."""
    sets = [value for target, value, _ in func.attr_sets if target.attr == "requires_grad"]
    if any(not (isinstance(value, ast.Constant) and value.value is False) for value in sets):
        return True
    return any(
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "requires_grad_"
        and not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value is False)
        for call in func.calls
    )


def called(script: Script, name: str) -> bool:
    """Whether a method is called anywhere in the project."""
    if name in script.module.calls:
        return True
    return script.project.neighbours_with(script.module.path, f".{name}(") > 0


RATES = ("lr", "learning_rate", "base_lr")


def slower(script: Script, first: ast.Call, last: ast.Call) -> bool:
    """Whether the later stage has a far smaller learning rate: what fine-tuning of everything has."""
    rates = []
    for call in (first, last):
        given = next((word.value for word in call.keywords if word.arg in RATES), None)
        func = helper(script, call, script.where(call)) if given is None else None
        if func is not None:
            given = next((argument(call, func, name) for name in func.params if name in RATES), None)
        rate = script.constant(given)
        rates.append(float(rate) if isinstance(rate, int | float) else 0.0)
    return rates[1] > 0 and rates[0] >= 5 * rates[1]
