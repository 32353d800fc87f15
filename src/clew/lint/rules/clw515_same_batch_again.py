"""The loader is started anew in every turn.

What it sees: next(iter(loader)) inside a training loop.
Why it matters: each turn builds a new iterator and takes its first batch. Without shuffling that is the same batch
for ever; with shuffling, workers are started and thrown away for one batch, and epochs mean nothing.
Silent when: the iterator is made once outside, or the loop is a check that overfits one batch on purpose. A loader that
is seen to shuffle is only worth a look.
Fix: loop over the loader itself, or make the iterator once.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training

MEANT = re.compile(r"overfit|one_batch|single_batch|debug|sanity", re.I)


@rule("CLW515", "same-batch-again", "data.stale_batch", "likely", "next")
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
                yield Hit(call, f"starts {name} anew in every turn and takes its first batch only.", sure)


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
