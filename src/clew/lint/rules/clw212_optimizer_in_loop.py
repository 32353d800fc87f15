"""The optimiser is rebuilt inside the training loop.

What it sees: a constructor of torch.optim over parameters of a model that lives outside the loop, run in every
iteration of a training loop, there or in a function that is called for every epoch.
Why it matters: momentum and the running moments of Adam start from zero each time, and a schedule attached to the old
optimiser has no effect.
Silent when: the model is built in the same loop (folds, seeds, trials), or a condition guards it that does not make
another one otherwise.
Fix: build it once, before the loop.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.given import argument
from clew.lint.index import Block, Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import Loop, training

OPTIMIZERS = "Adam AdamW SGD RMSprop Adagrad Adamax NAdam RAdam Adadelta Rprop ASGD SparseAdam Adafactor".split()


@rule("CLW212", "optimizer-in-loop", "train.optimizer_recreated", "certain", "backward " + " ".join(OPTIMIZERS))
def check(script: Script) -> Iterator[Hit]:
    loops = {loop.block: loop for loop in training(script).loops() if loop.has("backward")}
    inner = {loop.block for loop in training(script).training()}
    for call, dotted in script.calls_to("torch.optim.", *OPTIMIZERS):
        where = script.where(call)
        model = owner(script.arg(call, 0, "params"), script)
        around = where.block.loops()
        if not around or not model or around[0] not in loops:
            continue
        if where.block is not around[0] and not either_way(script, where.block, around[0]):
            continue
        if fresh(model, around[0]):
            continue
        name = dotted.rsplit(".", 1)[-1]
        sure = around[0] in inner
        if sure or "epoch" in target(around[0]) or (target(around[0]) in ("_", "e", "ep", "i") and counted(around[0])):
            yield Hit(
                call,
                f"{name} is recreated in every iteration and loses its state.",
                "certain" if sure else "likely",
            )

    yield from by_helper(script, loops, inner)
    yield from by_method(script, loops)
    yield from each_step(script)


def either_way(script: Script, block: Block, loop: Block) -> bool:
    """if epoch < 10: opt = Adam(…) else: opt = Adam(…): one of them is made in every turn. Told once, at the first."""
    if block.kind != "if" or block.parent is not loop or not isinstance(block.node, ast.If) or not block.node.orelse:
        return False
    made = {script.where(call).block for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)}
    return any(other.kind == "else" and other.node is block.node for other in made)


def each_step(script: Script) -> Iterator[Hit]:
    """A function that makes an optimiser, takes one step with it, and is called for every batch."""
    for call, dotted in script.calls_to("torch.optim.", *OPTIMIZERS):
        scope = script.scope(call)
        model = owner(script.arg(call, 0, "params"), script)
        if scope.kind != "function" or model.split(".")[0] not in scope.params:
            continue
        if scope.loops:
            yield from each_epoch(script, scope, call, model)
            continue
        kinds = {event.kind for event in training(script).events(scope)}
        calls = script.project.callers(scope)
        looped = [where for _, where in calls if where.block.loops()]
        if {"backward", "step"} <= kinds and calls and len(looped) == len(calls) and not script.tests:
            name = dotted.rsplit(".", 1)[-1]
            yield Hit(call, f"{name} is recreated for every step and loses its state.", "likely")
    for node in script.module.statements.get(ast.Assign, []) if script.mentions("backward") else ():
        where = script.where(node)
        scope = where.block.scope
        if not isinstance(node.value, ast.Call) or where.block is not scope.body or not scope.loops:
            continue
        if "opt" not in text(node.targets[0]).lower() or scope.kind != "function":
            continue
        func = helper(script, node.value, where)
        made = func.returns[0][0] if func is not None and len(func.returns) == 1 else None
        dotted = script.at_home(func.returns[0][1]).dotted(made.func) if func and isinstance(made, ast.Call) else ""
        model = next((text(arg) for arg in node.value.args if text(arg)), "")
        if dotted.startswith("torch.optim.") and "lr_scheduler" not in dotted and model.split(".")[0] in scope.params:
            yield from each_epoch(script, scope, node.value, model)


def each_epoch(script: Script, scope: Scope, call: ast.Call, model: str) -> Iterator[Hit]:
    """A function that makes an optimiser, goes over the batches once, and is called for every epoch."""
    if script.where(call).block is not scope.body or script.tests:
        return
    steps = [event for event in training(script).events(scope) if event.kind in ("step", "scaler_step")]
    once = all(len(event.block.loops()) == 1 and not counted(event.block.loops()[0]) for event in steps)
    if not steps or not once:
        return
    calls = script.project.callers(scope) or script.project.method_calls(scope)
    if not calls:
        return
    first, _, rest = model.partition(".")
    for made, where in calls:
        around = where.block.loops()
        given = made.func.value if first == scope.me and isinstance(made.func, ast.Attribute) else None
        given = given or argument(made, scope, first)
        said = ".".join(part for part in (text(given), rest) if part) if given is not None and text(given) else ""
        head = f"{target(around[0])} {over(around[0])} {scope.name.lower()}" if around else ""
        if "epoch" not in head or not said or fresh(said, around[0]):
            return
    yield Hit(call, f"{scope.name} is called for every epoch, and each call discards the optimiser's state.", "likely")


def by_method(script: Script, loops: dict[Block, Loop]) -> Iterator[Hit]:
    """self.reset() in every epoch, where that only makes a new optimiser over the old parameters."""
    for block in loops:
        for call in block.scope.calls:
            where = script.where(call)
            if where.block is not block or not isinstance(script.parent(call), ast.Expr):
                continue
            func = helper(script, call, where)
            if func is None or func.cls is None or func.cls is not script.class_of(block.scope):
                continue
            sets = [(target, value) for target, value, at in func.attr_sets if at.block is func.body]
            made = [value for _, value in sets if isinstance(value, ast.Call)]
            dotted = script.dotted(made[0].func) if len(made) == 1 else ""
            model = owner(script.arg(made[0], 0)) if dotted.startswith("torch.optim.") else ""
            if model and "lr_scheduler" not in dotted and not fresh(model, block, call):
                name = dotted.rsplit(".", 1)[-1]
                yield Hit(call, f"{name} is recreated in every iteration and loses its state.", "likely")


def by_helper(script: Script, loops: dict[Block, Loop], inner: set[Block]) -> Iterator[Hit]:
    """opt = make_optimizer(model) in every epoch."""
    for block in loops:
        for node in script.module.statements.get(ast.Assign, []):
            where = script.where(node)
            if where.block is not block or not isinstance(node.value, ast.Call):
                continue
            func = helper(script, node.value, where)
            made = func.returns[0][0] if func is not None and len(func.returns) == 1 else None
            home = script.at_home(Where(func.body, 0)) if func is not None else script
            dotted = home.dotted(made.func) if isinstance(made, ast.Call) else ""
            if not dotted.startswith("torch.optim.") or "lr_scheduler" in dotted:
                continue
            model = next((text(arg) for arg in node.value.args if text(arg)), "")
            epochs = "epoch" in target(block) or (target(block) in ("_", "e", "ep", "i") and counted(block))
            if model and not fresh(model, block) and (block in inner or epochs):
                name = dotted.rsplit(".", 1)[-1]
                yield Hit(
                    node.value,
                    f"{name} is recreated in every iteration and loses its state.",
                    "certain" if block in inner else "likely",
                )


def owner(node: object, script: Script | None = None) -> str:
    """`net` of `net.parameters()`, also when that was given a name first."""
    if isinstance(node, ast.Name) and script is not None:
        defs = script.defs(node.id, script.scope(node))
        node = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "parameters":
        return text(node.func.value)
    inner = source(node)
    return owner(inner, script) if inner is not None else ""


def source(node: object) -> ast.expr | None:
    """What a choice of parameters is taken from: [p for p in net.parameters() if p.requires_grad], filter(f, ...)."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp) and len(node.generators) == 1:
        inner = node.generators[0].iter
        named = isinstance(inner, ast.Call) and text(inner.func).endswith(".named_parameters")
        if named and isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            return ast.Call(ast.Attribute(inner.func.value, "parameters", ast.Load()), [], [])
        return inner
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
        return node.args[-1] if node.func.id in ("filter", "list", "tuple", "iter") else None
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
        only = node.elts[0]
        if isinstance(only, ast.Dict):
            held = [v for k, v in zip(only.keys, only.values, strict=True) if getattr(k, "value", "") == "params"]
            return held[0] if held else None
        return only.value if isinstance(only, ast.Starred) else None
    return None


def fresh(model: str, loop: Block, but: ast.Call | None = None) -> bool:
    """Whether the loop itself makes the model, or loads its weights."""
    first = model.split(".")[0]
    defs = loop.scope.defs.get(first, [])
    if any(loop in made.where.block.chain() for made in defs):
        return True
    loads = ("load_state_dict", "reset_parameters", "apply", "reset", "reset_weights", "init_weights")
    return any(
        isinstance(call.func, ast.Attribute)
        and call is not but
        and call.func.attr in loads
        and loop in loop.scope.module.where(call).block.chain()
        for call in loop.scope.calls
    )


def target(loop: Block) -> str:
    return ast.unparse(loop.node.target).lower() if isinstance(loop.node, ast.For) else ""


def over(loop: Block) -> str:
    """What a loop runs over, or as long as."""
    if isinstance(loop.node, ast.While):
        return ast.unparse(loop.node.test).lower()
    return ast.unparse(loop.node.iter).lower() if isinstance(loop.node, ast.For) else ""


def counted(loop: Block) -> bool:
    """A loop over a plain range: epochs, not folds or settings."""
    return isinstance(loop.node, ast.For) and ast.unparse(loop.node.iter).startswith("range(")
