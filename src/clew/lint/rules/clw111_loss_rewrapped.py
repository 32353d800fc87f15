"""A computed loss is wrapped into a new tensor.

What it sees: torch.tensor, Tensor, as_tensor, from_numpy or Variable around something that came out of a model or a
loss, on its way to `backward`.
Why it matters: the new tensor is a leaf. `backward` fills its own gradient and stops; no parameter is ever reached,
and nothing raises once requires_grad is set.
Silent when: what is wrapped is data, or something else in the sum keeps the graph.
Fix: use the loss as it is; it is a tensor already.
"""

from collections.abc import Iterator

from clew.lint.gradient import ends
from clew.lint.registry import rule
from clew.lint.script import Hit, Script


@rule("CLW111", "loss-rewrapped", "loss.disconnected", "certain", "backward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    for end in ends(script):
        if end.cut is not None and end.cut.reason == "wrapped":
            yield Hit(
                end.cut.node,
                "a tensor built anew has no history: backward stops here and no parameter gets a gradient.",
            )
