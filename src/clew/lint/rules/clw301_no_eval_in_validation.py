"""The model is validated in training mode.

What it sees: a loop over held-out data that applies the model, in a file that also trains it, with no eval() on any
way to the loop.
Why it matters: dropout still drops and batch normalisation still uses, and updates from, the held-out batches. The
score is worse, noisy, and depends on the batch size; the running statistics have seen the validation data.
Silent when: eval() or train(flag) is called before the loop, here or by a caller, or no layer of the model in sight
changes with the mode.
Fix: model.eval() before the loop, model.train() after it.
"""

from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.validation import has_modes, prepared, validations


@rule(
    "CLW301",
    "no-eval-in-validation",
    "train.train_mode_in_eval",
    "likely",
    "backward manual_backward no_grad inference_mode",
)
def check(script: Script) -> Iterator[Hit]:
    for found in validations(script):
        scope = found.loop.block.scope
        modes = has_modes(script, found.call)
        if modes is False or script.arg(found.call, -1, "training") is not None:
            continue
        state = prepared(script, scope, script.where(found.loop.block.node).order)
        if state in ("eval", "set") or found.loop.has("eval", "mode"):
            continue
        here = script.mentions("backward", "manual_backward")
        if state == "" and not here and not loaded(script):
            continue
        sure = modes is True and here
        yield Hit(
            found.loop.block.node,
            f"{found.model} is applied to held-out data in training mode: no eval() comes before this loop.",
            "certain" if sure and state == "train" else "likely" if sure or (here and state == "train") else "look",
        )


def loaded(script: Script) -> bool:
    """Whether the file takes a trained model from disk, to test it."""
    return script.mentions("load_state_dict")
