"""Parameters are sorted into groups by name, and some fit none.

What it sees: a loop over named_parameters() that puts each one into a list by the beginning of its name or a word in
it, without an else, for a model of the project that has parts with weights whose names fit none of the tests.
Why it matters: what is in no group is in no optimiser, and stays at its start. The loss falls all the same.
Silent when: there is an else, or the model is not in sight.
Fix: end the chain with else, or raise there.
"""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.reach import network
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.values import Value


@rule("CLW226", "parameters-left-out", "train.params_not_in_optimizer", "likely", "named_parameters")
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.For, []):
        base = over(node.iter)
        target = node.target
        if base is None or not isinstance(target, ast.Tuple) or len(target.elts) != 2:
            continue
        name, chain = text(target.elts[0]), [part for part in node.body if isinstance(part, ast.If)]
        tests = sorted_by(script, chain[-1], name, text(target.elts[1])) if chain and chain[-1] is node.body[-1] else []
        if len(tests) < 2:
            continue
        for value in script.value(base):
            left = [part for part in parts(script, value) if not any(fits(part, kind, word) for kind, word in tests)]
            if left:
                last = chain[-1]
                while last.orelse and isinstance(last.orelse[0], ast.If):
                    last = last.orelse[0]
                yield Hit(last.test, f"parameters of {', '.join(left)} fit none of these names and go into no group.")
                break


def over(node: ast.expr) -> Any:
    """The model in `model.named_parameters()`."""
    func = node.func if isinstance(node, ast.Call) and not node.args else None
    return func.value if isinstance(func, ast.Attribute) and func.attr == "named_parameters" else None


def sorted_by(script: Script, node: ast.If, name: str, parameter: str) -> list[tuple[str, str]]:
    """The tests of a chain in which every branch keeps the parameter; nothing when one is of another kind."""
    found: list[tuple[str, str]] = []
    at: ast.stmt = node
    while isinstance(at, ast.If):
        test, keeps = at.test, any(parameter in ast.unparse(part) for part in at.body)
        word = None
        if isinstance(test, ast.Call) and text(test.func) == f"{name}.startswith" and len(test.args) == 1:
            kind, word = "startswith", script.constant(test.args[0])
        elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) and text(test.comparators[0]) == name:
            kind, word = "in", script.constant(test.left)
        if not isinstance(word, str) or not keeps or len(at.orelse) > 1:
            return []
        found.append((kind, word))
        if not at.orelse:
            return found
        at = at.orelse[0]
    return []


def parts(script: Script, value: Value) -> list[str]:
    """The parts with weights of a model of the project."""
    if value.kind != "instance" or value.cls is None or value.const == "self" or not script.is_module(value.cls):
        return []
    found = []
    for cls in script.values.lineage(value.cls):
        for name, defs in cls.attrs.items():
            made = script.values.defined(defs[0], None) if len(defs) == 1 else ()
            if made and all(one.kind == "instance" and network(script, one) for one in made):
                found.append(name)
    return found


def fits(part: str, kind: str, word: str) -> bool:
    """Whether a test can be true of a parameter of this part. What looks deeper into the name can be."""
    if kind == "startswith":
        return part.startswith(word.split(".")[0]) or word.startswith(f"{part}.")
    return word in f"{part}." or "." in word.strip(".") or word.strip(".") in ("weight", "bias", "norm")
