"""Gradients are computed and no optimiser ever steps.

What it sees: a training loop with backward and zero_grad of an optimiser that is made in this file and never stepped in
it, never passed on and never returned; one of two optimisers that is cleared and never stepped, also when both are kept
in a dict; a gradient scaler that scales and updates on a path without a step.
Why it matters: the parameters never move. The loss only shows the noise of the batches.
Silent when: the optimiser leaves the file, or something else may step it.
Fix: call step after backward.
"""

import ast
from collections.abc import Iterator

from clew.lint.flow import apart
from clew.lint.index import Scope
from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import OPTIMIZER, Event, Loop, here, training


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
    if script.mentions("update") and script.mentions("scale"):
        yield from scaled_only(script)
    if script.module.names.isdisjoint(("backward", "manual_backward", "grad", "minimize", "engine")):
        yield from never_computed(script)


def one_of_two(script: Script) -> Iterator[Hit]:
    """Two optimisers at hand, both cleared, one stepped."""
    for scope in script.module.scopes:
        if scope.kind != "function" or not training(script).computes(scope):
            continue
        events = training(script).events(scope)
        stepped = [event.who for event in events if event.kind in ("step", "maybe_step", "scaler_step")]
        backward = [event for event in events if event.kind == "backward" and not event.through]
        if not stepped or not backward:
            continue
        for event in events:
            manual = scope.name == "training_step" and event.who in scope.defs
            if event.kind == "zero" and (manual or made_here(event)) and not used(script, event):
                later = [other for other in backward if other.order > event.order]
                if later:
                    yield Hit(here(script, later[0]), f"computes gradients that nothing uses: {event.who} never steps.")
        yield from swapped(script, scope, events)
        for name, key in forgotten_keys(script, events):
            yield Hit(backward[-1].node, f"computes gradients that nothing uses: {name}[{key!r}] never steps.")


def scaled_only(script: Script) -> Iterator[Hit]:
    """scaler.scale(loss).backward(); scaler.update(), and on this way nothing steps."""
    for scope in script.module.scopes:
        if not any(isinstance(call.func, ast.Attribute) and call.func.attr == "scale" for call in scope.calls):
            continue
        events = training(script).events(scope)
        updates = [event for event in events if event.kind == "scaler_update" and not event.through]
        steps = [event for event in events if event.kind in ("step", "scaler_step", "maybe_step")]
        for event in events:
            func = event.node.func if event.kind == "backward" and not event.through else None
            scaled = func.value if isinstance(func, ast.Attribute) else None
            base = scaled.func if isinstance(scaled, ast.Call) else None
            name = text(base.value) if isinstance(base, ast.Attribute) and base.attr == "scale" else ""
            beside = [one for one in updates if one.who == name and one.block in event.block.chain()]
            if not name or not beside or not all(apart(one.block, event.block.chain()) for one in steps):
                continue
            if not goes_on(script, name):
                yield Hit(event.node, f"computes gradients that nothing uses: {name} scales and updates, never steps.")


def goes_on(script: Script, name: str) -> bool:
    """Whether a scaler is handed on, or steps in another place."""
    own = ("scale", "unscale_", "update", "state_dict", "load_state_dict", "get_scale", "is_enabled")
    for node in script.loads(name):
        above = script.parent(node)
        if text(node) == name and not (isinstance(above, ast.Attribute) and above.attr in own):
            return True
    return False


def swapped(script: Script, scope: Scope, events: list[Event]) -> Iterator[Hit]:
    """g_opt.zero_grad(); g_loss.backward(); d_opt.step(), in a function that is handed both optimisers."""
    plain = [event for event in events if not event.through and not event.maybe]
    steps = {event.who for event in plain if event.kind in ("step", "maybe_step", "scaler_step")}
    for at, event in enumerate(plain):
        after = [other.kind for other in plain[at + 1 : at + 3]]
        if event.kind != "zero" or event.who in steps or not OPTIMIZER.search(event.who):
            continue
        if event.who.split(".")[0] not in scope.params or "." in event.who or after[:1] != ["backward"]:
            continue
        follow = plain[at + 2] if len(plain) > at + 2 else None
        twice = follow is not None and sum(other.who == follow.who for other in plain if other.kind == follow.kind) > 1
        if follow is not None and follow.kind in ("step", "maybe_step") and twice and not used(script, event):
            yield Hit(
                follow.node, f"steps {follow.who}, although the gradients were cleared and computed for {event.who}."
            )


def made_here(event: Event) -> bool:
    value = event.value
    return (
        not event.through
        and event.who.startswith("self.")
        and value is not None
        and value.kind == "instance"
        and value.name.startswith("torch.optim.")
    )


def forgotten_keys(script: Script, events: list[Event]) -> Iterator[tuple[str, str]]:
    """Optimisers kept in a dict under words, of which one is never asked for, while another steps."""
    for event in events:
        func = event.node.func if event.kind == "step" and isinstance(event.node, ast.Call) else None
        base = func.value if isinstance(func, ast.Attribute) else None
        if not isinstance(base, ast.Subscript) or not isinstance(script.constant(base.slice), str) or event.through:
            continue
        name = text(base.value)
        values = script.value(base.value)
        table = values[0].node if len(values) == 1 and values[0].kind == "items" else None
        if not isinstance(table, ast.Dict) or not all(isinstance(key, ast.Constant) for key in table.keys):
            continue
        asked = asked_for(script, name)
        if asked is not None:
            for key in table.keys:
                if isinstance(key, ast.Constant) and key.value not in asked:
                    yield name, str(key.value)
            return


def asked_for(script: Script, name: str) -> set[object] | None:
    """The keys under which a dict of optimisers is read; None when it may be read in another way. A loop over all of
    them that only clears gradients steps none."""
    found: set[object] = set()
    for node in script.loads(name):
        if text(node) != name:
            continue
        above = script.module.up[node]
        if isinstance(above, ast.Subscript):
            key = script.constant(above.slice)
            user = script.parent(above)
            if not isinstance(key, str):
                return None
            if not isinstance(user, ast.Attribute) or user.attr != "zero_grad":
                found.add(key)
        elif not only_cleared(script, above):
            return None
    return found


def only_cleared(script: Script, node: ast.AST) -> bool:
    """`for opt in opts.values(): opt.zero_grad()`"""
    call = script.parent(node)
    loop = script.parent(call) if isinstance(call, ast.Call) else None
    if not isinstance(loop, ast.For) or not isinstance(node, ast.Attribute) or node.attr not in ("values", "items"):
        return False
    return all(
        isinstance(part, ast.Expr)
        and isinstance(part.value, ast.Call)
        and isinstance(part.value.func, ast.Attribute)
        and part.value.func.attr == "zero_grad"
        for part in loop.body
    )


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
