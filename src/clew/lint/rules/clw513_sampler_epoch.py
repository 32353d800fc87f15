"""A distributed sampler repeats the same order in every epoch.

What it sees: a DistributedSampler that shuffles, in a file with a loop over epochs, or in a function of the project
that made the loader of such a loop, and no set_epoch anywhere.
Why it matters: the sampler seeds its shuffle with the epoch number, which stays zero. Every epoch visits the data in
the same order and the same batches.
Silent when: set_epoch is called, shuffle is off, or a framework that calls it is in use.
Fix: sampler.set_epoch(epoch) at the start of every epoch.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import dataset_name, kept_as
from clew.lint.index import Block
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

HELD_OUT = re.compile(r"val|test|eval|dev", re.IGNORECASE)
FRAMEWORKS = ("LightningModule", "Accelerator", "Fabric", "set_epoch", "Trainer")


@rule("CLW513", "sampler-without-epoch", "data.not_shuffled", "certain", "DistributedSampler backward")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions(*FRAMEWORKS):
        return
    yield from from_elsewhere(script)
    if not any(loop.has("backward") for loop in training(script).loops()):
        return
    for call, _ in script.calls_to("torch.utils.data.", "DistributedSampler"):
        shuffle = script.arg(call, 3, "shuffle")
        name = kept_as(script, call).rsplit(".", 1)[-1]
        data = dataset_name(script, call)
        if (shuffle is not None and script.constant(shuffle) is False) or HELD_OUT.search(f"{name} {data}"):
            continue
        if not passed_on(script, name):
            yield Hit(call, "set_epoch is never called: every epoch has the same order.")


def from_elsewhere(script: Script) -> Iterator[Hit]:
    """A loop over a loader that another function made with a DistributedSampler, which nobody tells the epoch."""
    for loop in training(script).training():
        node = loop.block.node
        if not isinstance(node, ast.For) or not repeated(script, loop.block):
            continue
        for value in script.value(unwrapped(node.iter)):
            if not value.name.endswith(".DataLoader") or value.where is None:
                continue
            home = value.where.block.scope.module
            given = Script.arg(value.node, 3, "sampler")
            made = script.values.value(given, value.where, None) if given is not None else ()
            if home is script.module and "DistributedSampler" in script.module.names:
                continue  # that is seen where it is made
            for held in made:
                shuffle = Script.arg(held.node, 3, "shuffle") if isinstance(held.node, ast.Call) else None
                fixed = isinstance(shuffle, ast.Constant) and shuffle.value is False
                if held.name.endswith(".DistributedSampler") and not fixed and "set_epoch" not in home.names:
                    related = (Related(home.path, value.node.lineno, "the sampler goes into the loader here"),)
                    says = (
                        "set_epoch is never called on the loader's DistributedSampler: every epoch has the same order."
                    )
                    yield Hit(node, says, related=related)


def unwrapped(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and text(node.func).rsplit(".", 1)[-1] in ("tqdm", "enumerate") and node.args:
        node = node.args[0]
    return node


def repeated(script: Script, block: Block) -> bool:
    """Whether a loop over batches runs again for every epoch, here or by its callers."""
    if len(block.loops()) > 1:
        return True
    return any(where.block.loops() for _, where in script.project.callers(block.scope))


def given_back(script: Script, node: ast.AST) -> bool:
    """Whether a function returns the sampler to callers in sight, and no file around tells any sampler its epoch."""
    while isinstance(node, ast.Tuple | ast.Dict):
        above = script.module.up[node]
        if isinstance(above, ast.Assign):
            return False
        node = above
    callers = script.project.callers(script.scope(node)) if isinstance(node, ast.Return) else []
    return bool(callers) and script.project.neighbours_with(script.module.path, "set_epoch") == 0


def passed_on(script: Script, name: str) -> bool:
    """Whether the sampler goes anywhere but into a loader: what receives it may set the epoch."""
    if not name:
        return False
    for node in script.loads(name):
        if (
            isinstance(node, ast.Name | ast.Attribute)
            and text(node).rsplit(".", 1)[-1] == name
            and isinstance(node.ctx, ast.Load)
        ):
            above = script.module.up[node]
            if isinstance(above, ast.Call) and not text(above.func).endswith(
                ("DataLoader", "BatchSampler", "len", "isinstance")
            ):
                return True
            if isinstance(above, ast.Return | ast.Tuple | ast.Dict):
                return not given_back(script, above)
    return False
