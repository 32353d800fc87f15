"""A step without gradient lies between the model and the loss.

What it sees: all of what `backward` is called on comes through argmax, sign, rounding, a comparison or a cast to
integers.
Why it matters: such a step has no slope, or none but zero. Either autograd refuses, or, once requires_grad is forced,
it does nothing at all: the loss is printed and never falls.
Silent when: another part of the sum has a gradient, or the step is only used for a metric.
Fix: compute the loss on scores or probabilities, and keep argmax for the metric.
"""

from collections.abc import Iterator

from clew.lint.gradient import ends
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

SAYS = {
    "argmax": "argmax has no gradient",
    "round": "rounding has no gradient",
    "integer": "integers carry no gradient",
    "compare": "a comparison has no gradient",
}


@rule("CLW110", "loss-not-differentiable", "loss.disconnected", "certain", "backward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason in SAYS:
            yield Hit(
                loss_line(end.cut.node, end.node, script),
                f"{SAYS[end.cut.reason]}, and all of the loss comes through it.",
            )


def loss_line(node: object, end: object, script: Script) -> object:
    """The statement that computes the loss from what has no gradient reads better than the cut itself."""
    from clew.lint.flow import reaching

    where = script.where(end)  # type: ignore[arg-type]
    name = getattr(end, "id", "")
    if name in where.block.scope.defs:
        made = reaching(where.block.scope.defs[name], where)
        if len(made) == 1 and made[0].how == "=":
            return made[0].value
    return node
