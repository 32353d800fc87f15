"""Gradients of earlier steps leak into this one.

What it sees: a loop that calls backward and an optimiser's step, in place or through helpers and closures of the
project, and in which nothing clears the gradients; also a training function without a loop in a file that never
clears them.
Why it matters: `.grad` is a running sum. Without clearing, each step follows the total of all batches so far, which
acts like a momentum that never decays: the loss falls at first, then oscillates or diverges.
Silent when: anything in the loop clears gradients (zero_grad, grad = None, zeroing in place), under distributed
autograd, whose gradients live in a context, or when the optimiser is handed to code that is not in sight.
Fix: call zero_grad before backward.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, Loop, here, training, within

STEPS = ("step", "scaler_step")


@rule("CLW201", "missing-zero-grad", "train.missing_zero_grad", "certain", "backward manual_backward")
def check(script: Script) -> Iterator[Hit]:
    program = training(script)
    seen: set[ast.AST] = set()
    for loop in program.training():
        steps = loop.of(*STEPS)
        if loop.has("zero") and not loop.has("distributed") and not hidden(script, loop):
            yield from one_of_several(script, loop, steps)
            yield from now_and_then(script, loop, steps)
        if not steps or loop.has("zero", "distributed") or hidden(script, loop) or once(loop):
            continue
        event = loop.of("backward")[0]
        if event.node in seen or any(fresh(step, loop) for step in steps):
            continue
        seen.add(event.node)
        before = [e for e in program.events(loop.block.scope) if e.kind == "zero"]
        late = " (they are cleared only outside this loop)" if before else ""
        yield Hit(
            here(script, event),
            f"adds to the gradients of earlier steps; nothing in this loop clears them{late}.",
            "likely" if before else "",
        )
    yield from in_windows(script, seen)
    yield from by_hand(script)
    if "zero_grad" in script.module.names or "zero_" in script.module.names or "grad" in script.module.names:
        return
    for scope in script.module.scopes:
        yield from alone(script, scope, seen)


def by_hand(script: Script) -> Iterator[Hit]:
    """g_opt, d_opt = self.optimizers() in Lightning: one of them steps and is never cleared."""
    for scope in script.module.scopes if script.mentions("automatic_optimization") and not script.tests else ():
        if scope.name != "training_step" or scope.kind != "function":
            continue
        events = training(script).events(scope)
        cleared = {event.who for event in events if event.kind == "zero"}
        whole = any(event.through or event.looped for event in events if event.kind == "zero")
        steps = [event for event in events if event.kind in (*STEPS, "maybe_step") and event.who in scope.defs]
        back = [event for event in events if event.kind == "backward"]
        for event in steps if cleared and not whole else ():
            before = [one for one in back if one.order < event.order]
            if event.who not in cleared and before and not event.maybe:
                yield Hit(before[-1].node, f"adds to the gradients of earlier steps; nothing clears {event.who}.")


def in_windows(script: Script, seen: set[ast.AST]) -> Iterator[Hit]:
    """A loop over updates with a loop over micro-batches in it, and no clearing in either."""
    for loop in training(script).loops():
        steps = [event for event in loop.of(*STEPS) if event.block is loop.block and not event.through]
        inner = [
            event for event in loop.of("backward") if event.block.loops()[:1] != [loop.block] and not event.through
        ]
        if len(steps) != 1 or not inner or loop.has("zero", "distributed") or hidden(script, loop) or once(loop):
            continue
        near = inner[0].block.loops()
        if inner[0].node in seen or fresh(steps[0], loop) or len(near) < 2 or near[1] is not loop.block:
            continue
        if steps[0].order > inner[0].order:
            seen.add(inner[0].node)
            yield Hit(inner[0].node, "adds to the gradients of all earlier updates; nothing clears them after a step.")


def now_and_then(script: Script, loop: Loop, steps: list[Event]) -> Iterator[Hit]:
    """A step in every turn, and clearing only in every nth."""
    zeros = loop.of("zero")
    if len(zeros) != 1 or len(steps) != 1 or not within(loop, steps[0]) or zeros[0].through or zeros[0].looped:
        return
    gates = [block for block in zeros[0].block.chain() if block.kind == "if" and loop.block in block.chain()]
    counts = any(
        isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod)
        for block in gates[:1]
        if isinstance(block.node, ast.If)
        for part in ast.walk(block.node.test)
    )
    if counts and len(gates) == 1:
        yield Hit(
            here(script, zeros[0]),
            "clears only now and then, while every iteration steps on everything accumulated since.",
            "likely",
        )


def one_of_several(script: Script, loop: Loop, steps: list[Event]) -> Iterator[Hit]:
    """An optimiser that steps and is never cleared, beside others that are."""
    zeros = loop.of("zero")
    cleared = {event.who for event in zeros}
    owners = {name for event in zeros for name in held_by(event)}
    if "" in cleared or any(not isinstance(event.node, ast.Call) or event.through for event in zeros):
        return
    for step in steps:
        own = held_by(step)
        if (
            step.kind == "step"
            and own
            and not step.through
            and step.who not in cleared
            and not own & (cleared | owners)
        ):
            yield Hit(here(script, step), f"{step.who} steps, but nothing in this loop clears its gradients.", "likely")


def held_by(event: Event) -> set[str]:
    """The models whose parameters the optimiser of an event holds."""
    value = event.value
    if value is None or value.kind != "instance" or not isinstance(value.node, ast.Call):
        return set()
    return {
        text(part.value)
        for part in ast.walk(value.node)
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters")
    }


def alone(script: Script, scope: Scope, seen: set[ast.AST]) -> Iterator[Hit]:
    """A function that trains one step and leaves the loop to others."""
    if scope.kind != "function" or scope.loops or not training(script).computes(scope):
        return
    events = training(script).events(scope)
    kinds = {event.kind for event in events}
    known = any(
        (event.value is not None and event.value.kind == "instance")
        or (scope.name == "training_step" and scope.cls is not None and not event.through)
        for event in events
        if event.kind in STEPS
    )
    if "backward" in kinds and known and not kinds & {"zero", "distributed"}:
        event = next(event for event in events if event.kind == "backward")
        if event.node not in seen and not event.through and len(scope.params) > 0 and "test" not in scope.name:
            seen.add(event.node)
            yield Hit(event.node, "adds to the gradients of earlier steps; nothing in this file clears them.", "likely")


def hidden(script: Script, loop: Loop) -> bool:
    """Whether code that is not in sight may clear the gradients."""
    held = {event.who for event in loop.of(*STEPS)}
    held |= {name.split(".", 1)[-1] for name in held}
    for call in loop.block.scope.calls:
        block = script.module.where(call).block if call in script.module.up else None
        if block is None or loop.block not in block.chain():
            continue
        name = text(call.func).rsplit(".", 1)[-1]
        if name != "zero_grad" and any(word in name for word in ("zero_", "clear", "accumulate")):
            return True
        if any(text(arg) in held for arg in (*call.args, *(word.value for word in call.keywords))):
            values = script.value(call.func)
            known = all(
                value.kind == "function" or (value.kind in ("ref", "attr", "instance") and safe(value.name, name))
                for value in values
            )
            if not known:
                return True
    return False


def safe(dotted: str, name: str) -> bool:
    return dotted.startswith(("torch.", "builtins.")) or name in (
        "step",
        "unscale_",
        "save",
        "append",
        "clip_grad_norm_",
    )


def fresh(step: Event, loop: Loop) -> bool:
    """An optimiser that each turn makes anew, with its model, has nothing left to clear."""
    made = step.value.where if step.value is not None else None
    return made is not None and loop.block in made.block.chain()


def once(loop: Loop) -> bool:
    """A loop that ends in its first turn."""
    body = getattr(loop.block.node, "body", [])
    return bool(body) and isinstance(body[-1], ast.Break | ast.Return)
