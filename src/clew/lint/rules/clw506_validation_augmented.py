"""Held-out data is augmented at random.

What it sees: a data set named val or test that is built with a transform of random crops, flips, jitter or erasing,
here or in another file, or is split off from one; a function that takes the part as an argument and ignores it.
Why it matters: the score then depends on luck, changes from run to run, and measures distorted data.
Silent when: the transform has no random step, or test-time augmentation is named.
Fix: give held-out data a transform without random steps.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import HELD_OUT, TRAIN, kept_as
from clew.lint.divide import element
from clew.lint.index import Def, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import trail, verb
from clew.lint.value import Context, Value

RANDOM = re.compile(
    r"(RandomCrop|RandomResizedCrop|Random\w*Flip|RandomRotation|ColorJitter|RandomErasing|RandAugment|AutoAugment|TrivialAugment\w*|RandomAffine|RandomPerspective|RandomGrayscale|GaussNoise|HorizontalFlip|VerticalFlip|MixUp|CutMix)$"
)
TTA = re.compile(r"tta|test_?time", re.I)


@rule(
    "CLW506",
    "validation-augmented",
    "data.augmentation",
    "likely",
    (
        "RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip RandomRotation ColorJitter RandAugment "
        "HorizontalFlip RandomErasing RandomAffine AutoAugment transform transforms"
    ),
)
def check(script: Script) -> Iterator[Hit]:
    if TTA.search(" ".join(script.module.names)):
        return
    for scope in script.module.scopes:
        for call in scope.calls:
            given = script.arg(call, -1, "transform") or script.arg(call, -1, "transforms")
            held = HELD_OUT.search(kept(script, call).rsplit(".", 1)[-1]) if given is None and call.args else None
            if held or (given is None and len(call.args) > 2 and not_training(script, call)):
                given = next((arg for arg in call.args if composed(script, arg)), None)
            if given is None:
                continue
            name = kept(script, call).rsplit(".", 1)[-1]
            held_out = bool(HELD_OUT.search(name)) and not TRAIN.search(name)
            if not held_out and not not_training(script, call):
                continue
            step = random_step(script, given)
            if step:
                yield Hit(
                    given, f"held-out data goes through {step}: the score depends on random draws and distorted inputs."
                )

    if any(RANDOM.search(name) for name in script.module.names):
        yield from deaf(script)
    if script.mentions("random_split", "Subset"):
        yield from shared(script)


def kept(script: Script, call: ast.Call) -> str:
    """The name of a data set, or of the loader that it is made for on the spot."""
    above = script.parent(call)
    inline = isinstance(above, ast.Call) and text(above.func).rsplit(".", 1)[-1] == "DataLoader"
    return kept_as(script, above if inline and above is not None else call)


def composed(script: Script, node: ast.expr) -> bool:
    """A transform put together from steps, handed over by position."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return False
    return all(value.kind == "instance" and value.name.endswith("Compose") for value in script.value(node))


def shared(script: Script) -> Iterator[Hit]:
    """train_set, val_set = random_split(full, ...), where full is augmented."""
    if any(
        target.attr in ("transform", "transforms")
        for scope in script.module.scopes
        for target, _, _ in scope.attr_sets
        if text(target.value) != scope.me
    ):
        return
    sets = [one for scope in script.module.scopes for one in scope.defs.items()]
    for name, defs in (*sets, *(one for cls in script.module.classes for one in cls.attrs.items())):
        if not HELD_OUT.search(name) or TRAIN.search(name):
            continue
        for made in defs:
            call = element(made.value, made.path) if not isinstance(made.value, ast.Call) else made.value
            last = text(call.func).rsplit(".", 1)[-1] if isinstance(call, ast.Call) else ""
            if made.how != "=" or last not in ("random_split", "Subset") or not call.args:
                continue
            step = anywhere(script, call.args[0], made.where) if not only_positions(script, made) else ""
            if step:
                yield Hit(
                    call, f"{name} is part of a data set that goes through {step}: the score depends on random draws."
                )


def only_positions(script: Script, made: Def) -> bool:
    """Whether only the positions of a part are used, to take the same examples out of data that is not augmented."""
    said = text(made.node)
    uses = [script.parent(node) for node in script.loads(said) if text(node) == said]
    return bool(uses) and all(isinstance(use, ast.Attribute) and use.attr == "indices" for use in uses)


def anywhere(script: Script, node: ast.AST, where: Where | None = None) -> str:
    """A random step anywhere in what a transform, or a data set, is made of."""
    for step in trail(script, node, where or script.where(node), steps=60):
        name = verb(step.node)
        if RANDOM.search(name):
            return name
    return ""


def deaf(script: Script) -> Iterator[Hit]:
    """A function that is told which part of the data it is for, does not look, and returns random steps."""
    for scope in script.module.scopes:
        told = [name for name in scope.params if PART.search(name)] if scope.kind == "function" else []
        if not told or not scope.returns or scope.cls is not None:
            continue
        read = {part.id for part in ast.walk(scope.node) if isinstance(part, ast.Name)}
        for given, _ in scope.returns:
            step = random_step(script, given) or anywhere(script, given)
            if step and not read.intersection(told):
                yield Hit(
                    given, f"{scope.name} takes {told[0]} and ignores it: {step} is also applied to held-out data."
                )


PART = re.compile(r"^(split|phase|mode|stage|subset|part|fold|is_?train(ing)?|train(ing)?|augment)$", re.I)


def not_training(script: Script, call: ast.Call) -> bool:
    """torchvision's way of naming the test part."""
    if len(call.args) > 1 and script.dotted(call.func).startswith("torchvision.datasets."):
        return script.constant(call.args[1]) in (False, "test", "val")
    return script.constant(script.arg(call, -1, "train")) is False or script.constant(
        script.arg(call, -1, "split")
    ) in ("test", "val")


def spread(script: Script, value: Value) -> list[ast.AST]:
    """The steps that a list by name brings into a transform, as that list is on the way of this very call."""
    first = value.node.args[0] if value.node.args and value.where is not None else None
    names: list[ast.expr] = [first] if isinstance(first, ast.Name) else []
    names += [item.value for item in getattr(first, "elts", []) if isinstance(item, ast.Starred)]
    context = value.const if isinstance(value.const, Context) else None
    found: list[ast.AST] = []
    for name in names:
        assert value.where is not None
        held = script.values.value(name, value.where, context)
        found += held[0].items if len(held) == 1 and held[0].kind == "items" else ()
    return found


def random_step(script: Script, node: ast.AST) -> str:
    """The first random step of a composed transform."""
    for value in script.value(node):
        if not isinstance(value.node, ast.Call) or value.kind != "instance":
            return ""
        for part in (inner for node in (value.node, *spread(script, value)) for inner in ast.walk(node)):
            if isinstance(part, ast.Call):
                name = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
                if RANDOM.search(name) and script.constant(script.arg(part, 0, "p"), 1) != 0:
                    return name
    return ""
