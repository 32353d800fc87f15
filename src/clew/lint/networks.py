"""The networks of a file: those that are no part of another one."""

import ast
from typing import Any

from clew.lint.given import made_of_layers
from clew.lint.index import Class, Module
from clew.lint.value import NOTHING

UNSETTLED: list[Class] = []


def networks(values: Any, module: Module) -> list[Class]:
    """The networks of a file that are no part of another one in it: defined there, or imported from the project."""
    if module in values.roots:
        values.cuts += values.roots[module] is UNSETTLED
    else:
        values.roots[module] = UNSETTLED
        found: list[Class] = []
        for defs in module.main.defs.values():
            for made in defs:
                if made.how not in ("class", "import") or not made.name[:1].isupper():
                    continue
                found += [one.cls for one in values.defined(made, None) if one.kind == "class" and one.cls]
        found = [
            cls
            for cls in dict.fromkeys(found)
            if not cls.name.endswith(("Loss", "Criterion", "Metric"))
            and any(base.startswith("torch.nn.") for base in values.bases(cls))
        ]
        found = [cls for cls in found if layered(values, cls)]
        used = {
            part.id if isinstance(part, ast.Name) else part.attr
            for cls in found
            for part in ast.walk(cls.node)
            if isinstance(part, ast.Name | ast.Attribute)
        }
        values.roots[module] = [cls for cls in found if cls.name not in used]
    roots: list[Class] = values.roots[module]
    return roots


def layered(values: Any, cls: Class, deep: int = 3) -> bool:
    """Whether a class makes layers, of its own or in its parts: a loss put together from losses makes none."""
    made = [one for held in cls.attrs.values() for one in held if made_of_layers(one.value)]
    for one in made:
        parts = values.defined(one, None) if deep else NOTHING
        if not all(part.kind == "instance" and (part.cls or part.name.endswith("Loss")) for part in parts):
            return True
        if any(layered(values, part.cls, deep - 1) for part in parts if part.cls is not None and part.cls is not cls):
            return True
    return False
