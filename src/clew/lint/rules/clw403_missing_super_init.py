"""A module does not initialise its base class.

What it sees: a class that derives from nn.Module or LightningModule, also through a class of the project, whose
__init__ sets layers before, or without, calling super().__init__().
Why it matters: assigning the first layer raises. Where the layers come from elsewhere, hooks, modes and registration
are missing and fail later and far away.
Silent when: the base is another class of the project whose __init__ is called by name, or the class has no __init__.
Fix: call super().__init__() as the first line.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Class, Scope
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

BASES = (
    "torch.nn.Module",
    "lightning.LightningModule",
    "pytorch_lightning.LightningModule",
    "lightning.pytorch.LightningModule",
)


@rule("CLW403", "missing-super-init", "arch.unregistered_modules", "certain", "Module LightningModule")
def check(script: Script) -> Iterator[Hit]:
    for cls in script.module.classes:
        init = cls.methods.get("__init__")
        if init is not None and len(cls.node.bases) > 1:
            yield from other_base_only(script, cls, init)
        if init is None or len(cls.node.bases) != 1:
            continue
        direct = script.dotted(cls.node.bases[0]) in BASES
        late = too_late(script, init) if direct else None
        if late is not None:
            yield Hit(late, f"{cls.name} sets a layer before super().__init__(): it cannot be registered yet.")
            continue
        called = any(isinstance(call.func, ast.Attribute) and call.func.attr == "__init__" for call in init.calls)
        if called or init.node.decorator_list or cls.node.decorator_list:  # type: ignore[attr-defined]
            continue
        if not cls.attrs or any(
            isinstance(call.func, ast.Attribute) and call.func.attr in ("__dict__", "update") for call in init.calls
        ):
            continue
        if not direct and not inherits(script, cls):
            continue
        first = init.node.body[0]  # type: ignore[attr-defined]
        indent = " " * first.col_offset
        fix = Fix("initialise the base class", True, (script.before(first, f"super().__init__()\n{indent}"),))
        text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        yield Hit(
            init.node,
            f"{cls.name}.__init__ never calls super().__init__(): nothing can be registered.",
            fix=None if text else fix,
        )


def other_base_only(script: Script, cls: Class, init: Scope) -> Iterator[Hit]:
    """class Block(Mixin, nn.Module) whose __init__ initialises the mixin, or nothing, and sets layers."""
    if not any(script.dotted(base) in BASES for base in cls.node.bases):
        return
    calls = [call for call in init.calls if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"]
    layers = [
        target
        for target, value, _ in init.attr_sets
        if isinstance(value, ast.Call) and script.dotted(value.func).startswith("torch.nn.")
    ]
    if not layers or init.node.decorator_list or cls.node.decorator_list:  # type: ignore[attr-defined]
        return
    for call in calls:
        values = script.value(call.func.value)  # type: ignore[attr-defined]
        plain = len(values) == 1 and values[0].kind == "class" and values[0].cls is not None
        held = values[0].cls if plain else None
        if held is None or "__init__" in held.methods or held.node.bases:
            return  # super().__init__(), the module's own, or one that may call on
    yield Hit(init.node, f"{cls.name}.__init__ never initialises nn.Module: nothing can be registered.")


def too_late(script: Script, init: Scope) -> ast.AST | None:
    """A layer that is set, on the same level, before the base class is initialised."""
    first = min(
        (
            script.where(call).order
            for call in init.calls
            if isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
        ),
        default=0,
    )
    for target, value, where in init.attr_sets:
        if not isinstance(value, ast.Call) or where.order >= first or where.block is not init.body:
            continue
        if script.dotted(value.func).startswith("torch.nn.") and isinstance(target.value, ast.Name):
            return target if target.value.id == init.me else None
    return None


def inherits(script: Script, cls: Class) -> bool:
    """Whether the base is a class of the project that is a module, and all of its own bases are known."""
    values = script.value(cls.node.bases[0])
    own = all(value.kind == "class" and value.cls is not None and script.is_module(value.cls) for value in values)
    return own and "?" not in script.values.bases(cls)
