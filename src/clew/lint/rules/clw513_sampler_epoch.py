"""A distributed sampler deals the same order in every epoch.

What it sees: a DistributedSampler that shuffles, in a file with a loop over epochs, and no set_epoch anywhere.
Why it matters: the sampler seeds its shuffle with the epoch number, which stays zero. Every epoch visits the data in
the same order and the same batches.
Silent when: set_epoch is called, shuffle is off, or a framework that calls it is in use.
Fix: sampler.set_epoch(epoch) at the start of every epoch.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import dataset_name, kept_as
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

HELD_OUT = re.compile(r"val|test|eval|dev", re.IGNORECASE)
FRAMEWORKS = ("LightningModule", "Accelerator", "Fabric", "set_epoch", "Trainer")


@rule("CLW513", "sampler-without-epoch", "data.not_shuffled", "certain", "DistributedSampler")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions(*FRAMEWORKS):
        return
    if not any(loop.has("backward") for loop in training(script).loops()):
        return
    for call, _ in script.calls_to("torch.utils.data.", "DistributedSampler"):
        shuffle = script.arg(call, 3, "shuffle")
        name = kept_as(script, call).rsplit(".", 1)[-1]
        data = dataset_name(script, call)
        if (shuffle is not None and script.constant(shuffle) is False) or HELD_OUT.search(f"{name} {data}"):
            continue
        if not passed_on(script, name):
            yield Hit(call, "set_epoch is never called: every epoch deals the same order.")


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
            if isinstance(above, ast.Return | ast.Tuple):
                return True
    return False
