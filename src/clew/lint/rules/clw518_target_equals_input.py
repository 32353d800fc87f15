"""The target is the same slice of the sequence as the input.

What it sees: two names, one for inputs and one for targets, made by the very same expression with a slice in it.
Why it matters: a model that reads a position and must predict that same position only has to learn to copy. The loss
goes to zero at once, and samples are noise.
Silent when: the two expressions differ, or the names are not those of inputs and targets.
Fix: take the targets one position later: data[i + 1 : i + 1 + n].
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script

INPUTS = ("x", "xs", "xb", "inputs", "input_ids", "inp", "src", "X")
TARGETS = ("y", "ys", "yb", "targets", "target", "labels", "tgt", "Y")


@rule("CLW518", "target-equals-input", "data.leak_target", "likely", " ".join(TARGETS))
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        inputs = {said(made.value) for name in INPUTS for made in scope.defs.get(name, []) if made.how == "="} - {""}
        for name in TARGETS if inputs else ():
            for made in scope.defs.get(name, []):
                if made.how == "=" and not made.path and said(made.value) in inputs:
                    yield Hit(
                        made.node, f"{name} is the same slice as the input: the model is asked to copy its input."
                    )


def said(node: object) -> str:
    """The text of an expression that takes a stretch out of a sequence; "" for anything else."""
    if not isinstance(node, ast.Call | ast.Subscript):
        return ""
    cut = any(
        isinstance(part, ast.Slice) and part.lower is not None and part.upper is not None for part in ast.walk(node)
    )
    return ast.unparse(node) if cut else ""
