"""A schedule made for epochs is stepped per batch, or the reverse.

What it sees: StepLR, MultiStepLR, ExponentialLR, ReduceLROnPlateau, or a cosine over the number of epochs, stepped in
the loop over batches inside a loop over epochs; OneCycleLR or a schedule over all steps, stepped once per epoch.
Why it matters: the rate decays to nothing within the first epoch, or a warm-up that should last a few hundred steps
lasts the whole training.
Silent when: the numbers of the schedule may well count batches, or the loops cannot be distinguished.
Fix: move the call into the loop that the schedule counts.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.fields import spoken
from clew.lint.given import default_of
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Event, Loop, here, training, within
from clew.lint.value import Value

EPOCHS = 1000  # milestones beyond this count batches


@rule(
    "CLW206", "scheduler-cadence", "train.scheduler_cadence", "likely", "backward manual_backward configure_optimizers"
)
def check(script: Script) -> Iterator[Hit]:
    yield from configured(script)
    for loop in training(script).training():
        outer = loop.block.parent.loops() if loop.block.parent is not None else []
        if over_batches(loop) and (outer or called_in_loop(script, loop)):
            for event in loop.of("schedule"):
                if within(loop, event) and counts_epochs(script, event):
                    yield Hit(
                        here(script, event), f"{kind(event)} counts epochs here, but is stepped after every batch."
                    )
        for event in training(script).events(loop.block.scope):
            if event.kind == "schedule" and outer and event.block is outer[0] and counts_batches(script, event):
                yield Hit(here(script, event), f"{kind(event)} counts batches here, but is stepped once per epoch.")


def configured(script: Script) -> Iterator[Hit]:
    """{"scheduler": ..., "interval": "step"} in Lightning, which steps once per epoch when nothing is said."""
    for node in script.module.nodes.get(ast.Dict, []) if script.mentions("configure_optimizers") else ():
        pairs = zip(node.keys, node.values, strict=True)
        held = {key.value: value for key, value in pairs if isinstance(key, ast.Constant)}
        said = script.constant(held.get("interval"), "?") if "interval" in held else "epoch"
        for value in script.value(held["scheduler"]) if "scheduler" in held else ():
            event = Event("schedule", node, (), script.where(node).block, "", value)
            if said == "step" and counts_epochs(script, event):
                yield Hit(node, f"{kind(event)} counts epochs here, but is stepped after every batch.")
            elif said == "epoch" and kind(event) == "OneCycleLR" and counts_batches(script, event):
                yield Hit(node, f"{kind(event)} counts batches here, but is stepped once per epoch.")


def kind(event: Event) -> str:
    return event.value.name.rsplit(".", 1)[-1] if event.value is not None else "the schedule"


def over_batches(loop: Loop) -> bool:
    """A loop over a loader, as far as its names tell."""
    node = loop.block.node
    if not isinstance(node, ast.For):
        return False
    said = ast.unparse(node.iter).lower()
    return "range(" not in said or "len(" in said or "steps" in said or "batch" in said


def called_in_loop(script: Script, loop: Loop) -> bool:
    """Whether the function that holds the loop is itself called in one."""
    scope = loop.block.scope
    if scope.kind != "function":
        return False
    calls = script.project.callers(scope)
    return any(where.block.loops() for _, where in calls) or any(
        outer.block.loops() for _, where in calls[:4] for _, outer in script.project.callers(where.block.scope)
    )


def counts_epochs(script: Script, event: Event) -> bool:
    value = event.value
    if value is None or value.kind != "instance" or not value.name.startswith("torch.optim.lr_scheduler."):
        return False
    call, name = value.node, value.name.rsplit(".", 1)[-1]
    if name == "ReduceLROnPlateau":
        return True
    if name == "ExponentialLR":
        gamma = script.constant(script.arg(call, 1, "gamma"))
        return isinstance(gamma, int | float) and gamma <= 0.99
    if name == "StepLR":
        given = script.arg(call, 1, "step_size")
        return few(script, given) or (
            isinstance(given, ast.Name | ast.Attribute | ast.Subscript)
            and (held := settings(script, value, given)) != []
            and all(few_written(one) for one in held)
        )
    if name == "MultiStepLR":
        return milestones(script, value, script.arg(call, 1, "milestones"))
    if name in ("CosineAnnealingLR", "PolynomialLR", "LinearLR"):
        words = {"CosineAnnealingLR": (1, "T_max"), "PolynomialLR": (1, "total_iters"), "LinearLR": (3, "total_iters")}
        return named_epochs(script.arg(call, *words[name]))
    if name == "LambdaLR":
        return of_epoch(script.arg(call, 1, "lr_lambda"))
    return False


def milestones(script: Script, made: Value, given: Any) -> bool:
    """[30, 60], also behind a name, a setting or an option of the command line: numbers that count epochs."""
    if isinstance(given, ast.Call) and text(given.func) in ("list", "tuple", "sorted") and len(given.args) == 1:
        given = given.args[0]
    if isinstance(given, ast.ListComp):  # [int(epochs * part) for part in (0.5, 0.75)]
        return named_epochs(mostly(given.elt))
    if isinstance(given, ast.List | ast.Tuple):
        return bool(given.elts) and all(few(script, item) for item in given.elts)
    if given is None or made.where is None or not isinstance(given, ast.Name | ast.Attribute | ast.Subscript):
        return False
    found = settings(script, made, given)
    plain = [item for one in found for item in (one.elts if isinstance(one, ast.List | ast.Tuple) else [None])]
    return bool(plain) and all(few_written(item) for item in plain)


def few_written(node: Any) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value < EPOCHS


def settings(script: Script, made: Value, given: Any) -> list[Any]:
    """What a setting was written as: behind a name, in a config, as the default of an option."""
    if made.where is None:
        return []
    values = script.values.value(given, made.where, made.const if isinstance(made.const, tuple) else None)  # type: ignore[arg-type]
    found: list[Any] = []
    for value in values:
        parsed = value.owner if value.kind == "attr" else None
        if parsed is not None and parsed.name in ("parse_args", "parse_known_args") and parsed.where is not None:
            found.append(spoken(parsed, value.name))
        elif value.kind == "param" and value.func is not None:
            found.append(default_of(value.func, value.name))
        else:
            found.append(value.node)
    return found


def mostly(node: Any) -> Any:
    """epochs of int(epochs * 0.5), 0.5 * epochs"""
    if isinstance(node, ast.Call) and text(node.func) in ("int", "round") and node.args:
        return mostly(node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        return next((side for side in (node.left, node.right) if named_epochs(side)), None)
    return node


def of_epoch(node: Any) -> bool:
    """lambda epoch: 0.95**epoch"""
    if not isinstance(node, ast.Lambda) or [arg.arg for arg in node.args.args] not in (["epoch"], ["ep"], ["e"]):
        return False
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Pow)
        and isinstance(part.left, ast.Constant)
        and isinstance(part.left.value, float)
        and 0 < part.left.value <= 0.99
        for part in ast.walk(node.body)
    )


def few(script: Script, node: Any) -> bool:
    number = script.constant(node)
    return (isinstance(number, int) and number < EPOCHS) or named_epochs(node) or named_epochs(mostly(node))


def named_epochs(node: Any) -> bool:
    """`epochs`, `args.num_epochs`, `cfg["epochs"]`, `epochs - 5`; not `epochs * len(loader)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant | ast.Name | ast.Attribute):
        small = isinstance(node.op, ast.Sub | ast.FloorDiv)
        return small and named_epochs(node.left) and "step" not in text(node.right).lower()
    said = text(node).lower()
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        said = str(node.slice.value).lower()
    return "epoch" in said and "step" not in said and "iter" not in said


def counts_batches(script: Script, event: Event) -> bool:
    value = event.value
    if value is None or value.node is None:
        return False
    name = value.name.rsplit(".", 1)[-1]
    if name == "OneCycleLR":
        return script.arg(value.node, -1, "steps_per_epoch") is not None or per_batch(
            script.arg(value.node, -1, "total_steps")
        )
    if name.startswith("get_") and name.endswith("warmup"):
        given = script.arg(value.node, 2, "num_training_steps")
        if isinstance(given, ast.Name) and value.where is not None:
            defs = value.where.block.scope.defs.get(given.id, [])
            given = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else given
        return per_batch(given)
    return False


def per_batch(node: Any) -> bool:
    return node is not None and "len(" in ast.unparse(node)
