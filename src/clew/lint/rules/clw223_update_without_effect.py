"""An update by hand changes a name, not the parameters.

What it sees: in a loop over a model's parameters, the loop variable is bound to a new value computed from itself and
its gradient.
Why it matters: the assignment binds the name to a new tensor and leaves the parameter as it was. The loop runs, and
the model never moves.
Silent when: the update is in place, through .data, copy_, add_ or sub_, or the new values are collected and used.
Fix: under no_grad, p.sub_(lr * p.grad) or p -= lr * p.grad.
"""

import ast
from collections.abc import Iterator

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text


@rule("CLW223", "update-without-effect", "train.step_missing", "certain", "parameters named_parameters")
def check(script: Script) -> Iterator[Hit]:
    for loop in script.module.statements.get(ast.For, []):
        func = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("parameters", "named_parameters"):
            continue
        target = loop.target.elts[-1] if isinstance(loop.target, ast.Tuple) and loop.target.elts else loop.target
        name = text(target)
        for node in loop.body:
            if isinstance(node, ast.Assign) and text(node.targets[0]) == name and steps(node.value, name):
                after = loop.body[loop.body.index(node) + 1 :]
                if not any(isinstance(part, ast.Name) and part.id == name for one in after for part in ast.walk(one)):
                    yield Hit(node, f"binds {name} to a new tensor; the parameter itself stays as it was.")


def steps(node: ast.AST, name: str) -> bool:
    """p - lr * p.grad."""
    words = {text(part) for part in ast.walk(node)}
    return isinstance(node, ast.BinOp) and name in words and (f"{name}.grad" in words or f"{name}.grad.data" in words)
