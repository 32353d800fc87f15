"""The scheduler steps before the optimiser.

What it sees: in one iteration of a loop, the scheduler's step comes first and the optimiser's step after it, in place
or in a helper.
Why it matters: the first value of the schedule is skipped, and a warm-up that begins at zero or a milestone comes one
step early. PyTorch warns once and goes on.
Silent when: the optimiser has stepped earlier in the same iteration, or the scheduler gets an explicit epoch.
Fix: step the scheduler after the optimiser, at the end of the iteration.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import here, training, within


@rule("CLW205", "scheduler-before-optimizer", "train.scheduler_cadence", "likely", "backward manual_backward")
def check(script: Script) -> Iterator[Hit]:
    for loop in training(script).loops():
        if not loop.has("backward"):
            continue
        steps = loop.of("step", "scaler_step", "maybe_step")
        plans = [event for event in loop.of("schedule") if event.block is loop.block and within(loop, event)]
        if steps and plans and not plans[0].node.args and all(plans[0].order < step.order for step in steps):
            yield Hit(
                here(script, plans[0]),
                "steps before the optimiser in each iteration, so the schedule's first value is skipped.",
            )
