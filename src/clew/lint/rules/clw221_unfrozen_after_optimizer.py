"""Parameters are unfrozen after an optimiser was built without them.

What it sees: an optimiser over only those parameters that require gradients, and requires_grad switched on later in
the same function, with no new optimiser or parameter group.
Why it matters: the filter ran once. What is unfrozen later gets gradients, but no optimiser moves it.
Silent when: a later optimiser or add_param_group takes them in.
Fix: add them with add_param_group, or give the optimiser all parameters from the start.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS
from clew.lint.script import Hit, Script


@rule("CLW221", "unfrozen-after-optimizer", "train.params_not_in_optimizer", "likely", "requires_grad requires_grad_")
def check(script: Script) -> Iterator[Hit]:
    made = [(call, script.where(call)) for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)]
    if not made or any(script.calls("add_param_group")):
        return
    for call, where in made:
        given = script.arg(call, 0, "params")
        if given is None or "requires_grad" not in ast.unparse(given):
            continue
        yield from by_helper(script, where, [other for _, other in made])
        for target, value, at in where.block.scope.attr_sets:
            on = target.attr == "requires_grad" and isinstance(value, ast.Constant) and value.value is True
            if (
                on
                and at.order > where.order
                and not any(other.order > at.order or shared(other, at) for _, other in made)
            ):
                yield Hit(
                    target, "is unfrozen after the optimiser took only the trainable parameters; nothing updates it."
                )


def by_helper(script: Script, where: Where, made: list[Where]) -> Iterator[Hit]:
    """A function of the project that switches gradients on, called after the optimiser was made."""
    for call in where.block.scope.calls:
        at = script.where(call)
        if at.order <= where.order or any(other.order > at.order or shared(other, at) for other in made):
            continue
        func = helper(script, call, at)
        if func is None:
            continue
        on = any(
            target.attr == "requires_grad" and isinstance(value, ast.Constant) and value.value is True
            for target, value, _ in func.attr_sets
        ) or any(
            isinstance(inner.func, ast.Attribute)
            and inner.func.attr == "requires_grad_"
            and not inner.args
            and not inner.keywords
            for inner in func.calls
        )
        if on:
            yield Hit(call, "unfreezes parameters that the optimiser does not hold; nothing updates them.")


def shared(first: object, second: object) -> bool:
    """Whether an optimiser is rebuilt in the loop in which something is unfrozen."""
    loops = set(first.block.loops())  # type: ignore[attr-defined]
    return bool(loops & set(second.block.loops()))  # type: ignore[attr-defined]
