"""A model is trained with weights in half precision.

What it sees: model.half(), or to(torch.float16), on a model whose parameters an ordinary optimiser then steps in the
same file.
Why it matters: an update smaller than a thousandth of a weight is lost in float16, and small gradients are zero.
Training stalls early or turns to NaN. Mixed precision keeps the weights in single precision for this reason.
Silent when: the model is only used for inference, the type is bfloat16, or a scaler, autocast, DeepSpeed or apex is
in use.
Fix: keep the weights in float32 and use autocast with a GradScaler.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script, text

CARE = ("GradScaler", "autocast", "deepspeed", "apex", "FP16_Optimizer", "amp")


@rule("CLW607", "half-model-training", "num.low_precision", "likely", "half float16")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions(*CARE) or not script.mentions("backward"):
        return
    stepped = {
        (owner(script.arg(call, 0, "params"), script), script.scope(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    }
    for call in script.calls("half", "to"):
        if not isinstance(call.func, ast.Attribute):
            continue
        name = text(call.func.value) or kept(script, call)
        half = call.func.attr == "half" or any(
            script.dotted(arg) in ("torch.float16", "torch.half")
            for arg in (*call.args, *(word.value for word in call.keywords))
            if isinstance(arg, ast.Attribute)
        )
        if half and name and (name, script.scope(call)) in stepped:
            yield Hit(call, f"the weights of {name} are trained in float16: small updates are rounded away.")


def kept(script: Script, call: ast.Call) -> str:
    """`net` of `net = Net().half()`."""
    above = script.parent(call)
    return text(above.targets[0]) if isinstance(above, ast.Assign) else ""
