"""Probabilities are given where their logarithms are expected, or the reverse.

What it sees: softmax into NLLLoss or into the first argument of kl_div; log-softmax or log-sigmoid into BCELoss.
Why it matters: NLLLoss of probabilities is bounded by minus one and nearly flat, so learning is slow and stalls
early; kl_div of probabilities is not a divergence at all and may go negative.
Silent when: the logarithm is taken between, or the producer is not known.
Fix: log_softmax in place of softmax; for BCELoss the sigmoid without its logarithm.
"""

from collections.abc import Iterator

from clew.lint.losses import activation, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

WRONG = {
    "log-probabilities": {"softmax": "log_softmax", "sigmoid": "log_softmax"},
    "log-probabilities of kl": {"softmax": "log_softmax"},
    "probabilities": {"log_softmax": "softmax", "logsigmoid": "sigmoid"},
}


@rule(
    "CLW103",
    "probabilities-for-log-probabilities",
    "loss.missing_activation",
    "certain",
    "nll_loss NLLLoss binary_cross_entropy BCELoss kl_div KLDivLoss criterion loss_fn",
)
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        wrong = WRONG.get(loss.wants)
        if wrong is None or loss.prediction is None:
            continue
        found = activation(script, script.value(loss.prediction))
        if found is not None and found[0] in wrong:
            yield Hit(
                loss.node,
                f"{loss.name} receives the output of {found[0]} where {wrong[found[0]]} is expected.",
                related=script.related(found[1], f"{found[0]} is applied here"),
            )
