"""The loss has left the graph before `backward`.

What it sees: all of what `backward` is called on went through item, detach, numpy, tolist, float() or .data.
Why it matters: nothing of the model is connected to it any more. Autograd refuses, or, once requires_grad is forced,
runs and changes nothing.
Silent when: some part of the loss keeps its graph: weights and targets are often detached on purpose.
Fix: detach only what is logged, after `backward`.
"""

from collections.abc import Iterator

from clew.lint.gradient import ends
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

SAYS = {
    "item": "a Python number has no autograd history",
    "numpy": "a numpy array has no autograd history",
    "detach": "detach() cuts the graph",
    "data": ".data cuts the graph",
}


@rule("CLW112", "loss-detached", "loss.disconnected", "certain", "backward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason in SAYS:
            yield Hit(end.cut.node, f"{SAYS[end.cut.reason]}, and the whole loss passes through it.")
