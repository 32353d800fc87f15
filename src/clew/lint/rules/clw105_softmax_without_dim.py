"""Softmax, or argmax of a batch, does not say over which axis.

What it sees: softmax, log_softmax and their layers without `dim`; argmax without `dim` whose result is compared with
labels.
Why it matters: softmax then picks an axis by an old rule that depends on the number of axes, for a batch of images or
sequences not the class axis. argmax without `dim` gives one index into the flattened batch.
Silent when: an axis is given, also by position or through **kwargs.
Fix: name the class axis, usually `dim=-1`.
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

FUNCTIONS = ("softmax", "log_softmax", "softmin")
LAYERS = ("Softmax", "LogSoftmax", "Softmin")


@rule(
    "CLW105",
    "softmax-without-dim",
    "loss.wrong_dim",
    "look",
    "softmax log_softmax softmin Softmax LogSoftmax Softmin argmax",
)
def check(script: Script) -> Iterator[Hit]:
    for call, dotted in script.calls_to("torch.nn.functional.", *FUNCTIONS):
        if script.arg(call, 1, "dim") is None and not script.starred(call):
            yield Hit(call, message(dotted), confidence(script, call), added(script, call))
    for call, dotted in script.calls_to("torch.nn.", *LAYERS):
        if script.arg(call, 0, "dim") is None and not script.starred(call):
            yield Hit(call, message(dotted), confidence(script, call), added(script, call))
    for call in script.calls("argmax"):
        above = script.parent(call)
        if isinstance(above, ast.Compare) and isinstance(above.ops[0], ast.Eq) and flat_argmax(script, call):
            other = above.comparators[0] if above.left is call else above.left
            if isinstance(other, ast.Name) and any(word in other.id.lower() for word in ("label", "target", "y")):
                yield Hit(
                    call,
                    "argmax without dim gives one index into the flattened batch, not one class per example.",
                    "likely",
                )


def message(dotted: str) -> str:
    return f"{dotted.rsplit('.', 1)[-1]} has no dim: the axis it picks depends on the number of axes."


def confidence(script: Script, call: ast.Call) -> str:
    """With two axes the old rule picks the right one; with three it picks the first, the batch."""
    above = script.parent(call)
    index = above.slice if isinstance(above, ast.Subscript) else None
    return "likely" if isinstance(index, ast.Tuple) and len(index.elts) == 3 and script.mentions("backward") else "look"


def flat_argmax(script: Script, call: ast.Call) -> bool:
    dotted = script.dotted(call.func)
    if dotted and not dotted.startswith("torch."):
        return False
    given = script.arg(call, 1 if dotted else 0, "dim") or script.arg(call, -1, "axis")
    if given is not None or script.starred(call):
        return False
    values = script.value(script.operand(call)) if script.operand(call) is not None else ()
    return bool(values) and all(
        value.kind == "made" and value.name in ("linear", "softmax", "log_softmax") for value in values
    )


def added(script: Script, call: ast.Call) -> Fix:
    """Which axis is meant only the author knows: the last one is the usual guess."""
    text = script.source(call)
    comma = ", " if call.args or call.keywords else ""
    return Fix("name the last axis", False, (script.replace(call, f"{text[:-1].rstrip().rstrip(',')}{comma}dim=-1)"),))
