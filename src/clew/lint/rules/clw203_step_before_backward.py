"""The optimiser steps before there are gradients.

What it sees: in one iteration of a training loop, or in one training function, zero_grad, then step, then backward.
Why it matters: the gradients were cleared in the same iteration, so the step changes nothing, and what backward
computes is cleared before anything uses it.
Silent when: zero_grad comes after the step: then the step uses the gradients of the previous iteration.
Fix: step after backward.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import BACKWARD, Event, alike, here, training


@rule("CLW203", "step-before-backward", "train.step_missing", "certain", "backward manual_backward")
def check(script: Script) -> Iterator[Hit]:
    if script.module.calls.keys().isdisjoint(BACKWARD):
        return
    program = training(script)
    for loop in program.training():
        yield from order(script, loop.events)
    for scope in script.module.scopes:
        if scope.kind == "function" and not scope.loops:
            yield from order(script, program.events(scope))


def order(script: Script, events: list[Event]) -> Iterator[Hit]:
    backward = [event for event in events if event.kind == "backward"]
    steps = [event for event in events if event.kind in ("step", "scaler_step")]
    zeros = [event for event in events if event.kind == "zero"]
    if len(backward) != 1 or len(steps) != 1 or not zeros:
        return
    if (
        alike(steps[0], backward[0])
        and zeros[0].order < steps[0].order < backward[0].order
        and zeros[0].who == steps[0].who
        and not any(steps[0].order < zero.order for zero in zeros)
    ):
        yield Hit(here(script, steps[0]), "steps before backward: the gradients were cleared and are not computed yet.")
