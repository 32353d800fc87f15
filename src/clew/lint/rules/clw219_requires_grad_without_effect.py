"""A line meant to freeze or unfreeze does nothing.

What it sees: a misspelt requires_grad, a comparison in place of an assignment, or requires_grad set on a whole module
instead of on its parameters.
Why it matters: Python accepts any attribute name, so what should be frozen trains on, or what should train stays
frozen.
Silent when: the attribute belongs to a class of the project that defines it.
Fix: p.requires_grad = ..., or module.requires_grad_(...).
"""

import ast
from collections.abc import Iterator

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
                yield Hit(target, "set on a module this does nothing: parameters have their own flags.", fix=fix)
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
            yield Hit(node, "compares and throws the result away; an assignment was meant.", fix=fix)


def is_module(script: Script, node: ast.expr) -> bool:
    values = script.value(node)
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
