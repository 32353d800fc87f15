"""After the first validation the model trains in evaluation mode.

What it sees: a loop over epochs that trains a model and then puts it into eval(), in place or in a helper, and in
which nothing calls train() on it again.
Why it matters: from the second epoch on dropout is off and batch normalisation is frozen at early statistics. The
model overfits or stalls, and nothing raises.
Silent when: train() or train(flag) is called anywhere in the loop, or eval() concerns another model.
Fix: model.train() at the start of every epoch.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.training import Loop, name_here, training
from clew.lint.training import trained as trained_models


@rule("CLW302", "train-mode-not-restored", "train.eval_mode_in_training", "likely", "eval train")
def check(script: Script) -> Iterator[Hit]:
    for loop in training(script).loops():
        if not loop.has("backward") or not loop.has("step", "scaler_step") or loop.has("train", "mode"):
            continue
        off = [event for event in loop.of("eval") if not conditional(event)]
        names = trained_models(script, loop)
        for event in off:
            name = name_here(script, event)
            if name and name in names and not made_anew(loop, name):
                yield Hit(
                    event.through[0] if event.through else event.node,
                    f"puts {name} into evaluation mode, and nothing in this loop calls train() again.",
                )
                break


def made_anew(loop: Loop, name: str) -> bool:
    """Whether every turn sets the model to a new one, which comes in training mode."""
    return any(
        made.how == "=" and loop.block in made.where.block.chain()
        for made in loop.block.scope.defs.get(name.split(".")[0], [])
    )


def conditional(event: object) -> bool:
    """An evaluation every few steps counts as well: one is enough to leave the mode off."""
    return getattr(event, "looped", 0) > 1
