"""A value that autograd still needs is changed in place.

What it sees: `x += ...`, `x.add_(...)` or an assignment into a slice of x, after x was the output of exp, sigmoid,
tanh, softmax, sqrt or relu in a forward pass; `x -= ...`, here or in a function of the project, on an example or a
batch that was taken out of a stored array by an index or a slice;
a tensor kept under a second name, `skip = x`, that is changed in place before that name is read; one that a function
of the project changes and gives back, while its caller goes on reading what it handed over; a write through .data
to what a forward pass has just computed.
Why it matters: these operations compute their gradient from their own output. Autograd notices most of these cases
when backward runs; those through .data it does not, and the gradients are wrong.
Silent when: the value is a copy, or gradients are off.
Fix: write x = x + ..., or clone first.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.divide import element
from clew.lint.flow import apart, reaching
from clew.lint.given import argument
from clew.lint.index import Scope
from clew.lint.inplace import WRITES, drawn, read_after, shared
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import root, verb

SAVES = frozenset("exp sigmoid tanh softmax log_softmax sqrt rsqrt reciprocal".split())


@rule(
    "CLW407",
    "inplace-on-saved-value",
    "train.inplace_corruption",
    "look",
    "",
)
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.AugAssign, []):
        if isinstance(node.target, ast.Name) and saved(script, node.target, node):
            left, op = node.target.id, OPS.get(type(node.op))
            fix = (
                Fix(
                    "compute a new tensor",
                    True,
                    (script.replace(node, f"{left} = {left} {op} ({script.source(node.value)})"),),
                )
                if op
                else None
            )
            yield Hit(node, f"changes {left} in place, but its gradient is computed from this very output.", fix=fix)

        elif isinstance(node.target, ast.Name) and (kept := stored(script, node.target, node)):
            yield Hit(
                node,
                f"{node.target.id} is a view of {kept}: the stored example changes each time it is read.",
                "likely",
            )

    for call in script.calls(*INPLACE):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(base, ast.Name) and (kept := stored(script, base, call)):
            yield Hit(
                call, f"{base.id} is a view of {kept}: the stored example changes each time it is read.", "likely"
            )
        elif isinstance(base, ast.Subscript) and (kept := view_of(script, base, script.scope(call))):
            yield Hit(call, f"changes a view of {kept}: the stored example changes each time it is read.", "likely")
    for target, _, _ in script.module.subscript_sets:
        base = target.value
        if isinstance(base, ast.Name) and (kept := stored(script, base, target)):
            yield Hit(
                script.statement(target),
                f"{base.id} is a view of {kept}: the stored example changes each time it is read.",
                "likely",
            )
    yield from in_helpers(script)
    for call, func, name in read_after(script):
        yield Hit(call, f"{func} changes {name} in place and returns it: {name}, used below, is changed too.", "likely")
    yield from changed_behind(script)
    yield from behind_autograd(script)
    yield from written_into(script)


def behind_autograd(script: Script) -> Iterator[Hit]:
    """attn.data[mask] = 0, h.data.clamp_(0, 1), x.data *= keep: a change that autograd is not told of, to what was just
    computed in a forward pass."""
    if not script.mentions("data"):
        return
    found: list[tuple[Any, Any]] = [(target.value, target) for target, _, _ in script.module.subscript_sets]
    found += [
        (call.func.value, call)
        for name, calls in script.module.calls.items()
        if name.endswith("_") and not name.endswith("__")
        for call in calls
        if isinstance(call.func, ast.Attribute)
    ]
    found += [(node.target, node) for node in script.module.statements.get(ast.AugAssign, [])]
    found += [(target, target) for scope in script.module.scopes for target, _, _ in scope.attr_sets]
    for base, node in found:
        while isinstance(base, ast.Subscript):
            base = base.value
        held = base.value if isinstance(base, ast.Attribute) and base.attr == "data" else None
        if isinstance(held, ast.Name) and computed_here(script, held, node):
            yield Hit(
                script.statement(node),
                f"changes {held.id} through .data: autograd misses it and uses the old values.",
                "likely",
            )


def computed_here(script: Script, name: ast.Name, node: ast.AST) -> bool:
    """Whether a name was given something computed in this forward pass, of which a gradient is asked."""
    where = script.where(node)
    scope = where.block.scope
    cls = script.class_of(scope)
    if scope.kind != "function" or cls is None or name.id not in scope.defs or scope.name.startswith(("_init", "init")):
        return False
    if scope.name == "__init__" or script.grad_off(where) is not None or not script.is_module(cls):
        return False
    made = reaching(scope.defs[name.id], where)
    plain = [one for one in made if one.how == "=" and not one.path and isinstance(one.value, ast.Call | ast.BinOp)]
    if len(plain) != len(made) or not made:
        return False
    for one in plain:
        if isinstance(one.value, ast.BinOp):
            continue
        values = script.value(one.value)
        fresh = {"zeros", "ones", "empty", "full", "zeros_like", "ones_like", "empty_like", "rand", "randn", "tensor"}
        if not values or any(value.kind not in ("made", "binop") or value.name in fresh for value in values):
            return False
        if "detach" in ast.unparse(one.value) or "Parameter" in ast.unparse(one.value):
            return False
    return True


def written_into(script: Script) -> Iterator[Hit]:
    """attn[mask] = 0, attn.masked_fill_(mask, 0) right after softmax or another that keeps its output."""
    found: list[tuple[Any, Any]] = [(target.value, target) for target, _, _ in script.module.subscript_sets]
    found += [
        (call.func.value, call)
        for call in script.calls(*INPLACE)
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name)
    ]
    for base, node in found:
        if isinstance(base, ast.Name) and kept_output(script, base, node):
            told = f"writes into {base.id}, but its gradient is computed from this very output."
            yield Hit(script.statement(node), told)


def changed_behind(script: Script) -> Iterator[Hit]:
    """skip = x; x.mul_(gamma); return x + skip: both names are one tensor."""
    added: dict[Scope, list[Any]] = {}
    for node in script.module.statements.get(ast.AugAssign, []):
        if isinstance(node.target, ast.Name):
            added.setdefault(script.scope(node), []).append(node)
    for scope in script.module.scopes:
        writes = list(written(script, scope, added.get(scope, [])))
        if not writes:
            continue
        for name, defs in scope.defs.items():
            for made in defs:
                if made.how != "=" or made.path or (other := shared(made.value)) in ("", name):
                    continue
                for node, target, order in writes:
                    rest = {name: other, other: name}.get(target, "")
                    if not rest or apart(made.where.block, script.where(node).block.chain()):
                        continue
                    if made.where.order < order and held(scope, (name, other), made.where.order, order):
                        later = reads(script, scope, rest)
                        if any(order < at and held(scope, (rest,), order, at) for at in later if at):
                            # What is added only under a condition is often never added.
                            sure = "look" if script.where(node).block.kind in ("if", "else") else "likely"
                            yield Hit(node, f"{rest} is the same tensor as {target}, and changes with it.", sure)


def reads(script: Script, scope: Scope, name: str) -> list[int]:
    """Where the values behind a name are read, and not only its shape."""
    return [
        script.where(load).order
        for load in script.loads(name)
        if text(load) == name and script.scope(load) is scope and not aside(script.parent(load))
    ]


def aside(above: ast.AST | None) -> bool:
    shape = isinstance(above, ast.Attribute) and above.attr in ("shape", "size", "device", "dtype", "dim", "ndim")
    return shape or (isinstance(above, ast.Compare) and isinstance(above.ops[0], ast.Is | ast.IsNot))


def written(script: Script, scope: Scope, added: list[Any]) -> Iterator[tuple[ast.AST, str, int]]:
    """Names of tensors that are changed in place, and when."""
    for call in scope.calls:
        at: ast.AST = call.func
        if not isinstance(at, ast.Attribute) or at.attr not in WRITES:
            continue
        while isinstance(at, ast.Attribute | ast.Call):
            at = at.value if isinstance(at, ast.Attribute) else at.func
        if isinstance(at, ast.Name) and at.id in scope.defs and script.grad_off(script.where(call)) is None:
            yield call, at.id, script.where(call).order
    forward = scope.kind == "function" and scope.name == "forward" and scope.cls is not None
    for node in added:
        if forward or drawn(script, node.value):
            yield node, node.target.id, script.where(node).order


def held(scope: Scope, names: tuple[str, ...], after: int, before: int) -> bool:
    """Whether none of the names is bound anew between two places. `x += y` binds nothing new of a tensor."""
    return not any(
        after < made.where.order < before and made.how != "aug" for name in names for made in scope.defs.get(name, [])
    )


INPLACE = frozenset("mul_ add_ sub_ div_ clamp_ relu_ masked_fill_ copy_ zero_ fill_ neg_ pow_ exp_ sigmoid_".split())
OPS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def saved(script: Script, target: ast.Name, node: ast.AugAssign) -> bool:
    return kept_output(script, target, node)


def kept_output(script: Script, target: ast.Name, node: ast.AST) -> bool:
    """Whether a name of a forward pass is what one of these operations gave, as it came."""
    where = script.where(node)
    scope = where.block.scope
    if scope.kind != "function" or script.grad_off(where) is not None or target.id not in scope.defs:
        return False
    made = reaching(scope.defs[target.id], where)
    made = [one for one in made if one.node is not target]
    if len(made) != 1 or made[0].how != "=" or made[0].path or not isinstance(made[0].value, ast.Call):
        return False
    cls = script.class_of(scope)
    if cls is None or not script.is_module(cls) or scope.name != "forward":
        return False
    value = script.value(made[0].value)
    direct = all(one.kind == "made" and one.name in SAVES and one.node is made[0].value for one in value)
    return direct and text(target) != ""


def stored(script: Script, target: ast.Name, node: ast.AST) -> str:
    """The array of a data set that a name is a view of: x = self.data[index], xb = self.x[s : s + n]."""
    where = script.where(node)
    scope = where.block.scope
    if scope.kind != "function" or scope.cls is None or target.id not in scope.defs:
        return ""
    # Only the first change: those after it are of the same view.
    made = [one for one in reaching(scope.defs[target.id], where) if one.node is not target]
    value = element(made[0].value, made[0].path) if len(made) == 1 and made[0].how == "=" else None
    return view_of(script, value, scope)


def view_of(script: Script, value: Any, scope: Scope) -> str:
    """self.x of self.x[i] in a __getitem__, or of self.x[a:b] anywhere: a view, and no copy."""
    if not isinstance(value, ast.Subscript):
        return ""
    item = scope.name == "__getitem__" and len(scope.params) == 2 and text(value.slice) == scope.params[1]
    base = text(value.value)
    if not base.startswith(f"{scope.me}.") or base.count(".") != 1:
        return ""
    if scope.name != "__getitem__" and not scope.yields and not GIVES.search(scope.name):
        return ""
    arrays = script.value(value.value)
    if arrays and all(array_of(one.const) for one in arrays):
        return base if item or isinstance(value.slice, ast.Slice) else ""
    batch = isinstance(value.slice, ast.Slice) and scope.name != "__init__"
    return base if (batch or item) and numeric(script, value.value) else ""


GIVES = re.compile(r"batch|sample|__next__|__iter__|fetch|get_(item|example)")


def numeric(script: Script, node: Any) -> bool:
    """Whether self.x is used as an array is: its shape is asked for, or arithmetic is done with it."""
    base = text(node)
    for load in script.loads(base):
        if text(load) != base:
            continue
        above = script.parent(load)
        if isinstance(above, ast.Attribute) and above.attr in ("size", "shape", "dtype", "float", "device", "ndim"):
            return True
        if isinstance(above, ast.Subscript) and isinstance(above.slice, ast.Tuple):
            return True
    cls = script.class_of(script.scope(node))
    held = cls.attrs.get(base.partition(".")[2], []) if cls is not None else []
    if held and all(verb(one.value) in ("astype", "to_numpy", "asarray", "stack", "vstack") for one in held):
        return True
    return any(
        (one.const and str(one.const).startswith(("torch.", "numpy.")))
        or (one.kind == "made" and one.name in ("float", "numpy"))
        for one in script.value(node)
    )


def in_helpers(script: Script) -> Iterator[Hit]:
    """self.augment(self.x[i]), where augment changes what it is given."""
    for cls in script.module.classes:
        method = cls.methods.get("__getitem__")
        for call in method.calls if method is not None else ():
            assert method is not None
            func = helper(script, call, script.where(call))
            for name in func.params if func is not None else ():
                assert func is not None
                given = argument(call, func, name)
                where = script.where(call)
                if isinstance(given, ast.Name) and given.id in method.defs:
                    made = reaching(method.defs[given.id], where)
                    given = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
                kept = view_of(script, given, method)
                change = changes(func, name) if kept else None
                if change is not None:
                    says = f"{func.name} changes its argument in place, which is a view of {kept}."
                    yield Hit(call, says, "likely")


def changes(func: Scope, name: str) -> ast.AST | None:
    """Where a function changes its parameter in place before it binds the name anew."""
    first = min((made.where.order for made in func.defs[name] if made.how == "="), default=1 << 60)
    for node in func.module.statements.get(ast.AugAssign, []):
        where = func.module.where(node)
        if where.block.scope is func and root(node.target) == name and where.order < first:
            return node  # type: ignore[no-any-return]
    for target, _, where in func.module.subscript_sets:
        if where.block.scope is func and root(target) == name and where.order < first:
            return target
    for call in func.calls:
        at = call.func
        if isinstance(at, ast.Attribute) and at.attr in INPLACE and root(at.value) == name:
            return call if func.module.where(call).order < first else None
    return None


def array_of(made: object) -> bool:
    return isinstance(made, str) and made.startswith(("torch.", "numpy.")) and made not in ("torch.load", "numpy.load")
