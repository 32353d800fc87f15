"""The seed is set again in every turn of the training loop.

What it sees: manual_seed, np.random.seed, random.seed or seed_everything with a fixed value inside a loop that
trains.
Why it matters: dropout masks, augmentation and shuffling repeat in every turn. The model sees the same noise again
and again, and what should be random is a constant.
Silent when: the seed depends on the loop's variable, or the loop is over seeds or runs.
Fix: seed once, before the loop.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Block
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

SEEDS = (
    "torch.manual_seed",
    "numpy.random.seed",
    "random.seed",
    "torch.cuda.manual_seed_all",
    "torch.cuda.manual_seed",
    "lightning.seed_everything",
    "transformers.set_seed",
)


@rule("CLW511", "seed-in-loop", "env.nondeterminism", "likely", "manual_seed seed seed_everything set_seed")
def check(script: Script) -> Iterator[Hit]:
    inner = {loop.block for loop in training(script).training()}
    for call in script.calls("manual_seed", "seed", "seed_everything", "set_seed"):
        if script.dotted(call.func) not in SEEDS or not call.args:
            continue
        around = [block for block in script.where(call).block.loops() if block in inner or epochs(block)]
        fixed = script.constant(call.args[0]) is not None or text(call.args[0]).endswith(("seed", "SEED"))
        trains = any(
            loop.block in around and loop.has("backward") and loop.has("step", "scaler_step")
            for loop in training(script).loops()
        )
        if not script.tests and around and fixed and trains and not varies(call, around):
            yield Hit(call, "sets the same seed in every turn: shuffling, dropout and augmentation repeat.")


def epochs(block: object) -> bool:
    node = getattr(block, "node", None)
    return isinstance(node, ast.For) and "epoch" in ast.unparse(node.target).lower()


def varies(call: ast.Call, around: list[Block]) -> bool:
    """Whether the seed depends on a loop's variable."""
    targets = {
        part.id
        for block in around
        if isinstance(block.node, ast.For)
        for part in ast.walk(block.node.target)
        if isinstance(part, ast.Name)
    }
    return any(isinstance(part, ast.Name) and part.id in targets for arg in call.args for part in ast.walk(arg))
