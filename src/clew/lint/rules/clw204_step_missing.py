"""Gradients are computed and no optimiser ever steps.

What it sees: a training loop with backward and zero_grad of an optimiser that is made in this file and never stepped
in it, never passed on and never returned; in Lightning, one of two optimisers that is cleared and never stepped.
Why it matters: the parameters never move. The loss only shows the noise of the batches.
Silent when: the optimiser leaves the file, or something else may step it.
Fix: call step after backward.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Scope
from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, Loop, here, training


@rule("CLW204", "step-missing", "train.step_missing", "certain", "backward manual_backward step")
def check(script: Script) -> Iterator[Hit]:
    for loop in training(script).training():
        if loop.has("maybe_step", "distributed") or not loop.has("zero"):
            continue
        name = kept(script, loop)
        if name:
            event = loop.of("backward")[0]
            yield Hit(here(script, event), f"computes gradients that nothing uses: {name} never steps.")

    yield from one_of_two(script)
    if script.module.names.isdisjoint(("backward", "manual_backward", "grad", "minimize", "engine")):
        yield from never_computed(script)


def one_of_two(script: Script) -> Iterator[Hit]:
    """With manual optimisation in Lightning: two optimisers at hand, both cleared, one stepped."""
    for scope in script.module.scopes:
        if scope.name != "training_step":
            continue
        events = training(script).events(scope)
        stepped = [event.who for event in events if event.kind in ("step", "maybe_step", "scaler_step")]
        for event in events:
            if event.kind == "zero" and event.who in scope.defs and stepped and not used(script, event):
                later = [other for other in events if other.kind == "backward" and other.order > event.order]
                if later:
                    yield Hit(here(script, later[0]), f"computes gradients that nothing uses: {event.who} never steps.")


def never_computed(script: Script) -> Iterator[Hit]:
    """Steps in a file that nowhere computes gradients, with a loss at hand."""
    losses = {script.scope(loss.node) for loss in loss_calls(script)}
    for loop in training(script).loops():
        for event in loop.of("step"):
            known = event.value is not None and event.value.name.startswith("torch.optim.")
            if known and not event.through and not event.node.args and loop.block.scope in losses:
                yield Hit(event.node, "steps, but nothing in this file computes gradients: backward is never called.")


def kept(script: Script, loop: Loop) -> str:
    """The optimiser that is cleared in the loop, when it is made in this file and nothing but this loop uses it."""
    for event in loop.of("zero"):
        func = event.node.func if isinstance(event.node, ast.Call) and event.node in script.module.up else None
        values = script.value(func.value) if isinstance(func, ast.Attribute) else ()
        if (
            len(values) == 1
            and values[0].kind == "instance"
            and values[0].name.startswith("torch.optim.")
            and not used(script, event)
        ):
            return event.who
    return ""


def used(script: Script, event: Event) -> bool:
    """Whether the optimiser steps or goes anywhere else; a local variable can only do so in its own function."""
    local = event.block.scope if "." not in event.who and event.who in event.block.scope.defs else None
    for node in script.loads(event.who):
        if (
            not isinstance(node, ast.Name | ast.Attribute)
            or text(node) != event.who
            or not isinstance(node.ctx, ast.Load)
        ):
            continue
        if local is not None and not inside(script.scope(node), local):
            continue
        above = script.module.up[node]
        if not isinstance(above, ast.Attribute) or above.attr not in ("zero_grad", "param_groups", "state_dict"):
            return True
    return False


def inside(scope: Scope | None, outer: Scope) -> bool:
    while scope is not None:
        if scope is outer:
            return True
        scope = scope.parent
    return False
