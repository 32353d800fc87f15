"""The loader, or the generator that draws a batch, is restarted in every iteration.

What it sees: next(iter(loader)) inside a training loop; a function that picks rows with a generator which it makes
itself from a fixed seed, and that a training loop calls in every iteration.
Why it matters: each iteration builds a new iterator and takes its first batch. Without shuffling that is the same batch
for ever; with shuffling, workers are started and thrown away for one batch, and epochs mean nothing. A restarted
generator picks the same rows for ever.
Silent when: the iterator or the generator is made once outside, the seed is given to the function, what is drawn is for
an evaluation, or the loop is a check that overfits one batch on purpose. A loader that is seen to shuffle is only worth
a look.
Fix: loop over the loader itself, or make the iterator or the generator once.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

MEANT = re.compile(r"overfit|one_batch|single_batch|debug|sanity", re.I)
LOOKS = re.compile(r"eval|val|test|fixed|probe|plot|sample_noise|preview", re.I)
MADE = ("Generator", "RandomState", "default_rng", "Random")
DRAWN_WITH = ("randint", "randperm", "multinomial")
DRAWN_BY = ("integers", "choice", "choices", "permutation", "permuted", "randint", "sample", "shuffle")


@rule("CLW515", "same-batch-again", "data.stale_batch", "likely", "next Generator RandomState default_rng Random")
def check(script: Script) -> Iterator[Hit]:
    inner = {loop.block for loop in training(script).training()}
    for call in script.calls("next"):
        made = call.args[0] if call.args else None
        if not (isinstance(made, ast.Call) and text(made.func) == "iter" and made.args and text(made.args[0])):
            continue
        where = script.where(call)
        said = f"{where.block.scope.name} {text(made.args[0])}"
        if any(block in inner for block in where.block.loops()) and not MEANT.search(said):
            name = text(made.args[0])
            if re.search(r"load|data|dl|train|batch", name, re.I) and not rebuilt(name, where.block.loops()[0]):
                sure = "look" if dealt_anew(script, name, where) else ""
                yield Hit(call, f"restarts {name} in every iteration and takes only its first batch.", sure)

    yield from picked_anew(script)


def picked_anew(script: Script) -> Iterator[Hit]:
    """rng = np.random.RandomState(0) in a function that picks the rows of a training batch with it."""
    for call in script.calls(*MADE):
        scope = script.scope(call)
        known = script.dotted(call.func).startswith(("torch.Generator", "numpy.random.", "random.Random"))
        if (
            script.tests
            or not known
            or scope.kind != "function"
            or MEANT.search(scope.name)
            or LOOKS.search(scope.name)
        ):
            continue
        name, seed = generator(script, call)
        if (
            name
            and seed is not None
            and fixed(script, seed, scope)
            and picks(scope, name)
            and every_turn(script, scope)
        ):
            yield Hit(
                call, f"starts from the same seed whenever {scope.name} is called: every batch has the same rows."
            )


def generator(script: Script, call: ast.Call) -> tuple[str, ast.expr | None]:
    """The name that a new generator gets, and its seed."""
    made, seed = call, call.args[0] if len(call.args) == 1 else None
    above = script.parent(call)
    if text(call.func).endswith("Generator"):
        seeds = script.parent(above) if isinstance(above, ast.Attribute) and above.attr == "manual_seed" else None
        if not isinstance(seeds, ast.Call) or len(seeds.args) != 1:
            return "", None
        made, seed = seeds, seeds.args[0]
    statement = script.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not made or len(statement.targets) != 1:
        return "", None
    target = statement.targets[0]
    return (target.id if isinstance(target, ast.Name) else ""), seed


def fixed(script: Script, seed: ast.expr, scope: Scope) -> bool:
    """A number, or a name from outside of the function that is called a seed."""
    if script.constant(seed) is not None:
        return True
    held = isinstance(seed, ast.Name) and seed.id.lower().endswith("seed")
    return held and isinstance(seed, ast.Name) and seed.id not in (*scope.params, *scope.defs, *scope.outside)


def picks(scope: Scope, name: str) -> bool:
    """Whether the function draws whole numbers, or an order, with this generator."""
    for call in scope.calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        given = any(key.arg == "generator" and text(key.value) == name for key in call.keywords)
        if call.func.attr in DRAWN_WITH and given:
            return True
        if text(call.func.value) == name and call.func.attr in DRAWN_BY:
            return True
    return False


def every_turn(script: Script, scope: Scope) -> bool:
    """Whether a loop that trains takes its batch from the function in every turn, outside of all conditions."""
    for call, where in script.project.callers(scope):
        home = script.at_home(where)
        takes = isinstance(home.statement(call), ast.Assign)
        said = " ".join([where.block.scope.name, *(ast.unparse(arg) for arg in call.args)])
        if not takes or MEANT.search(said) or LOOKS.search(said):
            continue
        inner = [loop for loop in training(home).training() if loop.block is where.block]
        if any(loop.has("backward") and loop.has("step", "scaler_step") for loop in inner):
            return True
    return False


def dealt_anew(script: Script, name: str, where: Where) -> bool:
    """Whether the loader shuffles: then each first batch is another one, and only the work of starting is lost."""
    scope: Scope | None = where.block.scope
    while scope is not None and name not in scope.defs:
        scope = scope.parent
    made = [held.value for held in scope.defs[name]] if scope is not None else []
    return bool(made) and all(
        isinstance(call, ast.Call) and script.constant(script.arg(call, -1, "shuffle")) is True for call in made
    )


def rebuilt(name: str, loop: object) -> bool:
    """Whether the loop makes the loader itself."""
    scope = loop.scope  # type: ignore[attr-defined]
    return any(loop in made.where.block.chain() for made in scope.defs.get(name, []))
