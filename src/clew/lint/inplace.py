"""Functions that change what they are given, and callers that go on reading it."""

import ast
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.given import argument
from clew.lint.index import Scope
from clew.lint.script import Script, text
from clew.lint.trail import root

WRITES = frozenset(
    "mul_ add_ sub_ div_ clamp_ relu_ masked_fill_ copy_ zero_ fill_ neg_ pow_ exp_ sigmoid_ normal_ uniform_ "
    "bernoulli_ clip_ index_fill_ scatter_ masked_scatter_ sqrt_ round_ addcmul_ lerp_".split()
)
# What these give lies on the same memory.
SHARES = frozenset("view squeeze unsqueeze detach contiguous numpy permute transpose T data".split())
DRAWS = ("torch.rand", "numpy.random.", "torch.normal", "torch.bernoulli", "torch.empty_like", "torch.zeros_like")


# What was handed over matters where a loss is computed from it.
TRAINS = ("backward", "manual_backward", "training_step", "compute_loss", "value_and_grad", "fit")


def read_after(script: Script) -> Iterator[tuple[ast.Call, str, str]]:
    """noisy = corrupt(clean), and clean is read after it: the call, the function's name and the argument's."""
    if not script.mentions(*TRAINS):
        return
    for scope in script.module.scopes:
        if scope.kind not in ("function", "module"):
            continue
        for call in scope.calls:
            given = [arg for arg in (*call.args, *(word.value for word in call.keywords)) if isinstance(arg, ast.Name)]
            if not given or not of_project(call, scope):
                continue
            statement = script.statement(call)
            bound = bound_by(statement)
            if not isinstance(statement, ast.Assign | ast.Return | ast.AugAssign) or not any(
                arg.id not in bound and read_later(script, scope, arg.id, call) for arg in given
            ):
                continue
            func = helper(script, call, script.where(call))
            if func is None or func.yields or not func.returns:
                continue
            for arg in given:
                name = next((one for one in func.params if argument(call, func, one) is arg), "")
                open_ = arg.id not in bound and read_later(script, scope, arg.id, call)
                if name and open_ and gives_back(func, name) and array(script, func, name):
                    yield call, func.name, arg.id


def of_project(call: ast.Call, scope: Scope) -> bool:
    """Cheaply: may a call be one of a function of the project?"""
    func = call.func
    if isinstance(func, ast.Attribute):
        return isinstance(func.value, ast.Name) and func.value.id == scope.me != ""
    if not isinstance(func, ast.Name):
        return False
    defs = scope.defs.get(func.id) or scope.module.main.defs.get(func.id, [])
    return any(made.how in ("def", "import") for made in defs)


def bound_by(statement: ast.AST) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def read_later(script: Script, scope: Scope, name: str, call: ast.Call) -> bool:
    """Whether a name's values are read after a call, before the name is bound anew."""
    order = script.where(call).order
    around = script.where(call).block.chain()
    again = min((made.where.order for made in scope.defs.get(name, []) if made.where.order > order), default=1 << 60)
    for load in script.loads(name):
        if not isinstance(load, ast.Name) or script.scope(load) is not scope:
            continue
        above = script.parent(load)
        if isinstance(above, ast.Attribute) and above.attr in ("shape", "size", "device", "dtype", "dim", "ndim"):
            continue
        if isinstance(above, ast.Call) and text(above.func) == "len":
            continue
        where = script.where(load)
        if order < where.order <= again and not (around[0].kind == "if" and where.block not in around):
            return True
    return False


def aliases(func: Scope, name: str) -> dict[str, int]:
    """The names of a function that are one array with its parameter, with the place from which on they are."""
    found = {name: 0}
    for other, defs in func.defs.items():
        made = defs[0] if defs and defs[0].how == "=" and not defs[0].path else None
        plain = [one for one in defs if one.how == "="]
        if made is not None and len(plain) == 1 and shared(made.value) == name and other != name:
            found[other] = made.where.order
    return found


def shared(node: Any) -> str:
    """x of x, x.view(-1), x.detach()[:], where the memory is the same."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Subscript):
            if not isinstance(node.slice, ast.Slice):
                return ""
            node = node.value
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute) or node.func.attr not in SHARES:
                return ""
            node = node.func.value
        elif node.attr in ("T", "data"):
            node = node.value
        else:
            return ""
    return node.id if isinstance(node, ast.Name) else ""


def gives_back(func: Scope, name: str) -> bool:
    """Whether a function returns the array that it was given, as if it were a new one."""
    names = aliases(func, name)
    rebound = {made.name for one in names for made in func.defs[one] if made.how == "=" and one == name}
    if name in rebound:
        return False
    return any(
        isinstance(part, ast.Name) and part.id in names
        for given, _ in func.returns
        for part in (given.elts if isinstance(given, ast.Tuple) else [given, getattr(given, "func", None)])
    ) or any(text(given.func).split(".")[0] in names for given, _ in func.returns if isinstance(given, ast.Call))


def array(script: Script, func: Scope, name: str) -> bool:
    """Whether a function changes its parameter in place, and surely an array: of numbers `x += 1` changes nothing."""
    names = aliases(func, name)
    home = script.at_home(func.body_where())
    for call in func.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in WRITES and root(call.func.value) in names:
            return shared(call.func.value) in names
    for target, _, where in func.module.subscript_sets:
        if where.block.scope is func and root(target) in names and masked(target.slice):
            return True
    for node in func.module.statements.get(ast.AugAssign, []):
        if func.module.where(node).block.scope is func and root(node.target) in names:
            return isinstance(node.target, ast.Name | ast.Subscript) and drawn(home, node.value)
    return False


def masked(index: ast.AST) -> bool:
    """x[mask], x[noise < p], x[:, 2:5]: no entry of a list or a table."""
    if isinstance(index, ast.Tuple):
        return any(isinstance(part, ast.Slice) for part in index.elts)
    mask = isinstance(index, ast.Name) and any(word in index.id.lower() for word in ("mask", "keep", "drop", "missing"))
    return mask or (
        isinstance(index, ast.Compare | ast.UnaryOp | ast.BinOp)
        and not isinstance(getattr(index, "operand", None), ast.Constant)
    )


def drawn(script: Script, node: ast.AST) -> bool:
    """Whether an expression draws an array of noise, or computes one in another way that is in sight."""
    return any(
        isinstance(part, ast.Call)
        and (
            script.dotted(part.func).startswith(DRAWS)
            or (isinstance(part.func, ast.Attribute) and part.func.attr in ("normal", "standard_normal", "mean", "std"))
        )
        for part in ast.walk(node)
    )
