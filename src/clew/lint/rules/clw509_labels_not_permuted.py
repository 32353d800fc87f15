"""Inputs and labels are shuffled apart from each other.

What it sees: two arrays that belong together each indexed by a permutation of its own, shuffled one after the other,
or only one of the two permuted before both go on.
Why it matters: labels no longer belong to their inputs. The loss falls to that of guessing and stays there.
Silent when: one permutation serves both, or the seed is set to the same value before each shuffle.
Fix: draw one permutation and index both with it.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.values import Value

LABELS = re.compile(r"^(y|ys|labels?|targets?|train_?y|y_?train|train_labels?|train_targets?)$", re.I)
INPUTS = re.compile(r"^(x|xs|inputs?|images?|features?|data|train_?x|x_?train|train_(data|images?|features?))$", re.I)
DRAWS = ("numpy.random.permutation", "torch.randperm")
SHUFFLES = ("numpy.random.shuffle", "random.shuffle")


@rule(
    "CLW509",
    "labels-not-permuted",
    "data.labels_misaligned",
    "likely",
    "permutation randperm shuffle sample sort sorted sort_values",
)
def check(script: Script) -> Iterator[Hit]:
    yield from drawn_twice(script)
    yield from shuffled_twice(script)
    yield from only_inputs(script)
    yield from given_back(script)
    yield from out_of_order(script)


def drawn_twice(script: Script) -> Iterator[Hit]:
    """x = x[permutation(n)] and y = y[permutation(n)], or x = x[order] with y left as it was."""
    for scope in script.module.scopes:
        permuted: dict[str, tuple[ast.AST, str]] = {}
        for name, defs in scope.defs.items():
            for made in defs:
                value = made.value
                if made.how == "=" and isinstance(value, ast.Subscript) and text(value.value) == name and not made.path:
                    key = order_of(script, value.slice)
                    if key:
                        permuted[name] = (made.node, key)
        for target, value, _ in scope.attr_sets:
            if isinstance(value, ast.Subscript) and text(value.value) == text(target) != "":
                key = order_of(script, value.slice)
                if key:
                    permuted[target.attr] = (target, key)
        inputs = {name: held for name, held in permuted.items() if INPUTS.match(name)}
        labels = {name: held for name, held in permuted.items() if LABELS.match(name)}
        for _, first in inputs.values():
            for name, (node, second) in labels.items():
                if first != second:
                    yield Hit(
                        node,
                        f"{name} is permuted by another draw than its inputs.",
                    )


def order_of(script: Script, node: ast.AST) -> str:
    """What identifies a permutation: the name it is kept under, or the place where it is drawn."""
    if isinstance(node, ast.Call):
        generator = isinstance(node.func, ast.Attribute) and node.func.attr == "permutation"
        if script.dotted(node.func) in DRAWS or generator:
            return f"{node.lineno}:{node.col_offset}"
    if isinstance(node, ast.Name):
        values = script.value(node)
        if all(value.kind == "made" and (value.const in DRAWS or draws(value)) for value in values):
            return ",".join(f"{value.node.lineno}:{value.node.col_offset}" for value in values)
    return ""


def draws(value: Value) -> bool:
    """randperm, or the permutation of a generator."""
    return value.name == "randperm" or (value.name == "permutation" and value.owner is not None)


def given_back(script: Script) -> Iterator[Hit]:
    """return x[order], y"""
    for scope in script.module.scopes:
        for node, _ in scope.returns:
            if not isinstance(node, ast.Tuple):
                continue
            moved = [part for part in node.elts if isinstance(part, ast.Subscript) and order_of(script, part.slice)]
            still = [text(part) for part in node.elts if isinstance(part, ast.Name) and LABELS.match(part.id)]
            if len(moved) == 1 and INPUTS.match(text(moved[0].value)) and still and still[0] in scope.params:
                yield Hit(node, f"{text(moved[0].value)} is permuted and {still[0]}, which goes with it, is not.")


def shuffled_twice(script: Script) -> Iterator[Hit]:
    """np.random.shuffle(x); np.random.shuffle(y), without resetting the seed between; or only x."""
    for scope in script.module.scopes:
        calls = [
            call
            for call in scope.calls
            if isinstance(call.func, ast.Attribute)
            and call.func.attr == "shuffle"
            and call.args
            and script.dotted(call.func) in SHUFFLES
        ]
        calls.sort(key=lambda call: call.lineno)
        names = [text(call.args[0]) for call in calls]
        inputs = [at for at, name in enumerate(names) if INPUTS.match(name)]
        for at, name in enumerate(names):
            if LABELS.match(name) and inputs and not reseeded(script, calls[inputs[0]], calls[at]):
                yield Hit(
                    calls[at],
                    f"{name} and {names[inputs[0]]} are shuffled by two different draws.",
                )


def reseeded(script: Script, first: ast.Call, second: ast.Call) -> bool:
    low, high = sorted((first.lineno, second.lineno))
    return any(low <= call.lineno <= high for call in script.calls("seed", "set_state", "setstate"))


def only_inputs(script: Script) -> Iterator[Hit]:
    """x = x[order], with an order that nothing else uses, and labels that go on beside x."""
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if not INPUTS.match(name):
                continue
            for made in defs:
                value = made.value
                if made.how != "=" or made.path or not isinstance(value, ast.Subscript) or text(value.value) != name:
                    continue
                order = value.slice
                if isinstance(order, ast.Name) and order_of(script, order) and uses(script, order.id) == 1:
                    labels = next((other for other in scope.defs if beside(script, other, name, made.where.order)), "")
                    if labels:
                        yield Hit(made.node, f"{name} is permuted and {labels}, which goes with it, is not.")


def bare(node: ast.AST) -> str:
    """x of torch.from_numpy(x[i : i + n])."""
    while isinstance(node, ast.Call | ast.Subscript):
        if isinstance(node, ast.Subscript):
            node = node.value
        elif len(node.args) == 1 and not isinstance(node.args[0], ast.Constant):
            node = node.args[0]
        else:
            return ""
    return text(node)


def out_of_order(script: Script) -> Iterator[Hit]:
    """y = np.sort(y), y = y[torch.randperm(len(y))]: labels in another order than their inputs."""
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            if not LABELS.match(name):
                continue
            for made in defs:
                how = moved(script, made.value) if made.how == "=" and not made.path else ""
                inputs = (
                    next((x for x in scope.defs if INPUTS.match(x) and beside(script, name, x, 0)), "") if how else ""
                )
                if inputs and not any(moved(script, one.value) for one in scope.defs[inputs] if one.how == "="):
                    yield Hit(made.node, f"{name} is {how} by itself, and {inputs}, which goes with it, is not.")


def moved(script: Script, node: object) -> str:
    """How the rows of an expression are put into another order, when that order is kept nowhere."""
    for part in ast.walk(node) if isinstance(node, ast.AST) else ():
        if isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Call) and order_of(script, part.slice):
            return "permuted"
        if isinstance(part, ast.Call):
            name = text(part.func).rsplit(".", 1)[-1]
            unique = any(isinstance(arg, ast.Call) and text(arg.func) in ("set", "np.unique") for arg in part.args)
            if name in ("sorted", "sort", "sort_values") and not unique:
                return "sorted"
    return ""


def uses(script: Script, name: str) -> int:
    return sum(isinstance(node, ast.Name) for node in script.loads(name))


def beside(script: Script, labels: str, inputs: str, order: int) -> bool:
    """Whether both are used together after the permutation."""
    if not LABELS.match(labels):
        return False
    for node in script.module.up:
        if isinstance(node, ast.Tuple | ast.Call) and script.where(node).order > order:
            parts = node.elts if isinstance(node, ast.Tuple) else node.args
            names = {bare(part) for part in parts}
            if {labels, inputs} <= names:
                return True
    return False
