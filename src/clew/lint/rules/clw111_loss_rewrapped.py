"""A computed loss is wrapped into a new tensor.

What it sees: torch.tensor, Tensor, as_tensor, from_numpy or Variable around something that came out of a model or a
loss, on its way to `backward`; losses gathered into a new tensor with requires_grad=True.
Why it matters: the new tensor is a leaf. `backward` fills its own gradient and stops; no parameter is ever reached,
and nothing raises once requires_grad is set.
Silent when: what is wrapped is data, or something else in the sum keeps the graph.
Fix: use the loss as it is; it is a tensor already.
"""

import ast
from collections.abc import Iterator

from clew.lint.gradient import WRAPPING, computed, ends
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

SAYS = "a new tensor has no autograd history: backward stops here and no parameter gets a gradient."


@rule(
    "CLW111", "loss-rewrapped", "loss.disconnected", "certain", "backward manual_backward training_step requires_grad"
)
def check(script: Script) -> Iterator[Hit]:
    seen = set()
    for end in ends(script):
        if end.cut is not None and end.cut.reason == "wrapped":
            seen.add(end.cut.node)
            yield Hit(end.cut.node, SAYS)
    for call in script.calls("tensor", "Tensor", "FloatTensor"):
        forced = script.constant(script.arg(call, -1, "requires_grad")) is True
        if (
            forced
            and call not in seen
            and call.args
            and script.dotted(call.func) in WRAPPING
            and has_loss(script, call)
        ):
            yield Hit(call, SAYS)


def has_loss(script: Script, call: ast.Call) -> bool:
    """Whether losses of torch stand in a list that becomes a new tensor; numbers and detached values are data."""
    given = call.args[0]
    parts = given.elts if isinstance(given, ast.List | ast.Tuple) else [given]
    where = script.where(call)
    left = {part.attr for part in ast.walk(given) if isinstance(part, ast.Attribute)} & {"item", "detach", "numpy"}
    return bool(parts) and not left and all(computed(script, part, where) for part in parts)
