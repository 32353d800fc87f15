"""A cast to integers removes what the loss needs.

What it sees: long() or int() on the targets of a regression loss or of a binary cross-entropy, or on the predictions
of any loss; a cast to bytes of what was just scaled to lie between 0 and 1.
Why it matters: fractions are cut off silently: a target of 0.7 becomes 0. A prediction that is cast has no gradient.
Usually the cast was added to silence a complaint about types, whose reason then stays.
Silent when: the loss wants class indices (cross-entropy, NLL), or the target is compared, not regressed.
Fix: cast the targets to the type of the predictions.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.data import example_of
from clew.lint.flow import outward
from clew.lint.index import Where
from clew.lint.losses import loss_calls
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import trail, verb

INTEGERS = ("long", "int", "short", "byte")


@rule(
    "CLW606",
    "cast-hides-dtype",
    "data.labels_wrong_range",
    "likely",
    "long int byte short astype to_numpy mse_loss MSELoss l1_loss L1Loss uint8",
)
def check(script: Script) -> Iterator[Hit]:
    for loss in loss_calls(script):
        if loss.wants in ("values", "probabilities", "binary logits") and cast(loss.target):
            yield Hit(loss.target, f"{loss.name} regresses on these targets, and the cast truncates them to integers.")
        elif loss.wants == "values" and loss.target is not None:
            found = whole_numbers(script, loss.target, script.where(loss.node))
            if found is not None:
                node, at = found
                says = f"{loss.name} regresses on targets that are truncated to integers here and scaled afterwards."
                cut_off = divided(script, node, at)
                if not cut_off and verb(node) not in ("astype", "to_numpy"):
                    continue
                here = node in script.module.up
                if not here:
                    place = (Related(at.block.scope.module.path, node.lineno, "the cast"),)
                    says = f"{loss.name} regresses on targets that the data set has truncated to integers."
                    yield Hit(loss.target, says, "likely" if cut_off else "look", related=place)
                else:
                    yield Hit(node, says, "likely" if cut_off else "look")
        elif loss.wants == "logits" and cast(loss.target) and fractions(script, loss.target):
            yield Hit(loss.target, "these targets lie between 0 and 1, and the cast turns all of them into class 0.")
        if cast(loss.prediction):
            yield Hit(
                loss.prediction,
                "the prediction is cast to integers, which have no gradient.",
                cause="loss.disconnected",
            )
    yield from emptied(script)


def emptied(script: Script) -> Iterator[Hit]:
    """img = (img - lo) / (hi - lo); img.astype(np.uint8): nearly all of it is zero."""
    if not script.mentions("uint8", "byte", "astype"):
        return
    for call in script.calls("astype", "to", "type", "byte", "uint8", "tensor", "as_tensor", "array", "asarray"):
        inner = to_bytes(script, call)
        if inner is not None and unit(script, inner, script.where(call)):
            told = "lies between 0 and 1, and the cast to bytes truncates nearly all of it to zero."
            yield Hit(call, told, "likely", cause="data.input_destroyed")


def to_bytes(script: Script, call: ast.Call) -> Any:
    """What a cast to unsigned bytes is given."""
    dotted = script.dotted(call.func)
    method = isinstance(call.func, ast.Attribute) and not dotted
    if verb(call) in ("byte", "uint8"):
        return call.func.value if method and not call.args else call.args[0] if dotted and call.args else None  # type: ignore[attr-defined]
    kinds = [word.value for word in call.keywords if word.arg in ("dtype", "type")] or call.args[0 if method else 1 :][
        :1
    ]
    told = [text(kind).rsplit(".", 1)[-1] or script.constant(kind) for kind in kinds]
    if told != ["uint8"]:
        return None
    return call.func.value if method else call.args[0] if call.args else None  # type: ignore[attr-defined]


FULL = (255, 255.0, 256, 1023, 4095, 65535)
SHAPED = frozenset("squeeze numpy cpu detach copy transpose permute clone contiguous float astype mean reshape".split())


def unit(script: Script, node: Any, where: Where, deep: int = 8) -> bool:
    """Whether values surely lie between 0 and 1, as numbers with fractions."""
    if deep == 0:
        return False
    if isinstance(node, ast.Name):
        held = outward(node.id, where)
        made = held[0] if len(held) == 1 and held[0].how == "=" and not held[0].path else None
        return made is not None and unit(script, made.value, made.where, deep - 1)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Div) and scaled(script, node)
    if not isinstance(node, ast.Call):
        return False
    last = verb(node)
    if last in ("clip", "clamp"):
        bounds = [script.at_home(where).constant(arg) for arg in (*node.args, *(word.value for word in node.keywords))]
        return bounds[-2:] in ([0, 1], [0.0, 1.0]) and not cut_before(script, node, where, deep)
    if last in ("sigmoid", "softmax"):
        return True
    if isinstance(node.func, ast.Attribute) and last in SHAPED and not script.at_home(where).dotted(node.func):
        return unit(script, node.func.value, where, deep - 1)
    for value in script.values.value(node.func, where, None) if isinstance(node.func, ast.Name | ast.Attribute) else ():
        func = value.func if value.kind == "function" else None
        return func is not None and len(func.returns) == 1 and unit(script, *func.returns[0], deep - 1)
    return False


def cut_before(script: Script, node: ast.Call, where: Where, deep: int) -> bool:
    """Whether what is bounded was whole already: a mask stays a mask."""
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = node.args[0] if inner is not None and script.at_home(where).dotted(node.func) and node.args else inner
    return not isinstance(given, ast.BinOp) and not unit(script, given, where, deep - 1)


def scaled(script: Script, node: ast.BinOp) -> bool:
    """x / 255, (x - lo) / (hi - lo), x / x.max()"""
    right = node.right
    if script.constant(right) in FULL and script.constant(right) is not True:
        return True
    lows = [part.right for part in (node.left, right) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)]
    if len(lows) == 2 and ast.unparse(lows[0]) == ast.unparse(lows[1]):
        return True
    return verb(right) == "max" and ast.unparse(node.left) in ast.unparse(right)


def cast(node: object) -> bool:
    """A cast that is the last thing done: `y.long()`, not `y.long().float()`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in INTEGERS
        and not node.args
    )


def divided(script: Script, node: Any, where: Where) -> bool:
    """Whether what is cut had been made fractions: divided, scaled, or turned into a share."""
    for step in trail(script, node, where, steps=60):
        if isinstance(step.node, ast.BinOp) and isinstance(step.node.op, ast.Div):
            return True
        if verb(step.node) in ("sigmoid", "softmax", "fit_transform", "rand", "log1p", "log"):
            return True
    return False


def whole_numbers(script: Script, node: Any, where: Where, deep: int = 10) -> tuple[Any, Where] | None:
    """The cast to integers that a target of real numbers went through."""
    if deep == 0:
        return None
    if isinstance(node, ast.Name):
        example = example_of(script, node, where)
        if example is not None:
            return whole_numbers(script, *example, deep - 1)
        held = outward(node.id, where)
        made = held[0] if len(held) == 1 and held[0].how == "=" and not held[0].path else None
        return whole_numbers(script, made.value, made.where, deep - 1) if made is not None else None
    if isinstance(node, ast.Subscript):
        return whole_numbers(script, node.value, where, deep - 1)
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr in ("astype", "to_numpy"):
        kinds = [ast.unparse(arg).strip("'\"") for arg in (*node.args, *(word.value for word in node.keywords))]
        if any(kind.rsplit(".", 1)[-1] in WHOLE for kind in kinds):
            return node, where
    if isinstance(func, ast.Attribute) and func.attr in INTEGERS and not node.args:
        return node, where
    if isinstance(func, ast.Attribute) and func.attr in ("LongTensor", "IntTensor"):
        return node, where
    if typed(node) and isinstance(func, ast.Attribute) and func.attr in ("tensor", "as_tensor", "array", "to", "type"):
        return node, where
    if compared(node):
        return None
    inner = func.value if isinstance(func, ast.Attribute) and not script.dotted(func) else None
    given = inner if inner is not None else node.args[0] if node.args else None
    return whole_numbers(script, given, where, deep - 1) if given is not None else None


def typed(node: ast.Call) -> bool:
    """dtype=torch.long, or the type as the only argument."""
    kinds = [word.value for word in node.keywords if word.arg == "dtype"]
    kinds += [arg for arg in node.args if isinstance(arg, ast.Attribute)][:1] if not kinds else []
    return any(text(kind).rsplit(".", 1)[-1] in ("long", "int64", "int32", "int") for kind in kinds)


def compared(node: ast.Call) -> bool:
    """What comes out of a comparison or a count is whole by nature."""
    return any(isinstance(part, ast.Compare) for part in ast.walk(node)) or verb(node) in (
        "randint",
        "arange",
        "argmax",
    )


WHOLE = ("int", "int64", "int32", "int16", "int8", "uint8", "long")


def fractions(script: Script, node: ast.Call) -> bool:
    """Whether the labels were computed by a division and kept as such by the data set that the loader reads."""
    base = node.func.value if isinstance(node.func, ast.Attribute) else None
    found = example_of(script, base, script.where(node))
    if found is None or not isinstance(found[0], ast.Call):
        return False
    given = found[0].args[0] if found[0].args else None
    made = given.elt if isinstance(given, ast.ListComp) else given
    return isinstance(made, ast.BinOp) and isinstance(made.op, ast.Div)
