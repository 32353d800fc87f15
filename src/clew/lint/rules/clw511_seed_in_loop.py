"""The seed is set again in every iteration of the training loop.

What it sees: manual_seed, np.random.seed, random.seed or seed_everything with a fixed value inside a loop that
trains.
Why it matters: dropout masks, augmentation and shuffling repeat in every iteration. The model sees the same noise again
and again, and what should be random is a constant.
Silent when: the seed depends on the loop's variable, or the loop is over seeds or runs.
Fix: seed once, before the loop.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.index import Block, Where
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


NAMED = (
    "seed_everything",
    "set_seed",
    "seed_all",
    "fix_seed",
    "set_seeds",
    "set_random_seed",
    "setup_seed",
    "seed_torch",
)


@rule(
    "CLW511",
    "seed-in-loop",
    "env.nondeterminism",
    "likely",
    "manual_seed seed backward default_rng RandomState Random Generator PRNGKey " + " ".join(NAMED),
)
def check(script: Script) -> Iterator[Hit]:
    inner = {loop.block for loop in training(script).training()}
    calls = list(dict.fromkeys((*script.calls("manual_seed", "seed", *NAMED), *in_epochs(script))))
    for call in calls:
        if (script.dotted(call.func) not in SEEDS and not own(script, call)) or not call.args:
            continue
        around = [block for block in script.where(call).block.loops() if block in inner or epochs(block)]
        said = ast.unparse(call.args[0]).strip("\"']")
        fixed = script.constant(call.args[0]) is not None or said.lower().endswith("seed")
        trains = any(
            loop.block in around and loop.has("backward") and loop.has("step", "scaler_step")
            for loop in training(script).loops()
        )
        anew = any(fresh_model(script, block) for block in around[:1])
        if not script.tests and around and fixed and trains and not anew and not varies(call, around):
            yield Hit(call, "sets the same seed in every iteration: shuffling, dropout and augmentation repeat.")
    yield from in_helpers(script)
    yield from generators(script)


def generators(script: Script) -> Iterator[Hit]:
    """rng = np.random.default_rng(0) in a loop that counts turns: every turn draws the same."""
    for call in script.calls("default_rng", "RandomState", "Random", "Generator", "PRNGKey"):
        where = script.where(call)
        around = where.block.loops()
        loop = around[0].node if around else None
        seed: ast.AST = call
        above = script.parent(script.parent(call) or call)
        if isinstance(above, ast.Call) and text(call.func).endswith("Generator"):
            seed = above  # torch.Generator().manual_seed(0)
        if script.tests or not isinstance(loop, ast.For) or not isinstance(seed, ast.Call) or not seed.args:
            continue
        counts = ast.unparse(loop.iter).startswith("range(") or epochs(around[0])
        if not counts or script.constant(seed.args[0]) is None or varies(seed, around):
            continue
        dotted = script.dotted(call.func)
        known = dotted.startswith(("numpy.random.", "random.", "torch.Generator", "jax.random."))
        if known and not fresh_model(script, around[0]) and where.block is around[0]:
            yield Hit(call, "starts from the same seed in every iteration: each draws the same numbers.")


def in_helpers(script: Script) -> Iterator[Hit]:
    """A function that seeds on its way, and that a training loop calls in every turn."""
    for call in script.calls("manual_seed", "seed"):
        scope = script.scope(call)
        if script.dotted(call.func) not in SEEDS or not call.args or scope.kind != "function" or script.tests:
            continue
        if script.constant(call.args[0]) is None or "seed" in scope.name or scope.name in ("__init__", "main"):
            continue
        for _, where in script.project.callers(scope):
            home = script.at_home(where)
            around = where.block.loops()
            if any(loop.block in around and loop.has("backward") for loop in training(home).loops()):
                yield Hit(call, "sets the same seed each time the training loop calls it: the random draws repeat.")
                break


def fresh_model(script: Script, block: Block) -> bool:
    """Whether every turn makes a model of its own: then it is a run of its own, and may well start from one seed."""
    return any(
        block in script.where(node).block.chain()
        for node in script.module.statements.get(ast.Assign, [])
        if isinstance(node.value, ast.Call)
        and MODEL.search(text(node.targets[0]))
        and text(node.value.func).rsplit(".", 1)[-1] not in ("to", "cuda", "train", "eval")
    )


MODEL = re.compile(r"(^|_)(model|net|network)$", re.I)


def in_epochs(script: Script) -> Iterator[ast.Call]:
    """Calls that stand by themselves in a loop over epochs, with a seed among their arguments."""
    for statement in script.module.statements.get(ast.Expr, []):
        call = statement.value
        if not isinstance(call, ast.Call) or not call.args or not epochs(script.where(statement).block):
            continue
        if "seed" in ast.unparse(call.args[0]).lower():
            yield call


def own(script: Script, call: ast.Call) -> bool:
    """A function of the project that seeds."""
    func = helper(script, call, script.where(call))
    home = script.at_home(Where(func.body, 0)) if func is not None else script
    return func is not None and any(home.dotted(inner.func) in SEEDS for inner in func.calls)


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
