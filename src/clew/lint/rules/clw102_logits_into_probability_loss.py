"""Raw scores go into a loss that expects probabilities or their logarithms.

What it sees: the output of a linear or convolutional layer, also through a model of the project, that reaches
NLLLoss, BCELoss or their functions without an activation between.
Why it matters: the negative log-likelihood of raw scores has no lower bound, so the loss falls for ever while the
model only grows its weights; BCELoss fails outright, or clamps, outside the range from 0 to 1.
Silent when: an activation lies between, or what produced the input is not known.
Fix: use the variant that takes logits, which is also the stable one: cross-entropy, or BCEWithLogitsLoss.
"""

from collections.abc import Iterator

from clew.lint.losses import activation, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

INSTEAD = {
    "log-probabilities": "log-probabilities: cross_entropy takes raw scores",
    "probabilities": "probabilities: binary_cross_entropy_with_logits takes raw scores",
}


@rule(
    "CLW102",
    "logits-into-probability-loss",
    "loss.missing_activation",
    "certain",
    "nll_loss NLLLoss binary_cross_entropy BCELoss criterion loss_fn bce",
)
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        if loss.wants not in INSTEAD or loss.prediction is None:
            continue
        found = activation(script, script.value(loss.prediction))
        if found is not None and found[0] == "linear":
            yield Hit(
                loss.node,
                f"{loss.name} receives the raw output of a layer, but wants {INSTEAD[loss.wants]}.",
                related=script.related(found[1], "the layer that gives raw scores"),
            )
