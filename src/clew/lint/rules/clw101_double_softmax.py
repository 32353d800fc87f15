"""Probabilities go into a loss that computes them itself.

What it sees: softmax or sigmoid, as function, method, layer, or last layer of a model of the project, whose result
reaches cross-entropy, or binary cross-entropy with logits. Log-softmax into cross-entropy is reported too, for a look:
the loss stays the same, but readers take the output for logits.
Why it matters: the second softmax sees numbers between 0 and 1, so its output is close to uniform, gradients shrink
and the loss stalls far above zero. Training still runs, only badly.
Silent when: the activation lies on another branch, or is applied to a copy that the loss does not see.
Fix: return the raw scores and apply the activation where probabilities are read.
"""

from collections.abc import Iterator

from clew.lint.losses import activation, loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

NEEDS = "cross_entropy CrossEntropyLoss binary_cross_entropy_with_logits BCEWithLogitsLoss criterion loss_fn loss_func"
DOUBLE = {
    "logits": ("softmax", "log_softmax", "sigmoid"),
    "binary logits": ("sigmoid", "softmax", "log_softmax", "logsigmoid"),
}
APPLIES = {"logits": "softmax", "binary logits": "the sigmoid"}


@rule(
    "CLW101",
    "double-softmax",
    "loss.double_softmax",
    "certain",
    NEEDS + " loss_function sigmoid_focal_loss loss_fct backward",
)
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        if loss.wants not in DOUBLE or loss.prediction is None:
            continue
        found = activation(script, script.value(loss.prediction))
        if found is None or found[0] not in DOUBLE[loss.wants]:
            continue
        name, value = found
        harmless = name == "log_softmax" and loss.wants == "logits"
        yield Hit(
            loss.node,
            f"{loss.name} applies {APPLIES[loss.wants]} itself, but its input already went through {name}"
            + (", which is a no-op here and misleads readers who take it for logits." if harmless else "."),
            "look" if harmless else "",
            related=script.related(value, f"{name} is applied here"),
        )
