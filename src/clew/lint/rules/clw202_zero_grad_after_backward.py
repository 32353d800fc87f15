"""Gradients are cleared between backward and step.

What it sees: backward, then zero_grad of the optimiser that steps next, then its step, all in one stretch of code.
Why it matters: the step sees no gradients. Plain SGD does nothing; Adam with weight decay only shrinks the weights.
Silent when: another optimiser or another model is cleared, or one of the calls is conditional.
Fix: clear before backward.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import Event, alike, here, training


@rule("CLW202", "zero-grad-after-backward", "train.zero_grad_misplaced", "certain", "zero_grad")
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        if scope.kind == "lambda" or scope.kind == "class":
            continue
        events = training(script).events(scope)
        stepped = {event.who for event in events if event.kind in ("step", "scaler_step")}
        cleared = {event.who for event in events if event.kind == "zero"}
        for at, event in enumerate(events):
            if event.kind == "backward":
                yield from between(script, event, events[at + 1 :], len(stepped) == 1 and len(cleared) == 1)


def between(script: Script, backward: Event, later: list[Event], only_one: bool) -> Iterator[Hit]:
    zero = None
    for event in later:
        if event.kind == "backward":
            return
        if event.kind == "zero" and alike(event, backward):
            zero = event
        if event.kind in ("step", "scaler_step"):
            if zero is not None and alike(event, backward) and (event.who == zero.who or only_one):
                yield Hit(
                    here(script, zero),
                    "clears the gradients that backward has just computed, before the step uses them.",
                )
            return
