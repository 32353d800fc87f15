"""Gradients are cleared between backward and step.

What it sees: backward, then zero_grad of the optimiser that steps next, then its step, all in one stretch of code.
Why it matters: the step sees no gradients. Plain SGD does nothing; Adam with weight decay only shrinks the weights.
Silent when: another optimiser or another model is cleared, or one of the calls is conditional.
Fix: clear before backward.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.rules.clw210_accumulation_unscaled import micro
from clew.lint.script import Hit, Script
from clew.lint.training import Event, alike, here, training, within


@rule(
    "CLW202", "zero-grad-after-backward", "train.zero_grad_misplaced", "certain", "zero_grad backward manual_backward"
)
def check(script: Script) -> Iterator[Hit]:
    if script.module.calls.keys().isdisjoint(("zero_grad", "backward", "manual_backward")):
        return  # a class of functions with a backward of their own trains nothing
    for scope in script.module.scopes:
        if scope.kind == "lambda" or scope.kind == "class":
            continue
        events = training(script).events(scope)
        stepped = {event.who for event in events if event.kind in ("step", "scaler_step")}
        cleared = {event.who for event in events if event.kind == "zero"}
        for at, event in enumerate(events):
            if event.kind == "backward":
                yield from between(script, event, events[at + 1 :], len(stepped) == 1 and len(cleared) == 1)

    yield from every_turn(script)


def every_turn(script: Script) -> Iterator[Hit]:
    """zero_grad in every turn of a loop that steps only in every nth one, or in the inner of two loops."""
    for loop in training(script).training():
        zeros = [event for event in loop.of("zero") if within(loop, event)]
        back = [event for event in loop.of("backward") if within(loop, event)]
        steps = loop.of("step", "scaler_step")
        if len(zeros) != 1 or len(back) != 1 or zeros[0].order > back[0].order:
            continue
        says = "clears the gradients before every batch, but steps only after several: the others are lost."
        if len(steps) == 1 and steps[0].order > back[0].order:
            gates = [block for block in steps[0].block.chain() if block.kind == "if" and isinstance(block.node, ast.If)]
            if any(modulo(gate.node.test) for gate in gates if isinstance(gate.node, ast.If)):
                yield Hit(here(script, zeros[0]), says, "likely")
        elif not steps and micro(loop.block):
            outer = loop.block.parent.loops()[:1] if loop.block.parent is not None else []
            for other in training(script).loops():
                if [other.block] == outer and any(event.block is other.block for event in other.of("step")):
                    yield Hit(here(script, zeros[0]), says, "likely")


def modulo(test: ast.AST) -> bool:
    return any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) for node in ast.walk(test))


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
