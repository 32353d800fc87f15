"""Gradients of several batches are added up without dividing the loss.

What it sees: a training loop that steps and clears only every so many batches, while the loss goes into backward
undivided.
Why it matters: the step follows the sum, so it is larger by the number of accumulated batches. What looks like a
larger batch at the same rate is a larger rate.
Silent when: the loss is divided or multiplied anywhere, summed on purpose, or a library does the accumulating.
Fix: divide the loss by the number of accumulated batches.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Block, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import Event, Loop, here, training


@rule("CLW210", "accumulation-unscaled", "train.grad_accum_unscaled", "likely", "backward manual_backward")
def check(script: Script) -> Iterator[Hit]:
    for loop in training(script).training():
        gate = accumulates(loop) or skipped(loop)
        if gate is None:
            continue
        for event in loop.of("backward"):
            if event.block is loop.block and not event.through and undivided(script, event):
                yield Hit(
                    here(script, event),
                    f"{period(gate)} batches accumulate into one step, but the loss is not divided by that number.",
                )

    yield from nested(script)
    yield from in_function(script)
    yield from per_call(script)


def per_call(script: Script) -> Iterator[Hit]:
    """A step that is called once per batch, counts its calls, and steps the optimiser at every n-th."""
    for scope in script.module.scopes:
        if scope.kind != "function" or scope.loops or not training(script).computes(scope):
            continue
        events = [event for event in training(script).events(scope) if not event.through]
        back = [event for event in events if event.kind == "backward"]
        rest = [event for event in events if event.kind in ("step", "scaler_step", "zero", "maybe_step")]
        if len(back) != 1 or back[0].block is not scope.body or {event.kind for event in rest} < {"zero"} or not rest:
            continue
        gates = {gate(event.block, scope.body) for event in rest}
        found = gates.pop() if len(gates) == 1 else None
        if found is not None and len(rest) > 1 and undivided(script, back[0]):
            told = (
                f"every {period(found)} batches accumulate into one step, but the loss is not divided by that number."
            )
            yield Hit(back[0].node, told)


def in_function(script: Script) -> Iterator[Hit]:
    """The same as a function that takes one step: zero_grad, a loop over parts of the batch, step."""
    for scope in script.module.scopes:
        if scope.kind != "function" or not scope.loops or not training(script).computes(scope):
            continue
        events = training(script).events(scope)
        outside = [event for event in events if event.block is scope.body and not event.through]
        kinds = [event.kind for event in outside if event.kind in ("zero", "step", "scaler_step")]
        back = [event for event in events if event.kind == "backward" and not event.through]
        if kinds not in (["zero", "step"], ["zero", "scaler_step"], ["step", "zero"]) or len(back) != 1:
            continue
        near = back[0].block.loops()
        if len(near) == 1 and back[0].block is near[0] and micro(near[0]) and undivided(script, back[0]):
            count = ast.unparse(near[0].node.iter)  # type: ignore[attr-defined]
            yield Hit(back[0].node, f"{count} accumulates into one step, and the loss is not divided by that number.")


def nested(script: Script) -> Iterator[Hit]:
    """zero_grad, a loop over micro-batches with backward, step."""
    for outer in training(script).loops():
        steps = [event for event in outer.of("step", "scaler_step") if event.block is outer.block]
        zeros = [event for event in outer.of("zero") if event.block is outer.block]
        back = [event for event in outer.of("backward") if not event.through and event.block is not outer.block]
        if len(steps) != 1 or len(zeros) != 1 or len(back) != 1:
            continue
        near = back[0].block.loops()
        if len(near) < 2 or near[1] is not outer.block or back[0].block is not near[0] or not micro(near[0]):
            continue
        if undivided(script, back[0]) and not steps[0].through:
            count = ast.unparse(near[0].node.iter)  # type: ignore[attr-defined]
            yield Hit(back[0].node, f"{count} accumulates into one step, and the loss is not divided by that number.")


def micro(block: Block) -> bool:
    """range(accumulate), range(micro): a number of batches, and not tasks, views or time steps."""
    if not isinstance(block.node, ast.For):
        return False
    said = ast.unparse(block.node.iter).lower()
    if any(word in said for word in (".chunk(", ".tensor_split(", "micro")):
        return True
    return said.startswith("range(") and any(word in said for word in ("accum", "micro", "grad_", "chunk", "virtual"))


def accumulates(loop: Loop) -> ast.If | None:
    """The condition `i % n == 0` under which the loop both steps and clears, while backward runs every time."""
    steps, zeros = loop.of("step", "scaler_step"), loop.of("zero")
    if not steps or not zeros or any(event.block is loop.block for event in zeros):
        return None
    gates = {gate(event.block, loop.block) for event in (*steps, *zeros)}
    return gates.pop() if len(gates) == 1 else None


def skipped(loop: Loop) -> ast.If | None:
    """if i % n != 0: continue, after backward and before the loop both steps and clears."""
    rest = loop.of("step", "scaler_step", "zero")
    back = loop.of("backward")
    if {event.kind for event in rest} < {"zero", "step"} or any(event.block is not loop.block for event in rest):
        return None
    for node in getattr(loop.block.node, "body", ()) if back else ():
        leaves = isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Continue)
        if leaves and isinstance(node, ast.If) and modulo(node.test) is not None:
            order = loop.block.scope.module.where(node).order
            if back[-1].order[0] < order < min(event.order[0] for event in rest):
                return node
    return None


def gate(block: Block, loop: Block) -> ast.If | None:
    for at in block.chain():
        if at is loop:
            return None
        if at.kind == "if" and isinstance(at.node, ast.If):
            test = behind(at.node.test, at)
            if modulo(test) is not None or counter(at.node) is not None:
                return at.node
    return None


def behind(test: ast.expr, block: Block) -> ast.expr:
    """The condition that was given a name: last = (i + 1) % n == 0; if last: ..."""
    defs = block.scope.defs.get(test.id, []) if isinstance(test, ast.Name) else []
    plain = len(defs) == 1 and defs[0].how == "=" and not defs[0].path and isinstance(defs[0].value, ast.expr)
    return defs[0].value if plain else test


def counter(node: ast.If) -> ast.expr | None:
    """The number n of `if pending == n: ...; pending = 0`."""
    test = node.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.GtE):
        return None
    if not isinstance(test.left, ast.Name | ast.Attribute) or isinstance(test.comparators[0], ast.Call):
        return None
    said = f"{ast.unparse(test.left)} = 0"
    reset = any(isinstance(part, ast.Assign) and ast.unparse(part) == said for part in node.body)
    return test.comparators[0] if reset else None


def modulo(test: ast.AST) -> ast.BinOp | None:
    return next((node for node in ast.walk(test) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)), None)


def period(gate: ast.If) -> str:
    found = modulo(gate.test)
    number = found.right if found is not None else counter(gate)
    return ast.unparse(number) if number is not None else "few"


def undivided(script: Script, event: Event) -> bool:
    func = event.node.func
    base = func.value
    if func.attr == "manual_backward" and len(event.node.args) == 1:
        return not scaled(event.node.args[0], script.where(event.node), 5)
    if event.node.args or script.mentions("accelerator", "Accelerator", "fabric", "Fabric", "deepspeed"):
        return False
    return not scaled(base, script.where(event.node), 5)


def scaled(node: Any, where: Where, deep: int) -> bool:
    """Whether a loss is divided, multiplied, or comes out of something that may have done so."""
    if deep == 0:
        return True
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Div | ast.Mult):
            return True
        return all(scaled(side, where, deep - 1) for side in (node.left, node.right))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "scale" and node.args:
            return scaled(node.args[0], where, deep - 1)
        said = ast.unparse(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("div", "mul", "div_", "mul_", "sum"):
            return True
        return "reduction='sum'" in said or any(word in said for word in ("accum", "scale", "divide"))
    if isinstance(node, ast.Name) and node.id in where.block.scope.defs:
        for made in reaching(where.block.scope.defs[node.id], where):
            if made.how == "aug" and isinstance(made.value.op, ast.Div | ast.Mult):
                return True
            if made.how == "=" and made.path:
                return False
            if made.how == "=" and scaled(made.value, made.where, deep - 1):
                return True
        return False
    return False
