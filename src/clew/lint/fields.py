"""What a record, a settings object or a framework's output holds under a name: what its maker was given."""

import ast
from typing import Any

from clew.lint.index import Class

RECORDS = ("Output", "Outputs", "Namespace", "SimpleNamespace", "Config", "edict", "EasyDict", "DotDict", "AttrDict")
TABLES = frozenset("builtins.dict collections.OrderedDict types.MappingProxyType".split())
HOLDERS = frozenset("torch.nn.ModuleDict torch.nn.ModuleList torch.nn.ParameterDict torch.nn.ParameterList".split())


def field(values: Any, owner: Any, name: str) -> Any:
    """What `owner.name` is when it was given to the constructor; None when that is not known."""
    call = owner.node
    if owner.kind != "instance" or not isinstance(call, ast.Call) or owner.where is None:
        return None
    if owner.cls is not None:
        return of_record(values, owner, name)
    for keyword in call.keywords:
        if keyword.arg == name:
            return values.value(keyword.value, owner.where, values.inside(owner, None))
    if owner.name == "namedtuple":
        at = owner.items.index(name) if name in owner.items else -1
        if 0 <= at < len(call.args):
            return values.value(call.args[at], owner.where, values.inside(owner, None))
    return None


def of_record(values: Any, owner: Any, name: str) -> Any:
    """A field of a dataclass or named tuple of the project."""
    names: list[str] = []
    default = None
    for cls in reversed(values.lineage(owner.cls)):
        if "__init__" in cls.methods:
            return None
        names += [one for one in declared(cls) if one not in names]
        for part in cls.node.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id == name:
                default = (part.value, cls) if part.value is not None else default
    if name not in names:
        return None
    inner = values.inside(owner, None)
    for keyword in owner.node.keywords:
        if keyword.arg == name:
            return values.value(keyword.value, owner.where, inner)
    at = names.index(name)
    plain = not any(isinstance(arg, ast.Starred) for arg in owner.node.args)
    if plain and at < len(owner.node.args):
        return values.value(owner.node.args[at], owner.where, inner)
    if default is None:
        return None
    given, cls = default
    if isinstance(given, ast.Call):  # field(default=...), field(default_factory=...)
        for keyword in given.keywords:
            if keyword.arg == "default":
                return values.value(keyword.value, cls.module.where(given), None)
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Lambda):
                body = keyword.value.body
                return values.value(body, cls.module.where(body), None)
            if keyword.arg == "default_factory":
                made = ast.copy_location(ast.Call(func=keyword.value, args=[], keywords=[]), given)
                where = cls.module.where(given)
                return values.join(
                    values.result(one, made, where, None) for one in values.value(keyword.value, where, None)
                )
    return values.value(given, cls.module.where(given), None)


def declared(cls: Class) -> list[str]:
    return [
        part.target.id
        for part in cls.node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]


def table(call: ast.Call, known: dict[ast.AST, ast.Dict]) -> ast.Dict | None:
    """dict(a=1, b=2) as if it were written {"a": 1, "b": 2}."""
    if call not in known:
        if any(keyword.arg is None for keyword in call.keywords) or len(call.args) > 1:
            return None
        keys: list[Any] = []
        held: list[Any] = []
        if call.args:
            first = call.args[0]
            if isinstance(first, ast.Dict):
                keys, held = list(first.keys), list(first.values)
            elif isinstance(first, ast.List | ast.Tuple) and all(
                isinstance(item, ast.Tuple) and len(item.elts) == 2 for item in first.elts
            ):
                keys = [item.elts[0] for item in first.elts if isinstance(item, ast.Tuple)]
                held = [item.elts[1] for item in first.elts if isinstance(item, ast.Tuple)]
            else:
                return None
        keys += [ast.Constant(keyword.arg) for keyword in call.keywords]
        held += [keyword.value for keyword in call.keywords]
        made = ast.Dict(keys=keys, values=held)
        known[call] = ast.copy_location(made, call)
    return known[call]


def option(values: Any, parsed: Any, name: str) -> Any:
    """The default of an option of argparse: what `args.name` is when nobody says otherwise."""
    default = spoken(parsed, name)
    # A switch or a number is there to be changed; a word usually names a kind of thing.
    if isinstance(default, ast.Constant) and isinstance(default.value, str):
        return values.value(default, parsed.where.block.scope.module.where(default), None)
    return None


def spoken(parsed: Any, name: str) -> ast.expr | None:
    """The default that an option of argparse was given."""
    module = parsed.where.block.scope.module
    for call in module.calls.get("add_argument", []):
        words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        said = given.get("dest")
        names = (
            [said.value] if isinstance(said, ast.Constant) else [word.lstrip("-").replace("-", "_") for word in words]
        )
        if name in names:
            return given.get("default")
    return None
