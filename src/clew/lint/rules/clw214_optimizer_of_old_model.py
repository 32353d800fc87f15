"""The optimiser holds a model that has been replaced.

What it sees: an optimiser over net.parameters(), after which `net` is bound to another, newly made model that
training then uses.
Why it matters: the optimiser moves the parameters of the first model, which nothing uses any more. The second never
changes.
Silent when: the new value is made from the old one (wrapping, moving, compiling), or another optimiser follows.
Fix: build the optimiser after the model is final.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import apart
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script


@rule("CLW214", "optimizer-of-old-model", "train.params_not_in_optimizer", "likely", " ".join(OPTIMIZERS))
def check(script: Script) -> Iterator[Hit]:
    made = [
        (call, owner(script.arg(call, 0, "params"), script), script.where(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    ]
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
            if not again and builds(later.value, model) and later.where.block is where.block:
                yield Hit(call, f"holds the parameters of a model that line {later.node.lineno} replaces.")  # type: ignore[attr-defined]
                break


def builds(node: object, model: str) -> bool:
    """Whether an expression makes a new model without using the old one."""
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
