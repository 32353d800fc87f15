"""The model is validated in training mode.

What it sees: a loop over held-out data that applies the model, in a file that also trains it, with no eval() on any
way to the loop; held-out data that goes through the model in one piece, under no_grad; one function for training and
validation that calls train(), or eval(), for both.
Why it matters: dropout still drops and batch normalisation still uses, and updates from, the held-out batches. The
score is worse, noisy, and depends on the batch size; the running statistics have seen the validation data.
Silent when: eval() or train(flag) is called before the loop, here or by a caller, or no layer of the model in sight
changes with the mode.
Fix: model.eval() before the loop, model.train() after it.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.conditions import spelled
from clew.lint.data import side
from clew.lint.given import argument
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, here, training
from clew.lint.validation import MEASURES, NAMED, NOT_LOOPS, applied, has_modes, prepared, validations


@rule(
    "CLW301",
    "no-eval-in-validation",
    "train.train_mode_in_eval",
    "likely",
    "backward manual_backward no_grad inference_mode validation_step",
)
def check(script: Script) -> Iterator[Hit]:
    yield from shared(script)
    yield from in_steps(script)
    if script.mentions("backward", "manual_backward") and script.mentions("no_grad", "inference_mode"):
        yield from at_once(script)
    for found in validations(script):
        scope = found.loop.block.scope
        modes = has_modes(script, found.call)
        if modes is False or script.arg(found.call, -1, "training") is not None:
            continue
        state = prepared(script, scope, script.where(found.loop.block.node).order)
        if state in ("eval", "set") or found.loop.has("eval", "mode"):
            continue
        here = script.mentions("backward", "manual_backward")
        if state == "" and not here and not loaded(script):
            continue
        sure = modes is True and here
        yield Hit(
            found.loop.block.node,
            f"{found.model} is evaluated on held-out data in training mode: no eval() before this loop.",
            "certain" if sure and state == "train" else "likely" if sure or (here and state == "train") else "look",
        )


ON_PURPOSE = re.compile(r"(^|_)(mc|monte_?carlo|uncertain\w*|stochastic|bayes\w*|ensemble)(_|$)|dropout", re.I)


def at_once(script: Script) -> Iterator[Hit]:
    """guess = model(x_val) under no_grad: all held-out data in one go, without a loop."""
    if script.tests:
        return
    loops = {found.loop.block for found in validations(script)}
    for scope in script.module.scopes:
        if scope.name in NOT_LOOPS or ON_PURPOSE.search(scope.name) or not may_be_quiet(script, scope):
            continue
        for call in scope.calls:
            if not text(call.func) or not (call.args or call.keywords) or not held_out(script, scope, call):
                continue
            where = script.where(call)
            if loops.intersection(where.block.loops()) or script.grad_off(where) is None:
                continue
            if not (model := applied(script, call)) or has_modes(script, call) is not True:
                continue
            state = prepared(script, scope, where.order)
            if state not in ("eval", "set") and script.arg(call, -1, "training") is None:
                says = f"{model} is evaluated on held-out data in training mode: no eval() before this."
                yield Hit(call, says, "likely")
                break


def may_be_quiet(script: Script, scope: Scope) -> bool:
    """Cheaply: does anything here switch gradients off?"""
    return bool(scope.withs) or any(script.grad_state(one) is False for one in scope.decorators())


def held_out(script: Script, scope: Scope, call: ast.Call) -> bool:
    """Whether a name says that the data was held out: that of the function, of the argument, or at a caller."""
    if scope.kind == "function" and NAMED.search(scope.name.replace("_", " ")):
        return True
    for arg in call.args:
        name = text(arg)
        if name and (NAMED.search(name) or side(name.rsplit(".", 1)[-1]) == "out"):
            return True
        if name in scope.params and scope.kind == "function" and MEASURES.search(scope.name):
            given = [argument(one, scope, name) for one, _ in script.project.callers(scope)]
            if any(one is not None and side(text(one).rsplit(".", 1)[-1]) == "out" for one in given):
                return True
    return False


def in_steps(script: Script) -> Iterator[Hit]:
    """self.train() in the validation_step of Lightning."""
    for cls in script.module.classes if script.mentions("validation_step", "test_step") else ():
        for name in ("validation_step", "test_step", "on_validation_start", "on_validation_epoch_start"):
            step = cls.methods.get(name)
            for call in step.calls if step is not None else ():
                on = step is not None and text(call.func) == f"{step.me}.train" and not call.args and not call.keywords
                if on and script.is_module(cls):
                    yield Hit(call, "puts the model into training mode during validation.")


def shared(script: Script) -> Iterator[Hit]:
    """One function for both phases, which sets one mode for both."""
    if not script.mentions("backward", "manual_backward") or not script.mentions("train", "eval"):
        return
    for scope in script.module.scopes:
        if scope.kind not in ("function", "module"):
            continue
        events = training(script).events(scope)
        back = [event for event in events if event.kind == "backward" and not event.maybe]
        modes = [event for event in events if event.kind in ("train", "eval", "mode")]
        switch = phase(script, back[0], scope) if back else ""
        if switch and modes and all(event.kind == "train" and under(event, back[0], scope) for event in modes):
            if phases(scope, switch) or both(script, scope, switch):
                says = f"sets the mode for training only: the other value of {switch} leaves it in training mode."
                yield Hit(here(script, modes[0]), says)
            continue
        if not switch or len({event.kind for event in modes}) != 1 or modes[0].kind == "mode":
            continue
        # A mode that is set under a condition is set on purpose.
        if any(event.maybe or conditional(event) for event in modes) or modes[0].order > back[0].order:
            continue
        if not phases(scope, switch) and not both(script, scope, switch):
            continue
        if phases(scope, switch) and scope.defs[switch][0].where.block not in modes[0].block.chain():
            continue
        which, cause = ("training", "") if modes[0].kind == "train" else ("evaluation", "train.eval_mode_in_training")
        says = f"runs for both values of {switch}: training and validation both happen in {which} mode."
        yield Hit(here(script, modes[0]), says, cause=cause)


def under(event: Event, back: Event, scope: Scope) -> bool:
    """Whether a mode is set under the same condition as backward, and nothing is set otherwise."""
    tests = [block.node.test for block in event.block.chain() if block.kind == "if" and isinstance(block.node, ast.If)]
    others = [block.node.test for block in back.block.chain() if block.kind == "if" and isinstance(block.node, ast.If)]
    held = {ast.unparse(spelled(test, Where(scope.body, 1 << 60))) for test in others}
    found = {ast.unparse(spelled(test, Where(scope.body, 1 << 60))) for test in tests}
    blocks = [block for block in event.block.chain() if block.kind == "if" and isinstance(block.node, ast.If)]
    return bool(found & held) and not any(block.node.orelse for block in blocks)  # type: ignore[attr-defined]


def phase(script: Script, back: Event, scope: Scope) -> str:
    """The parameter that says whether to train: backward hangs on it."""
    for block in back.block.chain():
        if block.kind != "if" or not isinstance(block.node, ast.If):
            continue
        test = spelled(block.node.test, script.where(block.node))
        name = test.left if isinstance(test, ast.Compare) else test
        if isinstance(name, ast.Name) and (name.id in scope.params or phases(scope, name.id)):
            return name.id
    return ""


def phases(scope: Scope, name: str) -> bool:
    """for phase in ("train", "val")"""
    defs = scope.defs.get(name, [])
    words = defs[0].value.elts if len(defs) == 1 and isinstance(defs[0].value, ast.Tuple | ast.List) else []
    told = [word.value for word in words if isinstance(word, ast.Constant)]
    return bool(defs) and defs[0].how == "for" and "train" in told and len(told) > 1


def conditional(event: Event) -> bool:
    return any(block.kind in ("if", "else") for block in event.block.chain())


def both(script: Script, scope: Scope, switch: str) -> bool:
    """Whether callers give the switch different values, or one leaves it at its default and another does not."""
    given = set()
    for call, _ in script.project.callers(scope):
        arg = argument(call, scope, switch)
        given.add("" if arg is None else ast.unparse(arg) if isinstance(arg, ast.Constant) else "*")
        if isinstance(arg, ast.Name):
            return True  # for phase in ("train", "val")
    return len(given) > 1


def loaded(script: Script) -> bool:
    """Whether the file takes a trained model from disk, to test it."""
    return script.mentions("load_state_dict")
