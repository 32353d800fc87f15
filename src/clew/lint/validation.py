"""Loops that apply a model without training it."""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from clew.lint.given import argument
from clew.lint.index import Block, Scope
from clew.lint.script import Script, text
from clew.lint.training import Loop, training

NAMED = re.compile(
    r"(^|[^a-z])(val|valid|validate|validation|test|eval|evaluate|evaluation|dev|holdout)([^a-z]|$)|(val|valid|test|eval)_?(loader|dl|set|data|iter)",
    re.I,
)
MODELS = re.compile(r"(^|[._])(model|net|network|classifier|encoder|unet|module|backbone)(_?\w{0,6})?$", re.I)
MODE_LAYERS = (
    "Dropout",
    "BatchNorm",
    "InstanceNorm",
    "AlphaDropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "SyncBatchNorm",
    "LazyBatchNorm",
)


class Validation(NamedTuple):
    """One loop over held-out data, the first application of a model in it, and the model's name."""

    loop: Loop
    call: ast.Call
    model: str
    named: bool


def validations(script: Script) -> list[Validation]:
    """The file's loops over held-out data: they compute no gradients, and a name or a no_grad says what they are."""
    if "validations" not in script.known:
        script.known["validations"] = list(_find(script))
    found: list[Validation] = script.known["validations"]
    return found


def _find(script: Script) -> Iterator[Validation]:
    for scope in script.module.scopes:
        if not scope.loops or scope.name in NOT_LOOPS:
            continue
        for block in scope.loops:
            node = block.node
            if not isinstance(node, ast.For):
                continue
            named = bool(NAMED.search(ast.unparse(node.iter)))
            owner = script.class_of(scope)
            said = (
                f"{scope.name.replace('_', ' ')} {owner.name if owner is not None and scope.name == '__call__' else ''}"
            )
            called = bool(NAMED.search(said) or JUDGES.search(said)) and batches(node)
            called = called or (bool(MEASURES.search(said)) and batches(node) and handed_held_out(script, scope, node))
            quiet = script.grad_off(script.where(node.body[0])) is not None
            if not named and not (called and (quiet or set_to_eval(script, scope, node))):
                continue
            named = named or (called and not quiet)
            loop = Loop(block, [event for event in training(script).events(scope) if block in event.block.chain()])
            if loop.has("backward", "step", "distributed", "maybe_step"):
                continue
            for call in scope.calls:
                if script.where(call).block.loops()[:1] == [block] and (model := applied(script, call)):
                    yield Validation(loop, call, model, named)
                    break


MEASURES = re.compile(r"accuracy|score|metric|measure|perplexity|error|infer|predict", re.I)


def handed_held_out(script: Script, scope: Scope, node: ast.For) -> bool:
    """Whether a caller hands over held-out data, by its name, for what the loop runs over."""
    name = text(node.iter)
    if name not in scope.params:
        return False
    for call, _ in script.project.callers(scope):
        given = argument(call, scope, name)
        if given is not None and NAMED.search(ast.unparse(given)):
            return True
    return False


JUDGES = re.compile(r"Evaluat|Validat|Tester")


def set_to_eval(script: Script, scope: Scope, node: ast.For) -> bool:
    """Whether the function puts the model into evaluation mode before the loop."""
    order = script.where(node).order
    return any(event.kind == "eval" and event.order[0] < order for event in training(script).events(scope))


NOT_LOOPS = ("forward", "training_step", "validation_step", "test_step", "generate", "sample")


def batches(node: ast.For) -> bool:
    said = ast.unparse(node.iter).lower()
    return any(word in said for word in ("loader", "data", "batch", "iter", "dl"))


def applied(script: Script, call: ast.Call) -> str:
    """The name of the model that a call applies, or ""."""
    said = text(call.func)
    if not said or not isinstance(call.func, ast.Name | ast.Attribute) or not (call.args or call.keywords):
        return ""
    values = script.value(call.func)
    if all(value.kind == "instance" and value.cls is not None and script.is_module(value.cls) for value in values):
        return said
    if all(
        value.kind == "instance" and value.name.startswith("torch.nn.") and not value.name.endswith("Loss")
        for value in values
    ):
        return said
    unknown = all(value.kind in ("param", "unknown", "attr", "made") for value in values)
    return said if unknown and MODELS.search(said) else ""


def has_modes(script: Script, call: ast.Call) -> bool | None:
    """Whether the model that `call` applies acts differently in training; None when the model is not in sight."""
    values = script.value(call.func)
    found: list[bool | None] = []
    for value in values:
        if value.kind == "instance" and value.cls is not None:
            names: set[str] = set()
            for cls in script.values.lineage(value.cls):
                names |= called_in(cls.node)
            known = "?" not in script.values.bases(value.cls)
            inner = any(name.startswith(MODE_LAYERS) for name in names)
            outside = any(name[:1].isupper() and name not in PLAIN for name in names)
            found.append(True if inner else None if outside or not known else False)
        elif value.kind == "instance" and value.node is not None:
            names = called_in(value.node)
            found.append(any(name.startswith(MODE_LAYERS) for name in names))
        else:
            found.append(None)
    if any(found):
        return True
    return None if None in found else False


PLAIN = frozenset(
    "Linear Conv1d Conv2d ReLU Sequential Module ModuleList Flatten Tanh Sigmoid Embedding LSTM GRU RNN GELU "
    "LayerNorm".split()
)


def called_in(node: ast.AST) -> set[str]:
    return {
        part.func.attr if isinstance(part.func, ast.Attribute) else part.func.id
        for part in ast.walk(node)
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute | ast.Name)
    }


def prepared(script: Script, scope: Scope, order: int, deep: int = 3) -> str:
    """The mode that the model is in when a place of a scope is reached: `eval`, `train`, `set` (by a variable), or "",
    when neither this function nor its callers say."""
    state = ""
    for event in training(script).events(scope):
        if event.order[0] < order and event.kind in ("eval", "train", "mode"):
            state = {"mode": "set"}.get(event.kind, event.kind)
    if state or deep == 0:
        return state
    states = {prepared(script, where.block.scope, where.order, deep - 1) for _, where in script.project.callers(scope)}
    if "eval" in states or "set" in states:
        return "eval"
    return "train" if "train" in states else ""


def enclosing(block: Block) -> list[Block]:
    return block.parent.loops() if block.parent is not None else []
