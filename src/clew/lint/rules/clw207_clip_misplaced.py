"""Gradients are clipped when there is nothing to clip, or too late.

What it sees: in a loop with one backward and one step, clipping before backward or after the step.
Why it matters: before backward it clips what is left from the previous iteration, or nothing; after the step it changes
gradients that have been used. Either way the step is not clipped, and the first bad batch throws the model far off.
Silent when: the loop has several losses or optimisers, or clips in the right place too.
Fix: clip between backward and step.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import BACKWARD, Event, alike, here, training

CLIPS = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_gradients")


@rule(
    "CLW207",
    "clip-misplaced",
    "train.clip_misplaced",
    "certain",
    "clip_grad_norm_ clip_grad_value_ clip_grad_norm clip_gradients backward",
)
def check(script: Script) -> Iterator[Hit]:
    if not any(name in script.module.calls for name in (*BACKWARD, *CLIPS)):
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
    clips = [event for event in events if event.kind == "clip"]
    if len(backward) > 1:
        yield from just_cleared(script, events)
    if len(backward) != 1 or len(steps) != 1 or len(clips) != 1:
        return
    clip = clips[0]
    if not alike(backward[0], steps[0]) or backward[0].order > steps[0].order:
        return
    # `if self.clip:` around the clipping alone changes nothing about when it happens.
    gate = clip.block.parent if clip.block.kind == "if" and clip.block is not steps[0].block else clip.block
    if gate is not steps[0].block or clip.looped or (clip.maybe and not clip.through):
        return
    if clip.order < backward[0].order:
        yield Hit(here(script, clip), "clips before backward: the gradients of this batch do not exist yet.")
    elif clip.order > steps[0].order:
        yield Hit(here(script, clip), "clips after the step: the gradients have been used already.")


def just_cleared(script: Script, events: list[Event]) -> Iterator[Hit]:
    """opt.zero_grad(); clip(...); loss.backward(): with several losses in one loop."""
    plain = [event for event in events if event.kind in ("zero", "clip", "backward", "step", "scaler_step")]
    for before, clip, after in zip(plain, plain[1:], plain[2:], strict=False):
        kinds = (before.kind, clip.kind, after.kind)
        if kinds == ("zero", "clip", "backward") and alike(before, clip) and alike(clip, after):
            yield Hit(here(script, clip), "clips before backward: the gradients of this batch do not exist yet.")
