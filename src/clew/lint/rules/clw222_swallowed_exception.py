"""Errors inside training are caught and dropped.

What it sees: a try around backward or an optimiser's step whose handler for everything, or for RuntimeError, only
passes, continues, counts or prints; contextlib.suppress around the same; for a look, a __getitem__ that gives something
else when an example cannot be read.
Why it matters: a wrong shape, a NaN check or a device error turns into skipped batches. Training goes on, on less
data or on none, and the curve looks like a model that does not learn.
Silent when: the handler raises, tests what happened, frees memory, or catches something narrow such as
KeyboardInterrupt.
Fix: let it raise; catch only what you can name, and count what you skip.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

CATCHES = frozenset(("except",))
BROAD = ("Exception", "BaseException", "RuntimeError", "ValueError", "TypeError", "IndexError")


@rule(
    "CLW222",
    "swallowed-exception",
    "train.swallowed_exception",
    "certain",
    "backward manual_backward training_step __getitem__",
)
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.Try, []):
        handlers = [one for one in node.handlers if broad(one) and all(idle(part) for part in one.body)]
        if not handlers:
            continue
        scope = script.scope(node)
        lines = range(node.body[0].lineno, (node.body[-1].end_lineno or node.body[-1].lineno) + 1)
        held = [event for event in training(script).events(scope) if event.kind in ("backward", "step", "scaler_step")]
        if not any(node is block.node for event in held for block in event.block.chain() if block.kind == "try"):
            continue
        # A try around the whole program, with a message at the end, hides nothing.
        inside = [event for event in held if (event.through or (event.node,))[0].lineno in lines]
        looped = in_loop(script, node) and any(event.block.loops() for event in inside)
        if not looped and not (inside and stepwise(script, node)):
            continue
        for handler in handlers:
            yield Hit(
                handler,
                "training errors are swallowed here: a failed batch counts as trained.",
            )

    yield from suppressed(script)
    yield from replaced(script)
    yield from decorated(script)


def decorated(script: Script) -> Iterator[Hit]:
    """A training step under a decorator of the project that drops whatever it raises."""
    for scope in script.module.scopes:
        items = [item for item in scope.decorators() if drops(script, item, scope)]
        if items and any(one.kind == "backward" for one in training(script).events(scope)):
            for item in items:
                yield Hit(item, "the decorator swallows whatever this training step raises.", "likely")


def drops(script: Script, item: ast.expr, scope: Scope) -> bool:
    """Whether a decorator is a function of the project that drops errors."""
    target = item.func if isinstance(item, ast.Call) else item
    dotted = training(script).brought(target, scope)
    if dotted and not script.project.may_mention(dotted, script.module, CATCHES):
        return False
    values = script.values.value(target, script.where(scope.node), None)
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    tries = [part for part in ast.walk(func.node) if isinstance(part, ast.Try)] if func is not None else []
    return any(
        broad(handler) and all(idle(part) or isinstance(part, ast.Return) for part in handler.body)
        for node in tries
        for handler in node.handlers
    )


def suppressed(script: Script) -> Iterator[Hit]:
    """with contextlib.suppress(RuntimeError): around a training step"""
    for scope in script.module.scopes:
        for block in scope.withs:
            items = block.node.items if isinstance(block.node, ast.With) else []
            calls = [item.context_expr for item in items if isinstance(item.context_expr, ast.Call)]
            broad_ones = [
                call
                for call in calls
                if script.dotted(call.func) == "contextlib.suppress" and any(text(arg) in BROAD for arg in call.args)
            ]
            if not broad_ones:
                continue
            held = [event for event in training(script).events(scope) if block in event.block.chain()]
            if any(event.kind in ("backward", "step", "scaler_step") for event in held):
                yield Hit(broad_ones[0], "training errors are swallowed here: a failed batch counts as trained.")


def replaced(script: Script) -> Iterator[Hit]:
    """A data set whose __getitem__ gives something else when an example cannot be read."""
    for node in script.module.statements.get(ast.Try, []):
        scope = script.scope(node)
        if scope.name == "training_step" and any(isinstance(part, ast.Return) for part in node.body):
            for handler in node.handlers:
                if broad(handler) and all(idle(statement) for statement in handler.body):
                    yield Hit(handler, "errors of the training step are swallowed: a failed batch is skipped silently.")
        if scope.name != "__getitem__" or scope.cls is None:
            continue
        for handler in node.handlers:
            if not broad(handler) or any(isinstance(part, ast.Raise) for part in ast.walk(handler)):
                continue
            says = "an example that cannot be read is silently replaced by another one, or dropped."
            yield Hit(handler, says, "look")


def in_loop(script: Script, node: ast.Try) -> bool:
    return bool(script.where(node).block.loops())


def stepwise(script: Script, node: ast.Try) -> bool:
    """A function that makes one step, and is called in a loop."""
    scope = script.scope(node)
    if scope.kind != "function" or scope.loops:
        return False
    return any(where.block.loops() or comprehended(call, where) for call, where in script.project.callers(scope))


def comprehended(call: ast.Call, where: Where) -> bool:
    """[step(x, y) for x, y in loader]"""
    up = where.block.scope.module.up
    at: ast.AST | None = call
    while isinstance(at, ast.expr):
        if isinstance(at, ast.ListComp | ast.GeneratorExp):
            return True
        at = up.get(at)
    return False


def broad(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(text(kind) in BROAD for kind in kinds)


def idle(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Pass | ast.Continue):
        return True
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant):
        return True  # counting what was dropped does not mend it
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        return text(statement.value.left) == text(statement.targets[0]) != ""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        name = text(statement.value.func)
        noted = ("append", "add", "warning", "warn", "error", "exception", "info", "debug", "log", "write")
        heard = name.split(".")[0] in ("logger", "logging", "log", "tqdm", "warnings", "traceback")
        if name.endswith(".zero_grad") and not statement.value.args:
            return True
        return name == "print" or heard or ("." in name and name.rsplit(".", 1)[-1] in noted)
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
