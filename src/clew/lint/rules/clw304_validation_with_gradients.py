"""Validation records graphs that nothing uses.

What it sees: a loop over held-out data that applies a model outside of no_grad and inference_mode, in a function that
computes no gradients there.
Why it matters: not a wrong result, a cost: about twice the memory and a good part of the time, and out-of-memory
errors that come only in validation. A loss kept as a tensor then keeps its graph too.
Silent when: no_grad or inference_mode lies around the loop or the function, or a caller has switched gradients off.
Fix: put `with torch.no_grad():` around the loop.
"""

from collections.abc import Iterator

from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.validation import validations


@rule("CLW304", "validation-with-gradients", "env.memory_growth", "look", "backward eval")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions("set_grad_enabled") or not script.mentions("torch"):
        return
    for found in validations(script):
        where = script.where(found.call)
        if found.named and script.grad_off(where) is None and not switched(script, found.loop.block.scope):
            yield Hit(
                found.loop.block.node,
                f"{found.model} is evaluated on held-out data outside no_grad: autograd graphs are built for nothing.",
            )


def switched(script: Script, scope: Scope) -> bool:
    return any(
        script.grad_off(where) is not None
        for _, where in script.project.callers(scope)
        if where.block.scope.module is script.module
    )
