"""Inputs and labels are shuffled independently.

What it sees: two arrays that belong together each indexed by a permutation of its own, shuffled one after the other, or
only one of the two permuted, shuffled or sorted before both go on; two shuffled loaders iterated in parallel; rows
selected from one and as many taken from the front of the other; files listed twice without sorting and paired by
position.
Why it matters: labels no longer belong to their inputs. The loss falls to chance level and stays there.
Silent when: one permutation serves both, or the seed is set to the same value before each shuffle.
Fix: draw one permutation and index both with it.
"""

import ast
from collections.abc import Iterator

from clew.lint.divide import element
from clew.lint.index import Def, Scope
from clew.lint.pairing import INPUTS, LABELS, PATHS, cut_to_length, listed_apart, sorted_alone, zipped_loaders
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import trail, verb
from clew.lint.value import Value

DRAWS = ("numpy.random.permutation", "torch.randperm")
SHUFFLES = ("numpy.random.shuffle", "random.shuffle")


@rule(
    "CLW509",
    "labels-not-permuted",
    "data.labels_misaligned",
    "likely",
    "permutation randperm shuffle sample sort sorted sort_values zip len glob listdir",
)
def check(script: Script) -> Iterator[Hit]:
    for node, one, other in zipped_loaders(script):
        yield Hit(node, f"{one} and {other} come from two loaders that shuffle independently.")
    for node, one, other in cut_to_length(script):
        yield Hit(node, f"rows are selected from {one}, but {other} is only truncated to the same length.")
    for node, one, other in listed_apart(script) if not script.tests else ():
        yield Hit(node, f"{one} and {other} are listed separately, in file-system order: sort both.", "look")
    if script.mentions(*MOVING):
        yield from put_apart(script)


MOVING = ("permutation", "randperm", "shuffle", "sample", "sort", "sorted", "sort_values")


def put_apart(script: Script) -> Iterator[Hit]:
    yield from drawn_twice(script)
    yield from shuffled_twice(script)
    yield from only_inputs(script)
    yield from given_back(script)
    yield from side_by_side(script)
    yield from out_of_order(script)
    yield from shuffled_alone(script)
    yield from picked_apart(script)
    yield from sampled_alone(script)
    for node, one, other in sorted_alone(script):
        yield Hit(node, f"{one} is sorted, but the matching {other} is not.")
    yield from attributes_only(script)


def picked_apart(script: Script) -> Iterator[Hit]:
    """x[order[i:j]] beside y[i:j], x[perm] beside y[other_perm]."""
    found: dict[Scope, dict[bool, list[tuple[ast.Subscript, frozenset[int]]]]] = {}
    for node in script.module.nodes.get(ast.Subscript, []):
        name = text(node.value).rsplit(".", 1)[-1]
        kind = True if INPUTS.match(name) else False if LABELS.match(name) else None
        if kind is not None and not isinstance(node.ctx, ast.Store):
            held = found.setdefault(script.scope(node), {True: [], False: []})
            held[kind].append((node, drawn(script, node.slice)))
    for taken in found.values():
        for x, first in taken[True]:
            for y, second in taken[False]:
                near = script.statement(x) is script.statement(y)
                sliced = near and not second and isinstance(y.slice, ast.Slice) and y.slice.lower is not None
                if (
                    first
                    and (sliced or (second and first.isdisjoint(second)))
                    and not any(first & other for _, other in taken[False])
                    and not any(second & other for _, other in taken[True])  # labels of other inputs
                ):
                    yield Hit(y, f"{text(y.value)} is taken in a different order from the matching {text(x.value)}.")
                    break


def drawn(script: Script, node: ast.expr) -> frozenset[int]:
    """The draws of an order that an index comes from."""
    found = set()
    if isinstance(node, ast.Name | ast.Subscript | ast.Call):
        for step in trail(script, node, script.where(node), steps=25):
            if verb(step.node) in ("permutation", "randperm"):
                found.add(id(step.node))
    return frozenset(found)


def sampled_alone(script: Script) -> Iterator[Hit]:
    """X = df.drop(columns="y").sample(frac=1), and y = df["y"] in its own order."""
    for call in script.calls("sample"):
        share = script.arg(call, -1, "frac")
        statement = script.statement(call)
        if share is None or script.constant(share) not in (1, 1.0) or not isinstance(statement, ast.Assign):
            continue
        scope = script.scope(call)
        base, name = frame_of(call), text(statement.targets[0])
        if base and base == name and (stale := taken_before(script, scope, name, call)):
            yield Hit(call, f"{name} is shuffled after {stale} was taken from it: {stale} keeps the old order.")
        if not base or not INPUTS.match(name):
            continue
        if base == name:
            # X = df.drop(...); X = X.sample(frac=1): the frame that X and its labels were taken from
            before = [made for made in scope.defs.get(name, []) if made.where.order < script.where(call).order]
            base = frame_of(before[-1].value) if before and isinstance(before[-1].value, ast.expr) else ""
            if not base or base == name:
                continue
        for other, defs in scope.defs.items():
            same = [
                made for made in defs if made.how == "=" and isinstance(made.value, ast.AST) and LABELS.match(other)
            ]
            for made in same:
                if (
                    base in {part.id for part in ast.walk(made.value) if isinstance(part, ast.Name)}
                    and not any(
                        isinstance(part, ast.Call) and verb(part) in ("sample", "loc") for part in ast.walk(made.value)
                    )
                    and f"{name}.index" not in ast.unparse(made.value)
                ):
                    yield Hit(call, f"{name} is shuffled, but the matching {other} keeps the order of {base}.")


def taken_before(script: Script, scope: Scope, frame: str, call: ast.Call) -> str:
    """Labels that were taken out of a frame before it was shuffled, and are handed on with inputs taken out after."""
    order = script.where(call).order
    for name, defs in scope.defs.items():
        if not LABELS.match(name) or any(made.where.order > order for made in defs):
            continue
        held = defs[-1].value if defs[-1].how == "=" and not defs[-1].path else None
        arrays = isinstance(held, ast.Attribute) and held.attr == "values"
        arrays = arrays or (isinstance(held, ast.Call) and verb(held) in ("to_numpy", "tolist", "to_list"))
        if not arrays or not isinstance(held, ast.expr) or frame_of(held) != frame:
            continue
        later = [
            one
            for one, made in scope.defs.items()
            if any(
                part.how == "=" and part.where.order > order and frame_of(part.value) == frame
                for part in made
                if isinstance(part.value, ast.expr)
            )
        ]
        if any(beside(script, name, one, order) for one in later):
            return name
    return ""


def frame_of(call: ast.expr) -> str:
    at: ast.AST = call
    while isinstance(at, ast.Call | ast.Attribute | ast.Subscript):
        at = at.func if isinstance(at, ast.Call) else at.value
    return at.id if isinstance(at, ast.Name) else ""


def shuffled_alone(script: Script) -> Iterator[Hit]:
    """np.random.shuffle(X), rng.shuffle(paths), X = rng.permutation(X), and its partner y left as it was."""
    for scope in script.module.scopes:
        for call in scope.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else text(call.func)
            if name not in MOVERS or len(call.args) != 1 or not moves(script, call):
                continue
            what = text(call.args[0])
            statement = script.statement(call)
            new = name == "permutation" or script.dotted(call.func) == "sklearn.utils.shuffle"
            if new and not renamed(statement, what):
                continue
            if not new and not isinstance(statement, ast.Expr):
                continue
            partner = partner_of(script, scope, what, call)
            if partner and not also_moved(scope, partner):
                yield Hit(call, f"{what} is reordered, but the matching {partner} is not.")


MOVERS = ("shuffle", "permutation")


def moves(script: Script, call: ast.Call) -> bool:
    """Whether a call surely shuffles rows by chance: of numpy, random, or a generator of either."""
    dotted = script.dotted(call.func)
    if dotted:
        return dotted in (
            "numpy.random.shuffle",
            "random.shuffle",
            "numpy.random.permutation",
            "sklearn.utils.shuffle",
        )
    base = call.func.value if isinstance(call.func, ast.Attribute) else None
    values = script.value(base) if base is not None else ()
    return all(value.name.startswith(("numpy.random.", "random.Random")) for value in values) and bool(values)


def renamed(statement: ast.AST, what: str) -> bool:
    """X = permutation(X)"""
    return (
        isinstance(statement, ast.Assign)
        and text(statement.targets[0]) == what
        and isinstance(statement.value, ast.Call)
    )


def partner_of(script: Script, scope: Scope, what: str, call: ast.Call) -> str:
    """What was loaded together with an array, or is used beside it: y of `X, y = load()`."""
    last = what.rsplit(".", 1)[-1]
    order = script.where(call).order
    for made in [*scope.defs.get(what, []), *attr_defs(script, scope, what)]:
        value = made.value
        if made.how not in ("=", "param") or (made.where.order > order and "." not in what):
            continue
        for other, held in scope.defs.items():
            paired = other != what and any(one.value is value and one.path and made.path for one in held)
            if paired and LABELS.match(other) and used_after(script, scope, other, order):
                return other
    input_like = INPUTS.match(last) or PATHS.match(last)
    for other in (*scope.defs, *attributes(script, scope)) if input_like else ():
        if LABELS.match(other.rsplit(".", 1)[-1]) and other != what and beside(script, other, what, 0):
            return other
    return ""


def attr_defs(script: Script, scope: Scope, what: str) -> list[Def]:
    cls = script.class_of(scope)
    return cls.attrs.get(what.split(".", 1)[1], []) if cls is not None and what.startswith(f"{scope.me}.") else []


def attributes(script: Script, scope: Scope) -> list[str]:
    cls = script.class_of(scope)
    return [f"{scope.me}.{name}" for name in cls.attrs] if cls is not None and scope.me else []


def used_after(script: Script, scope: Scope, name: str, order: int) -> bool:
    return any(script.where(node).order > order for node in script.loads(name) if script.scope(node) is scope)


def also_moved(scope: Scope, name: str) -> bool:
    """Whether the partner is put into another order too, in any way that is in sight."""
    for call in scope.calls:
        last = call.func.attr if isinstance(call.func, ast.Attribute) else text(call.func)
        if last in ("shuffle", "permutation", "set_state", "seed") and any(text(arg) == name for arg in call.args):
            return True
    again = [made for made in scope.defs.get(name, []) if made.how == "="]
    return len(again) > 1


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
                        f"{name} is permuted with a different permutation from its inputs.",
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


def side_by_side(script: Script) -> Iterator[Hit]:
    """xs, ys = self.x[order], self.y"""
    for node in script.module.statements.get(ast.Assign, []):
        value, target = node.value, node.targets[0]
        if not isinstance(value, ast.Tuple) or not isinstance(target, ast.Tuple) or len(value.elts) != 2:
            continue
        moved_, still = value.elts
        if not isinstance(moved_, ast.Subscript) or not isinstance(still, ast.Name | ast.Attribute):
            continue
        if not order_of(script, moved_.slice) or not LABELS.match(text(still).rsplit(".", 1)[-1]):
            continue
        if INPUTS.match(text(moved_.value).rsplit(".", 1)[-1]) and text(moved_.value) != text(still):
            yield Hit(node, f"{text(moved_.value)} is permuted, but the matching {text(still)} is not.")


def given_back(script: Script) -> Iterator[Hit]:
    """return x[order], y"""
    for scope in script.module.scopes:
        for node, _ in scope.returns:
            if not isinstance(node, ast.Tuple):
                continue
            moved = [part for part in node.elts if isinstance(part, ast.Subscript) and order_of(script, part.slice)]
            still = [text(part) for part in node.elts if isinstance(part, ast.Name) and LABELS.match(part.id)]
            if len(moved) == 1 and INPUTS.match(text(moved[0].value)) and still and still[0] in scope.params:
                yield Hit(node, f"{text(moved[0].value)} is permuted, but the matching {still[0]} is not.")


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
                    f"{name} and {names[inputs[0]]} are shuffled with two different permutations.",
                )


def reseeded(script: Script, first: ast.Call, second: ast.Call) -> bool:
    low, high = sorted((first.lineno, second.lineno))
    return any(low <= call.lineno <= high for call in script.calls("seed", "set_state", "setstate"))


def only_inputs(script: Script) -> Iterator[Hit]:
    """x = x[order], with an order that nothing else uses, and labels that go on beside x."""
    for scope in script.module.scopes:
        for name, defs in scope.defs.items():
            for made in defs:
                value = made.value
                if made.how != "=" or made.path or not isinstance(value, ast.Subscript):
                    continue
                if not INPUTS.match(text(value.value).rsplit(".", 1)[-1]):
                    continue
                order = value.slice
                if isinstance(order, ast.Name) and order_of(script, order) and uses(script, order.id) == 1:
                    labels = next((other for other in scope.defs if beside(script, other, name, made.where.order)), "")
                    if labels:
                        yield Hit(made.node, f"{name} is permuted, but the matching {labels} is not.")


def attributes_only(script: Script) -> Iterator[Hit]:
    """self.x = self.x[order], where nothing else is put into that order."""
    for scope in script.module.scopes:
        for target, value, _ in scope.attr_sets:
            if (
                not isinstance(value, ast.Subscript)
                or text(value.value) != text(target)
                or not INPUTS.match(target.attr)
            ):
                continue
            order = value.slice
            if not isinstance(order, ast.Name) or not order_of(script, order) or uses(script, order.id) != 1:
                continue
            for other in attributes(script, scope):
                if LABELS.match(other.split(".")[1]) and beside(script, other, text(target), 0):
                    yield Hit(target, f"{text(target)} is permuted, but the matching {other} is not.")
                    break


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
                    yield Hit(made.node, f"{name} is {how}, but the matching {inputs} is not.")


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
    if not LABELS.match(labels.rsplit(".", 1)[-1]):
        return False
    for node in script.module.up:
        if isinstance(node, ast.Tuple | ast.Call) and script.where(node).order > order:
            parts = node.elts if isinstance(node, ast.Tuple) else node.args
            names = {bare(part) for part in parts} - {""}
            if len(names) < 2:
                continue
            names |= {one for name in names for one in cut_from(script, name, node)}
            if {labels, inputs} <= names:
                return True
    return False


def cut_from(script: Script, name: str, node: ast.AST) -> Iterator[str]:
    """x of xb = torch.from_numpy(x[i : i + n]), and what x itself is only another name of."""
    scope = script.scope(node)
    for _ in range(3):
        defs = [made for made in scope.defs.get(name, []) if made.how == "="]
        held = defs[0] if len(defs) == 1 else None
        value = element(held.value, held.path) if held is not None else None
        if not isinstance(value, ast.Subscript | ast.Call | ast.Name):
            return
        name = bare(value)
        if not name:
            return
        yield name
