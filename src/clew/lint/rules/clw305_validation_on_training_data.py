"""Something called validation is computed on the training data.

What it sees: a result named val or test that comes from evaluating on a loader or arrays named train, and on nothing
held out; a loop or call that evaluates a model on training data while the held-out loader is never used; a loader named
val or test over the set that the training loader reads; a trainer that is given one set or loader for both.
Why it matters: the score measures memorisation. Early stopping and model selection then reward overfitting.
Silent when: the result is named after training too, or held-out data is among the arguments.
Fix: give it the held-out data.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper, loaders
from clew.lint.held_out import read_instead
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, one_a_line, text

HELD_OUT = re.compile(r"(^|_)(val|valid|validation|test|dev|holdout|heldout|oof)(_|$)", re.I)
TRAIN = re.compile(r"(^|_)(train|training|tr)(_|$)|trainloader|train_?set", re.I)
LOADER = re.compile(r"loader|_dl$|_iter$", re.I)
TRAINS = re.compile(r"train|fit|learn|solver|engine|experiment|^run", re.I)
JUDGES = re.compile(r"eval|valid|^test|score|accuracy|metric|loss_on|predict_and|check_acc", re.I)


@rule(
    "CLW305",
    "validation-on-training-data",
    "data.leak_split",
    "likely",
    "train_loader trainloader train_dataloader X_train x_train train_dl train_data train_set train_ds train_dataset "
    "DataLoader dataloaders loaders dls",
)
def check(script: Script) -> Iterator[Hit]:
    yield from one_a_line(every(script))


def every(script: Script) -> Iterator[Hit]:
    yield from wrong_loader(script)
    yield from never_read(script)
    yield from whole_trained(script)
    yield from given_twice(script)
    yield from in_both_places(script)
    for place, name, unread in read_instead(script) if not script.tests else ():
        yield Hit(place, f"evaluates the model on {name}, while {unread} is never used.")
    yield from same_split(script)
    for node in script.module.statements.get(ast.Assign, []):
        call = node.value
        if not isinstance(call, ast.Call):
            continue
        names = [
            text(part)
            for target in node.targets
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        ]
        if not names or not all(HELD_OUT.search(name.rsplit(".", 1)[-1]) and not TRAIN.search(name) for name in names):
            continue
        if not JUDGES.search(text(call.func).rsplit(".", 1)[-1]) and not measures(script, call):
            continue
        given = [text(arg).rsplit(".", 1)[-1] for arg in (*call.args, *(word.value for word in call.keywords))]
        on_train = [name for name in given if TRAIN.search(name) and not HELD_OUT.search(name)]
        if on_train and not any(HELD_OUT.search(name) for name in given) and "train" not in text(call.func).lower():
            yield Hit(call, f"{names[0]} is computed on {on_train[0]}.")


def measures(script: Script, call: ast.Call) -> bool:
    """Whether a function of the project goes over a loader, applies a model and computes no gradients."""
    func = helper(script, call, script.where(call))
    if func is None or "train" in func.name.lower() or len(call.args) < 2:
        return False
    said = {one.func.attr for one in func.calls if isinstance(one.func, ast.Attribute)}
    quiet = "eval" in said or any(
        "no_grad" in ast.unparse(item.context_expr) or "inference_mode" in ast.unparse(item.context_expr)
        for block in func.withs
        for item in getattr(block.node, "items", [])
    )
    return not said & {"backward", "step", "fit"} and quiet


PAIRS = (("train_dataset", "eval_dataset"), ("train_dataloaders", "val_dataloaders"), ("train_loader", "val_loader"))


PICKS = ("select", "shuffle", "shard", "take")


def given_twice(script: Script) -> Iterator[Hit]:
    """Trainer(train_dataset=ds["train"], eval_dataset=ds["train"])."""
    for train, judged in PAIRS if not script.tests else ():
        if not script.mentions(judged):
            continue
        for scope in script.module.scopes:
            for call in scope.calls:
                both = {word.arg: word.value for word in call.keywords if word.arg in (train, judged)}
                said = part_of(script, both[train]) if len(both) == 2 else ""
                other = both.get(judged)
                while (
                    isinstance(other, ast.Call) and isinstance(other.func, ast.Attribute) and other.func.attr in PICKS
                ):
                    other = other.func.value  # the first rows of the same part
                if said and said == part_of(script, other) and TRAIN.search(said.rsplit(".", 1)[-1]):
                    yield Hit(both[judged], f"{judged} is {said}, the training set.")


def in_both_places(script: Script) -> Iterator[Hit]:
    """Trainer(net, optimizer, train_loader, train_loader): one loader where a second one is asked for."""
    for scope in script.module.scopes if not script.tests else ():
        for call in scope.calls:
            names = [arg.id for arg in call.args if isinstance(arg, ast.Name)]
            twice = next((name for name in names if names.count(name) > 1 and LOADER.search(name)), "")
            if twice and TRAIN.search(twice) and TRAINS.search(text(call.func).rsplit(".", 1)[-1]):
                yield Hit(call, f"{twice} is given twice, so the held-out set is the training set.")


def same_split(script: Script) -> Iterator[Hit]:
    """test = raw["train"].select(...), while training reads all of raw["train"]."""
    if not script.mentions("load_dataset", "load_from_disk", "DatasetDict"):
        return
    found: list[tuple[str, str, bool, ast.Assign]] = []
    for node in script.module.statements.get(ast.Assign, []):
        at, parts = node.value, False
        while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
            parts = parts or at.func.attr in ("select", "filter", "train_test_split", "shard", "take", "skip")
            at = at.func.value
        said = part_of(script, at) if isinstance(at, ast.Subscript) else ""
        if TRAIN.search(said.rsplit(".", 1)[-1]):
            found.append((text(node.targets[0]), said, parts, node))
    for name, said, _, node in found:
        held_out = (HELD_OUT.search(name) or EVAL.search(name)) and not TRAIN.search(name)
        whole = any(TRAIN.search(other) and same == said and not parts for other, same, parts, _ in found)
        if held_out and whole:
            yield Hit(node.value, f"{name} is taken from {said}, and training reads all of it.")


def never_read(script: Script) -> Iterator[Hit]:
    """A held-out part is made and read by nothing, while two loaders read the training part."""
    reads: dict[str, list[ast.Call]] = {}
    for call, _ in loaders(script):
        reads.setdefault(kept_in(script, script.arg(call, 0, "dataset"), call), []).append(call)
    twice = [
        calls for name, calls in reads.items() if name and TRAIN.search(name.rsplit(".", 1)[-1]) and len(calls) > 1
    ]
    if not twice:
        return
    path = script.module.path
    for name in {name for cls in script.module.classes for name in cls.attrs if HELD_OUT.search(name)}:
        read = any(isinstance(node, ast.Attribute) for node in script.loads(name))
        if not read and script.project.neighbours_with(path, f".{name}") == 0:
            yield Hit(twice[0][-1], f"reads the training part a second time, while self.{name} is never used.")
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            data = HELD_OUT.search(name) and any(made.how == "=" for made in defs) and scope.kind == "function"
            if data and name not in scope.params and not script.loads(name):
                same = [call for call in twice[0] if script.scope(call) is scope]
                if len(same) > 1:
                    yield Hit(same[-1], f"reads the training part a second time, while {name} is never used.")


def whole_trained(script: Script) -> Iterator[Hit]:
    """train, val = random_split(ds, ...), and the training loader reads ds."""
    for call, _ in script.calls_to("torch.utils.data.", "random_split"):
        statement = script.statement(call)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        names = [text(part) for part in target.elts] if isinstance(target, ast.Tuple) else []
        whole = text(script.arg(call, 0, "dataset"))
        train = [name for name in names if TRAIN.search(name.rsplit(".", 1)[-1])]
        if not whole or len(train) != 1 or any(text(node) == train[0] for node in script.loads(train[0])):
            continue
        for made, kept in loaders(script):
            if text(script.arg(made, 0, "dataset")) == whole and TRAIN.search(kept.rsplit(".", 1)[-1]):
                yield Hit(made, f"reads all of {whole}, held-out rows included; {train[0]} is never used.")


def kept_in(script: Script, node: Any, call: ast.Call) -> str:
    """What a data set is called, behind a second name for it."""
    where = script.where(call)
    defs = where.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
    if (
        len(defs) == 1
        and defs[0].how == "="
        and not defs[0].path
        and isinstance(defs[0].value, ast.Name | ast.Attribute)
    ):
        return text(defs[0].value)
    return text(node)


def part_of(script: Script, node: Any) -> str:
    """A data set by its name, or by the part of several that it is: raw["train"] is raw.train."""
    if isinstance(node, ast.Subscript) and text(node.value):
        key = script.constant(node.slice)
        return f"{text(node.value)}.{key}" if isinstance(key, str) else ""
    if isinstance(node, ast.Call) and node.args and not script.starred(node) and text(node.args[0]):
        return f"{ast.unparse(node)}.{text(node.args[0])}"  # the same data set made twice
    return text(node)


EVAL = re.compile(r"(^|_)(eval|evaluation)(_|$)|evalloader", re.I)


def wrong_loader(script: Script) -> Iterator[Hit]:
    """val_loader = DataLoader(train_set), where the training loader reads the same set."""
    made = [(name.rsplit(".", 1)[-1], call, script.arg(call, 0, "dataset")) for call, name in loaders(script)]
    for name, call, data in made:
        said = part_of(script, data)
        judged = HELD_OUT.search(name) or (EVAL.search(name) and not any(HELD_OUT.search(one) for one, _, _ in made))
        if not said or not judged or TRAIN.search(name) or not TRAIN.search(said.rsplit(".", 1)[-1]):
            continue
        if HELD_OUT.search(said) or script.arg(call, 3, "sampler") is not None or script.starred(call):
            continue
        if any(other != name and TRAIN.search(other) and part_of(script, same) == said for other, _, same in made):
            yield Hit(call, f"{name} reads {said.rsplit(').', 1)[-1]}, the training set.")
