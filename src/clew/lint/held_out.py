"""Loops that judge a model on the training data while the held-out data lies unread."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper, loaders
from clew.lint.index import Scope
from clew.lint.script import Script, text
from clew.lint.training import training

OUT = re.compile(
    r"(^|_)(val|valid|validation|test|dev|holdout|heldout)(_|$|\d)|^(val|valid|test)_?(loader|dl|iter|set)", re.I
)
TRAIN = re.compile(r"(^|_)(train|training|tr|trn)(_|$)|^train_?(loader|dl|iter|set)|trainloader", re.I)
MEASURES = re.compile(r"eval|valid|^test|_test|score|accuracy|metric|measure|check_acc|infer", re.I)


def read_instead(script: Script) -> Iterator[tuple[Any, str, str]]:
    """The place that reads training data to judge a model, that data's name, and the held-out loader nobody reads."""
    if not script.speaks("eval", "no_grad", "inference", "valid", "grad_enabled"):
        return
    for scope in script.module.scopes:
        if scope.kind not in ("function", "module"):
            continue
        for node, name in measured_on(script, scope):
            unread = next(iter(forgotten(script, scope)), "")
            if unread:
                yield node, name, unread
    yield from both_phases(script)


def measured_on(script: Script, scope: Scope) -> Iterator[tuple[Any, str]]:
    """Quiet loops over training data, and calls that measure on it."""
    for block in scope.loops:
        node = block.node
        name = last_name(stripped(node.iter)) if isinstance(node, ast.For) else ""
        if not isinstance(node, ast.For) or not TRAIN.search(name) or OUT.search(name) or "train" in scope.name.lower():
            continue
        quiet = script.grad_off(script.where(node.body[0])) is not None
        if quiet and not any(
            event.kind in ("backward", "step") and block in event.block.chain()
            for event in training(script).events(scope)
        ):
            yield node.iter, name
    for call in scope.calls:
        said = text(call.func).rsplit(".", 1)[-1]
        if not MEASURES.search(said) or "train" in said.lower() or not 1 <= len(call.args) + len(call.keywords) <= 6:
            continue
        given = [*call.args, *(word.value for word in call.keywords)]
        names = [last_name(arg) for arg in given]
        on = [name for name in names if TRAIN.search(name) and not OUT.search(name)]
        kept = kept_under(script, call)
        if on and not any(OUT.search(name) for name in names) and not TRAIN.search(kept):
            func = helper(script, call, script.where(call))
            if func is not None and func.loops:
                yield call, on[0]


def kept_under(script: Script, call: ast.Call) -> str:
    """The names that a result is given, or the words it is printed with."""
    statement = script.statement(call)
    if isinstance(statement, ast.Assign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return " ".join(ast.unparse(target).replace(", ", "_") for target in targets).replace("'", "_")
    # print("train accuracy", evaluate(model, train_loader))
    words = [
        str(part.value)
        for part in ast.walk(statement)
        if isinstance(part, ast.Constant)
        and isinstance(part.value, str)
        and isinstance(statement, ast.Expr | ast.Return)
    ]
    return re.sub(r"\W+", "_", " ".join(words))


def forgotten(script: Script, scope: Scope) -> list[str]:
    """Held-out loaders in sight of a function that nothing reads."""
    found: list[str] = []
    made = [name for _, name in loaders(script)]
    for name in (*made, *(one for one in scope.params if OUT.search(one))):
        last = name.rsplit(".", 1)[-1]
        if not last or not OUT.search(last) or TRAIN.search(last) or last in found:
            continue
        if script.loads(last):
            continue
        if "." in name and script.project.neighbours_with(script.module.path, f".{last}"):
            continue
        if "." in name or last in scope.defs or last in script.module.main.defs:
            found.append(last)
    cls = script.class_of(scope)
    for name in cls.attrs if cls is not None and not found else ():
        if (
            OUT.search(name)
            and not TRAIN.search(name)
            and any(word in name.lower() for word in ("loader", "dl", "iter"))
        ):
            read = any(isinstance(node, ast.Attribute) for node in script.loads(name))
            if not read and not script.project.neighbours_with(script.module.path, f".{name}"):
                found.append(name)
    return found


def both_phases(script: Script) -> Iterator[tuple[Any, str, str]]:
    """for phase in ("train", "val"): for batch in loaders["train"]."""
    for outer in script.module.statements.get(ast.For, []):
        phases = [getattr(item, "value", "") for item in getattr(outer.iter, "elts", ())]
        if "train" not in phases or len(phases) < 2 or not isinstance(outer.target, ast.Name):
            continue
        for inner in script.module.statements.get(ast.For, []):
            data = stripped(inner.iter)
            if not isinstance(data, ast.Subscript) or outer not in [
                one.node for one in script.where(inner).block.loops()
            ]:
                continue
            if script.constant(data.slice) == "train" and uses(outer, outer.target.id):
                yield inner.iter, ast.unparse(data), str(next(one for one in phases if one != "train"))


def uses(loop: ast.For, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for line in loop.body for part in ast.walk(line))


def stripped(node: Any) -> Any:
    """loader of tqdm(enumerate(loader))"""
    while (
        isinstance(node, ast.Call)
        and node.args
        and text(node.func).rsplit(".", 1)[-1] in ("tqdm", "enumerate", "iter", "track")
    ):
        node = node.args[0]
    return node


def last_name(node: Any) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return text(node).rsplit(".", 1)[-1]
