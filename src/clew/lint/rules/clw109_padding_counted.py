"""Padding is counted in the loss.

What it sees: labels copied from input ids that a tokenizer has just padded, with nothing set to -100 (a loss that
ignores -100 helps only if something sets it); sequences
padded by pad_sequence, here or in the loader's collate function, whose flattened outputs go into a cross-entropy
without ignore_index and without a mask; an accuracy over all positions of labels of which the loss ignores some.
Why it matters: the model is rewarded for predicting padding, which is easy and plentiful. The loss looks low, short
texts weigh as much as long ones, and where the padding token is also the end token the model never learns to stop.
Silent when: -100, ignore_index, a mask, or a collator that masks labels is in the same file.
Fix: set the labels of padded positions to -100, or give ignore_index.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.divide import element
from clew.lint.flow import reaching
from clew.lint.index import Scope, Where
from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.rules.clw104_loss_broadcast import counted
from clew.lint.script import Hit, Script, text
from clew.lint.trail import root

MASKING = (
    "DataCollatorForLanguageModeling",
    "DataCollatorForSeq2Seq",
    "ignore_index",
    "masked_fill",
    "masked_fill_",
    "loss_mask",
)


@rule(
    "CLW109", "padding-counted", "loss.padding_counted", "likely", "padding pad_sequence collate_fn padding_idx argmax"
)
def check(script: Script) -> Iterator[Hit]:
    yield from in_metrics(script)
    yield from in_pools(script)
    if not script.mentions("padding", "pad_sequence", "collate_fn", "padding_idx"):
        return
    if not script.mentions(*(name for name in MASKING if name != "ignore_index")) and not masked(script):
        yield from copied_labels(script)
    if not script.mentions(*MASKING) and "-100" not in script.text:
        yield from padded_sequences(script)


def in_metrics(script: Script) -> Iterator[Hit]:
    """(logits.argmax(-1) == labels).sum(), where the loss ignores some of these labels."""
    for node in script.module.nodes.get(ast.Compare, []):
        if not isinstance(node.ops[0], ast.Eq) or len(node.ops) > 1 or not counted(script, node):
            continue
        scope = script.scope(node)
        sides = (node.left, node.comparators[0])
        picked = [of_tokens(script, side, script.where(node)) for side in sides]
        if picked.count(True) != 1 or not isinstance(sides[picked.index(False)], ast.Name | ast.Subscript | ast.Call):
            continue
        if any(KEEPS.search(getattr(part, "attr", getattr(part, "id", ""))) for part in ast.walk(scope.node)):
            continue
        if ignores(script, scope):
            yield Hit(node, "counts all positions, including those that the loss ignores.", "likely")


def in_pools(script: Script) -> Iterator[Hit]:
    """self.emb(ids).mean(1) with an embedding that knows a padding index, in a class without any mask."""
    for call in script.calls("mean") if script.mentions("padding_idx") else ():
        scope = script.scope(call)
        axis = script.constant(script.arg(call, 0, "dim"))
        if scope.name != "forward" or scope.cls is None or axis != 1 or isinstance(axis, bool):
            continue
        made = once(script.operand(call), script.where(call)) if script.operand(call) is not None else None
        values = script.value(made.func) if isinstance(made, ast.Call) else ()
        padded = bool(values) and all(
            value.kind == "instance"
            and value.name == "torch.nn.Embedding"
            and isinstance(value.node, ast.Call)
            and script.arg(value.node, 2, "padding_idx") is not None
            for value in values
        )
        words = [getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(scope.node)]
        if padded and not any(KEEPS.search(word) for word in words):
            yield Hit(
                call,
                "averages over the padded positions too: short texts are pulled towards the padding vector.",
                "look",
            )


KEEPS = re.compile(r"mask|pad|ignore|valid|keep|lengths?$|^lens$|active|not_pad", re.I)


def of_tokens(script: Script, node: ast.expr, where: Where) -> bool:
    """Whether a side is the best class at each position: argmax over the last axis, or over axis 1 of images."""
    if isinstance(node, ast.Name):
        defs = where.block.scope.defs.get(node.id, [])
        made = reaching(defs, where) if defs else []
        if len(made) != 1 or made[0].how != "=" or made[0].path:
            return False
        node = made[0].value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "argmax":
        return False
    axis = script.constant(script.arg(node, 0 if not script.dotted(node.func) else 1, "dim"))
    return axis in (-1, 2, 1)


def ignores(script: Script, scope: Scope) -> bool:
    """Whether the loss beside the metric, or where it is called from, is told to ignore a label."""
    scripts = [script, *(script.at_home(where) for _, where in script.project.callers(scope)[:3])]
    for home in dict.fromkeys(scripts):
        for call in home.calls("CrossEntropyLoss", "NLLLoss", "cross_entropy", "nll_loss"):
            if home.arg(call, -1, "ignore_index") is not None:
                return True
        padded = [home.arg(call, -1, "padding_value") for call in home.calls("pad_sequence")]
        if any(given is not None and home.constant(given) == -100 for given in padded):
            return True
    return False


def masked(script: Script) -> bool:
    """Whether padding is ignored under an id of its own, or -100 is written anywhere: to look for it marks nothing."""
    for name in script.module.calls if script.mentions("ignore_index") else ():
        for call in script.module.calls[name]:
            given = script.arg(call, -1, "ignore_index")
            if given is not None and script.constant(given) != -100:
                return True
    if "-100" not in script.text:
        return False
    names = []
    for node in script.module.nodes.get(ast.UnaryOp, []):
        if ast.unparse(node) != "-100":
            continue
        above = script.parent(node)
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Name):
            names.append(above.targets[0].id)
        elif not only_read(script, node):
            return True
    return any(not only_read(script, load) for name in names for load in script.loads(name))


def only_read(script: Script, node: ast.AST) -> bool:
    """A comparison with the mark, or the loss being told of it."""
    above = script.parent(node)
    if isinstance(above, ast.Compare):
        return True
    return isinstance(above, ast.Call) and any(
        word.arg == "ignore_index" and word.value is node for word in above.keywords
    )


def copied_labels(script: Script) -> Iterator[Hit]:
    for target, value, where in script.module.subscript_sets:
        if script.constant(target.slice) == "labels" and is_ids(once(value, where)) and pads(script, where.block.scope):
            yield Hit(
                script.statement(target),
                "the labels are the padded input ids, so padding counts in the loss.",
            )
    for node in script.module.nodes.get(ast.Dict, []):
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and key.value == "labels"
                and is_ids(once(value, script.where(node)))
                and pads(script, script.scope(node))
            ):
                yield Hit(value, "the labels are the padded input ids, so padding counts in the loss.")
    for scope in script.module.scopes:
        for call in scope.calls:
            given = script.arg(call, -1, "labels")
            if given is not None and is_ids(once(given, script.where(call))) and pads(script, scope):
                yield Hit(given, "the labels are the padded input ids, so padding counts in the loss.")


COPIES = ("clone", "copy", "to", "squeeze", "flatten", "long", "detach")


def once(node: Any, where: Where) -> Any:
    """What a name was set to, when that is one thing and nothing was written into it since."""
    scope = where.block.scope
    for _ in range(5):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COPIES:
            node = node.func.value
            continue
        if not isinstance(node, ast.Name) or node.id not in scope.defs:
            return node
        name = node.id
        made = reaching(scope.defs[name], where)
        written = any(root(target) == name for target, _, at in scope.module.subscript_sets if at.block.scope is scope)
        if len(made) != 1 or made[0].how != "=" or written:
            return node
        node, where = element(made[0].value, made[0].path), made[0].where
    return node


def is_ids(node: object) -> bool:
    """`batch["input_ids"]`, `batch.input_ids`, or a copy of them."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("clone", "copy", "to")
    ):
        node = node.func.value
    if (
        isinstance(node, ast.Call)
        and text(node.func) in ("list", "copy.copy", "copy.deepcopy", "deepcopy")
        and node.args
    ):
        return is_ids(node.args[0])
    if isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs:
        each, item = node.generators[0].target, node.elt
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "copy":
            item = item.func.value
        if isinstance(item, ast.Call) and text(item.func) in ("list", "tuple") and len(item.args) == 1:
            item = item.args[0]
        if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Slice):
            item = item.value
        return text(item) == text(each) != "" and is_ids(node.generators[0].iter)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "input_ids"
    return isinstance(node, ast.Attribute) and node.attr == "input_ids"


def pads(script: Script, scope: Scope) -> bool:
    """Whether a tokenizer pads in this function, or in one that it calls for its batch."""
    for call in scope.calls:
        given = script.arg(call, -1, "padding")
        named = "tok" in text(call.func).lower() or (isinstance(call.func, ast.Attribute) and call.func.attr == "pad")
        if given is not None and named and script.constant(given, True) not in (False, "do_not_pad"):
            return True
        func = helper(script, call, script.where(call))
        if func is not None and func is not scope:
            home = script.at_home(Where(func.body, 0))
            if any(
                (word := home.arg(inner, -1, "padding")) is not None
                and "tok" in text(inner.func).lower()
                and home.constant(word, True) not in (False, "do_not_pad")
                for inner in func.calls
            ):
                return True
    return False


def padded_sequences(script: Script) -> Iterator[Hit]:
    here = any(script.calls_to("torch.nn.utils.rnn.", "pad_sequence")) or collated(script)
    embedded = any(script.arg(call, 2, "padding_idx") is not None for call in script.calls("Embedding"))
    if not (here or embedded):
        return
    for loss in loss_calls(script):
        names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(script.scope(loss.node).node)}
        if any("mask" in name.lower() for name in names):
            continue
        turned = isinstance(loss.prediction, ast.Call) and text(loss.prediction.func).endswith(
            (".transpose", ".permute")
        )
        if loss.wants == "logits" and (turned or (flattened(loss.prediction) and flattened(loss.target))):
            says = "sequences are padded, and the loss has no ignore_index: it counts the padded positions."
            yield Hit(loss.node, says, "likely" if here else "look")


def collated(script: Script) -> bool:
    """Whether a loader puts its batches together by a function of the project that pads targets too."""
    for call in script.calls("DataLoader"):
        given = script.arg(call, -1, "collate_fn")
        for value in script.value(given) if given is not None else ():
            func = value.func if value.kind == "function" else None
            said = [text(one.func).rsplit(".", 1)[-1] for one in func.calls] if func is not None else []
            if said.count("pad_sequence") > 1 and func is not None and "-100" not in ast.unparse(func.node):
                return True
    return False


def flattened(node: object) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("view", "reshape", "flatten")
    )
