"""An update by hand changes a name, not the parameters.

What it sees: in a loop over a model's parameters, the loop variable is bound to a new value computed from itself and
its gradient, or from the parameters of another model, as when a target network is to follow.
Why it matters: the assignment binds the name to a new tensor and leaves the parameter as it was. The loop runs, and
the model never moves.
Silent when: the update is in place, through .data, copy_, add_ or sub_, or the new values are collected and used.
Fix: under no_grad, p.sub_(lr * p.grad) or p -= lr * p.grad.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TARGET = re.compile(r"target|(^|[_.])(targ|tgt)([_.\d]|$)", re.I)
AVERAGE = re.compile(r"ema|av(era)?g|teacher|shadow|swa", re.I)


@rule("CLW223", "update-without-effect", "train.step_missing", "certain", "parameters named_parameters")
def check(script: Script) -> Iterator[Hit]:
    for loop in script.module.statements.get(ast.For, []):
        yield from averaged(loop, values_actions(script))
        func = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("parameters", "named_parameters"):
            continue
        target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
        name = text(target)
        for node in loop.body:
            if isinstance(node, ast.Assign) and text(node.targets[0]) == name and steps(node.value, name):
                after = loop.body[loop.body.index(node) + 1 :]
                if not kept(after, name):
                    yield Hit(node, f"binds {name} to a new tensor; the parameter itself does not change.")


def kept(body: list[ast.stmt], name: str) -> bool:
    """Whether anything but the gradient is read of a name."""
    uses = sum(isinstance(part, ast.Name) and part.id == name for one in body for part in ast.walk(one))
    asked = sum(text(part) == f"{name}.grad" for one in body for part in ast.walk(one))
    return uses > asked


def values_actions(script: Script) -> bool:
    """Whether the file discounts what actions lead to: what follows a network there is what its targets come from."""
    return script.speaks("gamma", "discount") and script.speaks("reward", "actor", "critic", "policy", "next_q")


def averaged(loop: ast.For, agent: bool) -> Iterator[Hit]:
    """for s, p in zip(ema.parameters(), model.parameters()): s = 0.99 * s + 0.01 * p"""
    call = loop.iter if isinstance(loop.iter, ast.Call) and text(loop.iter.func) == "zip" else None
    target = loop.target
    if call is None or not isinstance(target, ast.Tuple) or len(target.elts) != len(call.args):
        return
    names = [text(item) for item in target.elts]
    if not all(
        isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute) and arg.func.attr in ("parameters", "buffers")
        for arg in call.args
    ):
        return
    for at, node in enumerate(loop.body):
        name = text(node.targets[0]) if isinstance(node, ast.Assign) else ""
        if name not in names or not isinstance(node, ast.Assign):
            continue
        later = {part.id for one in loop.body[at + 1 :] for part in ast.walk(one) if isinstance(part, ast.Name)}
        said = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        others = said & set(names) - {name}
        if name not in later and others:
            arg = call.args[names.index(name)]
            owner = text(arg.func.value) if isinstance(arg, ast.Call) and isinstance(arg.func, ast.Attribute) else ""
            cause = "rl.target_network" if TARGET.search(owner) or (agent and not AVERAGE.search(owner)) else ""
            yield Hit(node, f"binds {name} to a new tensor; the parameter itself does not change.", cause=cause)


def steps(node: ast.AST, name: str) -> bool:
    """p - lr * p.grad."""
    words = {text(part) for part in ast.walk(node)}
    return isinstance(node, ast.BinOp) and name in words and (f"{name}.grad" in words or f"{name}.grad.data" in words)
