"""One thing that an expression may be, and the call through which it is looked at."""

import ast
from typing import Any, NamedTuple

from clew.lint.index import Class, Module, Scope, Where


class Value:
    """One thing that an expression may be.

    kind       name                       other fields
    unknown
    ref        dotted name outside        a module, function or class of a library
    class                                 cls
    function                              func, owner (the instance it is bound to)
    instance   dotted class, or ""        cls when it is the project's own; node is the call that made it
    made       what was called            node, where: the result of calling a library's function or a method
    const                                 const
    items                                 items: a literal list, tuple, set, or the values of a dict
    param      its name                   func: nobody in sight calls it
    element                               node: the loop's iterable
    binop, unop                           node, where
    attr       the attribute's name       node, where: of something unknown
    module                                module: one of the project's files
    """

    __slots__ = ("cls", "const", "func", "items", "kind", "module", "name", "node", "owner", "where")

    def __init__(
        self,
        kind: str,
        name: str = "",
        node: Any = None,
        where: Where | None = None,
        cls: Class | None = None,
        func: Scope | None = None,
        owner: "Value | None" = None,
        const: Any = None,
        items: tuple[Any, ...] = (),
        module: Module | None = None,
    ) -> None:
        self.kind, self.name, self.node, self.where, self.cls = kind, name, node, where, cls
        self.func, self.owner, self.const, self.items, self.module = func, owner, const, items, module

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name or (self.cls and self.cls.name) or (self.func and self.func.name) or ''}>"


UNKNOWN = Value("unknown")
NOTHING = (UNKNOWN,)
Alternatives = tuple[Value, ...]


class Context(NamedTuple):
    """The call through which a function is being looked at."""

    func: Scope
    call: ast.Call
    where: Where
    owner: Value | None
    outer: "Context | None"


def model_like(value: Value) -> bool:
    """Whether a value is an object, or a network out of a library's collection."""
    return value.kind == "instance" or value.name.startswith(("torchvision.models.", "timm.create_model"))


def canonical(dotted: str) -> str:
    """One spelling for what a library exports under several."""
    if dotted.startswith("torch."):
        if dotted.startswith("torch.nn.modules."):
            return "torch.nn." + dotted.rsplit(".", 1)[-1]
        if dotted.startswith("torch.optim.") and dotted.count(".") == 3 and dotted.rsplit(".", 1)[-1][:1].isupper():
            part = dotted.split(".")
            return dotted if part[2] in ("lr_scheduler", "swa_utils") else f"torch.optim.{part[3]}"
        if dotted.startswith("torch.functional."):
            return "torch." + dotted[17:]
    return dotted
