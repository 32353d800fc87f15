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

from clew.lint.given import argument
from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS, owner
from clew.lint.script import Hit, Script, text

CARE = ("GradScaler", "autocast", "deepspeed", "apex", "FP16_Optimizer", "amp")


@rule("CLW607", "half-model-training", "num.low_precision", "look", "half float16")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions(*CARE) or not script.mentions("backward"):
        return
    stepped = {
        (owner(script.arg(call, 0, "params"), script), script.scope(call))
        for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)
    }
    stepped |= by_trainer(script)
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


def by_trainer(script: Script) -> set[tuple[str, Scope]]:
    """Models that are handed to a class of the project which makes an optimiser of them."""
    found: set[tuple[str, Scope]] = set()
    for scope in script.module.scopes:
        for call in scope.calls:
            values = script.value(call.func) if isinstance(call.func, ast.Name) else ()
            init = values[0].cls.methods.get("__init__") if len(values) == 1 and values[0].cls is not None else None
            if init is None or values[0].kind != "class":
                continue
            made = [one for one in init.calls if isinstance(one.func, ast.Attribute) and one.func.attr in OPTIMIZERS]
            for one in made:
                said = owner(one.args[0] if one.args else None).removeprefix("self.")
                given = argument(call, init, said) if said in init.params else None
                if given is not None and text(given):
                    found.add((text(given), scope))
    return found


def kept(script: Script, call: ast.Call) -> str:
    """`net` of `net = Net().half()`."""
    above = script.parent(call)
    while isinstance(above, ast.Attribute | ast.Call):
        above = script.parent(above)  # net = Net().half().cuda()
    return text(above.targets[0]) if isinstance(above, ast.Assign) else ""
