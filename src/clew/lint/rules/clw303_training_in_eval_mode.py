"""Training starts in evaluation mode.

What it sees: eval() on a model, then, with no train() between, a loop that computes gradients and steps an optimiser
over that model's parameters.
Why it matters: dropout is off and batch normalisation uses running statistics that never move, so training and the
regularisation that was meant have little in common.
Silent when: the optimiser holds something else (an input, another model), or train() comes between.
Fix: model.train() before the loop.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import Event, Loop, here, training
from clew.lint.training import trained as trained_models


@rule("CLW303", "training-in-eval-mode", "train.eval_mode_in_training", "likely", "eval")
def check(script: Script) -> Iterator[Hit]:
    program = training(script)
    for loop in program.training():
        if not loop.has("step", "scaler_step"):
            continue
        names = trained_models(script, loop)
        start = script.where(loop.block.node).order
        state: dict[str, Event] = {}
        for event in program.events(loop.block.scope):
            inside = loop.block in event.block.chain()
            if event.kind == "backward" and inside:
                break
            if event.kind in ("train", "mode"):
                state.clear()
            elif (
                event.kind == "eval"
                and not event.through
                and (inside or (event.order[0] < start and straight(event.block, loop.block)))
            ):
                state[event.who] = event
        if not loop.has("train", "mode"):
            yield from (
                Hit(made, f"{name} is put into evaluation mode where it is made, and trained in it.")
                for name in sorted(names)
                if (made := made_in_eval(script, name, loop)) is not None
            )
        for name, off in state.items():
            if name in names and not loop.has("train", "mode"):
                yield Hit(here(script, off), f"{name} is in evaluation mode when the training loop begins.")


def straight(block: object, loop: object) -> bool:
    """Whether the place before the loop is passed on every way to it."""
    return block in loop.chain()  # type: ignore[attr-defined]


def made_in_eval(script: Script, name: str, loop: Loop) -> ast.AST | None:
    """`model = Net().eval()`, with no train() before the loop."""
    scope = loop.block.scope
    defs = scope.defs.get(name, [])
    value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "eval":
        return None
    return value if not any(event.kind in ("train", "mode") for event in training(script).events(scope)) else None
