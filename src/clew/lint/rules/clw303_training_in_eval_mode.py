"""Training starts in evaluation mode.

What it sees: eval() on a model, then, with no train() between, a loop that computes gradients and steps an optimiser
over that model's parameters.
Why it matters: dropout is off and batch normalisation uses running statistics that never move, so training and the
intended regularisation have little in common.
Silent when: the optimiser holds something else (an input, another model), or train() comes between.
Fix: model.train() before the loop.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.index import Def
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, Loop, here, training
from clew.lint.training import trained as trained_models


@rule("CLW303", "training-in-eval-mode", "train.eval_mode_in_training", "likely", "eval backward training_step")
def check(script: Script) -> Iterator[Hit]:
    yield from in_step(script)
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
                Hit(made, f"{name} is put into evaluation mode when it is built, and trained in it.")
                for name in sorted(names)
                if (made := made_in_eval(script, name, loop)) is not None
            )
        for name, off in state.items():
            if name in names and not loop.has("train", "mode"):
                yield Hit(here(script, off), f"{name} is in evaluation mode when the training loop begins.")


def in_step(script: Script) -> Iterator[Hit]:
    """self.eval() in the training_step of Lightning."""
    for cls in script.module.classes if script.mentions("training_step") else ():
        step = cls.methods.get("training_step")
        for call in step.calls if step is not None else ():
            assert step is not None
            later = [one for one in step.calls if text(one.func) == f"{step.me}.train"]
            if text(call.func) == f"{step.me}.eval" and not call.args and not later and script.is_module(cls):
                yield Hit(call, "puts the whole model into evaluation mode in every training step.")


def handed_over(script: Script, made: Def) -> ast.AST | None:
    """The eval() after which a function of the project returns a model; the call, when that is in another file."""
    call = made.value
    at: ast.AST = call
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute) and at.func.attr in ("to", "cuda", "float"):
        at = at.func.value  # load(path).to(device)
    func = helper(script, at, made.where) if isinstance(at, ast.Call) else None
    if func is None or len(func.returns) != 1 or func.yields:
        return None
    given: ast.AST = func.returns[0][0]
    for step in made.path:
        inside = isinstance(given, ast.Tuple) and 0 <= step < len(given.elts)
        given = given.elts[step] if inside and isinstance(given, ast.Tuple) else ast.Constant(None)
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "eval":
        return given if given in script.module.up else call
    name = text(given)
    last = [one for one in training(script).events(func) if one.who == name and one.kind in ("train", "eval", "mode")]
    if not name or not last or last[-1].kind != "eval" or last[-1].maybe:
        return None
    node: ast.AST = last[-1].node
    return node if node in script.module.up else call


def straight(block: object, loop: object) -> bool:
    """Whether the place before the loop is passed on every way to it."""
    return block in loop.chain()  # type: ignore[attr-defined]


def made_in_eval(script: Script, name: str, loop: Loop) -> ast.AST | None:
    """`model = Net().eval()`, or a function that hands it over in this mode, with no train() before the loop."""
    scope = loop.block.scope
    defs = scope.defs.get(name, [])
    cls = script.class_of(scope)
    if cls is not None and name.startswith(f"{scope.me}.") and name.count(".") == 1:
        defs = cls.attrs.get(name.split(".")[1], [])
    if len(defs) == 1 and defs[0].how == "=" and isinstance(defs[0].value, ast.Call):
        handed = handed_over(script, defs[0])
        if handed is not None and not any(one.kind in ("train", "mode") for one in training(script).events(scope)):
            return handed
    value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute) or value.func.attr != "eval":
        return None
    return value if not any(event.kind in ("train", "mode") for event in training(script).events(scope)) else None
