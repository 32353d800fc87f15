"""The loss is scaled, but the optimiser steps without the scaler.

What it sees: scaler.scale(loss).backward() followed by optimizer.step() instead of scaler.step(optimizer).
Why it matters: the gradients keep the loss scale, so the step is thousands of times too large, or overflows are
applied that the scaler would have skipped.
Silent when: the scaler's own step is called anywhere in the function.
Fix: scaler.step(optimizer), then scaler.update().
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.rules.clw208_clip_before_unscale import scaled
from clew.lint.script import Hit, Script, text
from clew.lint.training import here, training


@rule("CLW209", "scaler-bypassed", "num.low_precision", "certain", "GradScaler scaler")
def check(script: Script) -> Iterator[Hit]:
    for scope in script.module.scopes:
        if scope.kind not in ("function", "module"):
            continue
        events = training(script).events(scope)
        if any(event.kind in ("scaler_step", "unscale") for event in events):
            continue
        for at, event in enumerate(events):
            if event.kind != "backward" or not scaled(event):
                continue
            step = next((later for later in events[at + 1 :] if later.kind == "step"), None)
            if step is not None and step.block is event.block:
                name = text(event.node.func.value.func.value)
                fixed = f"{name}.step({step.who})"
                plain = (
                    isinstance(step.node, ast.Call) and not step.node.args and not step.through and name and step.who
                )
                fix = Fix("step through the scaler", False, (script.replace(step.node, fixed),)) if plain else None
                yield Hit(here(script, step), "applies gradients that are still multiplied by the loss scale.", fix=fix)
