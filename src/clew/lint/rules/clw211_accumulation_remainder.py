"""The last, incomplete group of accumulated batches is dropped or carried over.

What it sees: a loop over a loader that steps only when `i % n == 0`, with no step after the loop and no test for the
last batch.
Why it matters: the batches left over at the end of an epoch are cleared before they count, or leak into the first
step of the next epoch. With few batches per epoch that is a large share of the data.
Silent when: the condition also tests for the end, or a step follows the loop.
Fix: step also when `i + 1 == len(loader)`.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.rules.clw210_accumulation_unscaled import accumulates
from clew.lint.script import Hit, Script
from clew.lint.training import training


@rule("CLW211", "accumulation-remainder", "train.grad_accum_unscaled", "look", "backward")
def check(script: Script) -> Iterator[Hit]:
    program = training(script)
    for loop in program.training():
        gate = accumulates(loop)
        node = loop.block.node
        if gate is None or not isinstance(node, ast.For) or "enumerate" not in ast.unparse(node.iter):
            continue
        if (
            isinstance(gate.test, ast.BoolOp)
            or not isinstance(gate.test, ast.Compare)
            or script.mentions("accelerator")
        ):
            continue
        last = max(event.order for event in loop.events)
        scope = loop.block.scope
        later = [
            event for event in program.events(scope) if event.order > last and event.kind in ("step", "scaler_step")
        ]
        if not later:
            yield Hit(gate.test, "the batches left over at the end of the loop are never stepped.")
