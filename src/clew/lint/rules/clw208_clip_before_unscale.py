"""Scaled gradients are clipped.

What it sees: a loss scaled by a GradScaler, clipping before its step, and no unscale_ between.
Why it matters: the gradients are larger by the loss scale, often 65536, so clipping to a norm of one always fires and
shrinks every step to almost nothing.
Silent when: unscale_ comes first, or the scaler is switched off by a constant.
Fix: scaler.unscale_(optimizer) before clipping.
"""

import ast
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, alike, here, training


@rule("CLW208", "clip-before-unscale", "train.clip_misplaced", "certain", "clip_grad_norm_ clip_grad_value_")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("scale") or script.mentions("unscale_gradients"):
        return
    for scope in script.module.scopes:
        if scope.kind not in ("function", "module"):
            continue
        events = training(script).events(scope)
        told = False
        for at, event in enumerate(events):
            if event.kind == "backward" and scaled(event):
                for hit in after(script, events[at + 1 :], event):
                    told = True
                    yield hit
        if not told:
            yield from swapped(script, events)


def swapped(script: Script, events: list[Event]) -> Iterator[Hit]:
    """clip, then unscale_, then the scaler's step, one after the other in one stretch of code."""
    for at, event in enumerate(events):
        if event.kind != "clip" or (event.through and event.through[0] not in script.module.up):
            continue
        rest = events[at + 1 : at + 3]
        if [later.kind for later in rest] == ["unscale", "scaler_step"] and all(alike(event, one) for one in rest):
            yield Hit(here(script, event), "clips before unscale_: the limit is compared with scaled gradients.")


def scaled(event: Event) -> bool:
    base = (
        event.node.func.value
        if isinstance(event.node, ast.Call) and isinstance(event.node.func, ast.Attribute)
        else None
    )
    return (
        isinstance(base, ast.Call)
        and isinstance(base.func, ast.Attribute)
        and base.func.attr == "scale"
        and "scaler" in text(base.func).lower()
    )


def after(script: Script, events: list[Event], backward: Event) -> Iterator[Hit]:
    for event in events:
        if event.kind in ("unscale", "backward", "step", "scaler_step"):
            return
        if event.kind == "clip":
            step = next((later for later in events if later.kind == "scaler_step"), None)
            if (
                step is not None
                and step.block.scope is backward.block.scope
                and event.block.loops() == backward.block.loops()
            ):
                yield Hit(
                    here(script, event),
                    "clips gradients that are still multiplied by the loss scale: unscale_ them first.",
                    fix=fix(script, event, step),
                )
            return


def fix(script: Script, clip: Event, step: Event) -> Fix | None:
    statement = script.statement(clip.node) if clip.node in script.module.up else None
    if not isinstance(statement, ast.Expr) or not step.node.args or not step.who:
        return None
    indent = " " * statement.col_offset
    line = f"{step.who}.unscale_({script.source(step.node.args[0])})\n{indent}"
    return Fix("unscale before clipping", True, (script.before(statement, line),))
