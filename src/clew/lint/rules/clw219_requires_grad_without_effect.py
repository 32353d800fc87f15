"""A line meant to freeze or unfreeze does nothing.

What it sees: a misspelt requires_grad, a comparison in place of an assignment, requires_grad set on a whole module
instead of on its parameters, or a function called unfreeze that only ever switches gradients off.
Why it matters: Python accepts any attribute name, so what should be frozen trains on, or what should train stays
frozen.
Silent when: the attribute belongs to a class of the project that defines it.
Fix: p.requires_grad = ..., or module.requires_grad_(...).
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.given import argument
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TYPOS = frozenset(
    "require_grad require_grads requires_grads required_grad requires_gradient requiers_grad requre_grad "
    "requires_gard requires_Grad".split()
)


@rule(
    "CLW219",
    "requires-grad-without-effect",
    "train.frozen_params",
    "certain",
    "requires_grad " + " ".join(sorted(TYPOS)),
)
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        for target, value, _ in scope.attr_sets:
            if (
                target.attr in TYPOS
                and isinstance(value, ast.Constant)
                and isinstance(value.value, bool)
                and text(target.value) != "self"
            ):
                name = f"{script.source(target.value)}.requires_grad"
                fix = Fix("spell it requires_grad", False, (script.replace(target, name),))
                yield Hit(
                    target,
                    f"{target.attr} is not an attribute that autograd reads; the name is requires_grad.",
                    fix=fix,
                )
            elif target.attr == "requires_grad" and isinstance(value, ast.Constant) and is_module(script, target.value):
                name = f"{script.source(target.value)}.requires_grad_({value.value!r})"
                fix = Fix("set it on the parameters", False, (script.replace(script.statement(target), name),))
                yield Hit(target, "this does nothing on a module: set it on the parameters.", fix=fix)
    yield from not_unfrozen(script)
    for statement in script.module.statements.get(ast.Expr, []):
        node = statement.value
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "requires_grad"
            and isinstance(node.ops[0], ast.Eq)
        ):
            fix = Fix(
                "assign",
                False,
                (script.replace(node, f"{script.source(node.left)} = {script.source(node.comparators[0])}"),),
            )
            yield Hit(node, "compares and discards the result; an assignment was probably meant.", fix=fix)


def is_module(script: Script, node: ast.expr) -> bool:
    values = script.value(node)
    zoo = [value.owner for value in values if value.kind == "attr" and value.name in PARTS]
    if zoo and len(zoo) == len(values):
        return all(owner is not None and owner.name.startswith(ZOOS) for owner in zoo)
    if values and all(value.kind == "made" and value.name.startswith(ZOOS) for value in values):
        return True
    return all(
        value.kind == "instance"
        and value.const != "self"
        and (
            (value.name.startswith("torch.nn.") and not value.name.endswith("Parameter"))
            or (
                value.cls is not None
                and script.is_module(value.cls)
                and not any(
                    "requires_grad" in cls.methods or "requires_grad" in cls.attrs
                    for cls in script.values.lineage(value.cls)
                )
            )
        )
        for value in values
    )


ZOOS = ("torchvision.models.", "timm.create_model")
PARTS = frozenset(
    "encoder features backbone layer1 layer2 layer3 layer4 conv1 blocks patch_embed stem classifier fc head heads "
    "trunk stages norm bn1".split()
)


def not_unfrozen(script: Script) -> Iterator[Hit]:
    """A function that is to unfreeze, and sets nothing but False."""
    for scope in script.module.scopes:
        if scope.kind != "function" or not UNFREEZES.search(scope.name):
            continue
        found = [(target, script.constant(value, "?")) for target, value, _ in scope.attr_sets if of_flag(target)]
        for call in scope.calls:
            flag = switched(script, call)
            if flag is not None:
                found.append((call, flag))  # type: ignore[arg-type]
        if found and all(value is False for _, value in found):
            yield Hit(
                found[0][0], f"{scope.name} switches gradients off and never on again: frozen layers stay frozen."
            )


UNFREEZES = re.compile(r"^_?(unfreeze|thaw)", re.I)


def of_flag(target: ast.Attribute) -> bool:
    return target.attr == "requires_grad"


def switched(script: Script, call: ast.Call) -> object:
    """What a call sets requires_grad to: directly, or through a function of the project that takes the flag."""
    if isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_":
        return script.constant(script.arg(call, 0), True) if call.args or call.keywords else True
    values = script.value(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ()
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    if func is None:
        return None
    for target, value, _ in func.attr_sets:
        if of_flag(target) and isinstance(value, ast.Name) and value.id in func.params:
            return script.constant(argument(call, func, value.id), "?")
    return None
