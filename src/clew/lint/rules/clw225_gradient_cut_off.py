"""A network is in the optimiser, and no gradient reaches it.

What it sees: every way from the loss back to a network that the optimiser holds leads through detach, no_grad, item,
numpy, argmax or a new tensor, also in helpers and losses of the project; in a module's forward, a layer built there
whose output is used only behind such a cut; a term of the loss that item, argmax or a comparison makes a constant;
requires_grad switched on for a loss that was computed.
Why it matters: the network keeps its random start. The rest learns around it, or nothing learns at all, and nothing
raises.
Silent when: one way is free, anything on the way cannot be followed, or the network is frozen, loaded, or named as a
target, a teacher or an average of another.
Fix: remove that cut; detach only what should stay fixed.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.flow import reaching
from clew.lint.gradient import Cut, ends
from clew.lint.index import Class, Scope, Where
from clew.lint.model import Related
from clew.lint.reach import Reach, element, network, reach, related
from clew.lint.registry import rule
from clew.lint.rules.clw224_model_not_in_optimizer import weighs
from clew.lint.script import Hit, Script, text
from clew.lint.terms import terms
from clew.lint.training import Event, training

WHAT = {
    "item": "item",
    "numpy": "numpy",
    "detach": "detach",
    "data": ".data",
    "argmax": "argmax",
    "round": "rounding",
    "integer": "a cast to integers",
    "compare": "a comparison",
    "wrapped": "a new tensor",
    "no_grad": "no_grad",
}
FIXED = re.compile(
    r"target|teacher|ema|momentum|frozen|freeze|fixed|ref(erence)?_|old|pretrained|random|prior|vgg|lpips"
)
FREEZES = frozenset("requires_grad requires_grad_ freeze".split())
# Weights that come from elsewhere may be kept as they are on purpose.
LOADS = frozenset("pretrained from_pretrained load_state_dict load weights create_model".split())


@rule("CLW225", "gradient-cut-off", "loss.disconnected", "likely", "backward forward manual_backward training_step")
def check(script: Script) -> Iterator[Hit]:
    told = {end.cut.node for end in ends(script) if end.cut is not None}
    whole = {end.node for end in ends(script) if end.cut is not None}
    for hit in (*in_loops(script), *in_forwards(script), *forced(script, whole), *sampled(script)):
        if hit.node not in told:
            told.add(hit.node)
            yield hit


# --- losses and optimisers


def in_loops(script: Script) -> Iterator[Hit]:
    """Networks of the optimisers that are stepped where a loss is computed."""
    by_scope: dict[Scope, list[Any]] = {}
    for end in ends(script):
        if end.cut is None:
            by_scope.setdefault(end.where.block.scope, []).append(end)
    for scope, held in by_scope.items():
        names = held_by_optimizers(script, scope)
        live: set[str] = set()
        dead: dict[str, tuple[Cut, Any]] = {}
        unknown = False
        for end in held:
            found = reach(script, end.node, end.where, frozenset(names))
            unknown = unknown or found.open
            live |= found.live
            fixed = any(FIXED.search(one.lower()) for one in found.dead)
            if found.dead and not fixed and not found.live and not found.open and not found.loose:
                name, cut = sorted(found.dead.items())[0]
                yield told(script, cut, end.node, name, whole=True)
            for name, cut in found.dead.items():
                dead.setdefault(name, (cut, end.node))
        if not names and not unknown:
            yield from by_name(script, scope, live, dead)
        if unknown or not live:
            continue
        yield from another(script, scope, live)
        yield from own_step(script, scope, held)
        for end in held:
            yield from numbers(script, end, names)
        for name, (cut, node) in sorted(dead.items()):
            mine = any(related(name, other) for other in names)
            if mine and not any(related(name, other) for other in live) and not FIXED.search(name.lower()):
                yield told(script, cut, node, name)


def by_name(script: Script, scope: Scope, live: set[str], dead: dict[str, tuple[Cut, Any]]) -> Iterator[Hit]:
    """g_loss = f(D(fake.detach())); g_opt.step(): the optimiser is handed in, and its name says whose it is."""
    steps = [
        event.who for event in training(script).events(scope) if event.kind in ("step", "scaler_step", "maybe_step")
    ]
    if len(set(steps)) < 2:
        return
    for name, (cut, node) in sorted(dead.items()):
        low = name.rsplit(".", 1)[-1].lower()
        if FIXED.search(low) or cut.reason not in ("detach", "no_grad") or any(related(name, one) for one in live):
            continue
        short = (low, low[:3], low[:1]) if len(low) > 3 else (low,)
        held = [who for who in steps if set(re.split(r"[._]", who.lower())) & set(short)]
        if held:
            yield told(script, cut, node, name)


def numbers(script: Script, end: Any, names: set[str]) -> Iterator[Hit]:
    """Terms of a sum that come to plain numbers: what they are computed from gets no gradient by them."""
    parts = list(terms(script, end.node, end.where, None, 10))
    for node, where, env in parts if len(parts) > 1 else ():
        found = Reach(script, frozenset(names))
        found.visit(node, where, env, None)
        if found.live or found.open or found.loose or not found.dead:
            continue
        name, cut = sorted(found.dead.items())[0]
        if cut.reason not in NUMBERS or FIXED.search(name.lower()):
            continue
        here = cut.node in script.module.up
        says = f"{WHAT[cut.reason]} makes this loss term a constant: {name} gets no gradient from it."
        home = where.block.scope.module
        at = (Related(home.path, cut.node.lineno, f"{WHAT[cut.reason]} is here"),) if cut.node in home.up else ()
        yield Hit(cut.node if here else end.node, says, related=() if here else at)


NUMBERS = ("item", "numpy", "argmax", "round", "integer", "compare", "wrapped")


def another(script: Script, scope: Scope, live: set[str]) -> Iterator[Hit]:
    """An optimiser that holds none of the networks that the loss reaches."""
    events = [event for event in training(script).events(scope) if event.kind in ("step", "scaler_step")]
    if len(events) != 1 or not live or events[0].through:
        return
    names = networks_of(script, events[0], scope)
    yield from beside(script, events[0], scope, names, live)
    held = {origin(script, name, scope) for name in names}
    reached = {origin(script, name, scope) for name in live}
    if not names or None in held or None in reached or held & reached:
        return
    value = events[0].value
    if value is not None and value.node in script.module.up:
        told = f"holds {', '.join(sorted(names))}, but the loss is computed from {', '.join(sorted(live))} alone."
        yield Hit(value.node, told, "certain", cause="train.params_not_in_optimizer")


def own_step(script: Script, scope: Scope, held: list[Any]) -> Iterator[Hit]:
    """With several optimisers in one function: networks that a loss reaches, while neither the optimiser stepped next
    nor any other holds them."""
    events = training(script).events(scope)
    steps = [event for event in events if event.kind in ("step", "scaler_step")]
    if len(steps) < 2 or any(event.through for event in steps):
        return
    whole = [networks_of(script, event, scope) for event in steps]
    if not all(whole):
        return
    names = set().union(*whole)
    for end in held:
        after = [event for event in steps if event.order[0] > end.where.order]
        if not after:
            continue
        live = reach(script, end.node, end.where, frozenset(names)).live
        mine = networks_of(script, after[0], scope)
        yield from beside(
            script,
            after[0],
            scope,
            mine,
            {name for name in live if not any(related(name, other) for other in names)} | (live & mine),
        )


def beside(script: Script, event: Event, scope: Scope, names: set[str], live: set[str]) -> Iterator[Hit]:
    """Networks that the loss reaches and that were made here, while the only optimiser holds others, and nothing in the
    file asks for their parameters."""
    if not names or not any(related(name, other) for name in names for other in live):
        return
    words = set(script.module.names)
    if words & {"requires_grad", "requires_grad_", "from_pretrained", "freeze", "add_param_group"}:
        return
    for name in sorted(live):
        made = origin(script, name, scope)
        if any(related(name, other) for other in names) or not isinstance(made, ast.Call) or FIXED.search(name.lower()):
            continue
        uses = [(script.parent(node), script.statement(node)) for node in script.loads(name) if text(node) == name]
        plain = all(
            (isinstance(use, ast.Attribute) and use.attr in PLAIN)
            or (isinstance(use, ast.Call) and text(use.func) == name)
            or follows(statement)
            for use, statement in uses
        )
        if plain and event.value is not None and event.value.node in script.module.up:
            yield Hit(
                event.value.node,
                f"holds {', '.join(sorted(names))} only; {name} takes part in the loss and is never trained.",
                cause="train.params_not_in_optimizer",
            )


PLAIN = ("train", "eval", "to", "cuda", "state_dict")


def follows(statement: ast.AST) -> bool:
    """Whether a network is only copied here, or another made to follow it."""
    if isinstance(statement, ast.Assign):
        said = ast.unparse(statement.value)
        return "deepcopy(" in said and "optim" not in said and "parameters" not in said
    if isinstance(statement, ast.For):
        said = ast.unparse(statement)
        moves = any(word in said for word in (".lerp_(", ".copy_(", ".mul_(", ".load_state_dict(", ".data"))
        return moves and "optim" not in said and "append(" not in said
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        last = text(statement.value.func).rsplit(".", 1)[-1].lower()
        return any(word in last for word in ("soft", "hard", "sync", "polyak", "copy", "update_target", "load_state"))
    return False


def origin(script: Script, name: str, scope: Scope) -> object:
    """What a network is, beyond its name: the parameter it came in by, or the call that made it; None for neither."""
    first, _, rest = name.partition(".")
    if rest and (first != scope.me or scope.cls is None or "." in rest):
        return None
    defs = scope.cls.attrs.get(rest, []) if rest and scope.cls is not None else scope.defs.get(name, [])
    if len(defs) != 1:
        return None
    if defs[0].how == "param":
        return name
    node = defs[0].value
    if isinstance(node, ast.Call) and len(defs[0].path) == 1:
        return handed_out(script, node, defs[0].path[0], defs[0].where)
    for step in defs[0].path:
        node = node.elts[step] if isinstance(node, ast.Tuple) and 0 <= step < len(node.elts) else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
        node = node.func.value
    at = defs[0].where.block.scope
    if isinstance(node, ast.Name) and node.id in at.params and len(at.defs[node.id]) == 1:
        return f"{at.name}.{node.id}"
    values = script.values.value(node, defs[0].where, None) if isinstance(node, ast.Call | ast.Subscript) else ()
    plain = len(values) == 1 and (values[0].kind in ("instance", "made") and network(script, values[0]))
    if isinstance(node, ast.Subscript):
        return values[0].node if plain else None
    made_there = plain and values[0].where is not None and values[0].where.block.scope.kind == "function"
    return node if plain and (values[0].node is node or made_there) else None


def handed_out(script: Script, call: ast.Call, step: int, where: Where) -> object:
    """teacher, student = build(...): what a function of the project made and gives back at that place."""
    func = helper(script, call, where)
    given, at = func.returns[0] if func is not None and len(func.returns) == 1 else (None, where)
    if not isinstance(given, ast.Tuple) or not 0 <= step < len(given.elts):
        return None
    node: Any = given.elts[step]
    for _ in range(4):
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
            node = node.func.value
        defs = at.block.scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
        held = reaching(defs, at) if defs else []
        if len(held) != 1 or held[0].how != "=" or held[0].path:
            break
        node, at = held[0].value, held[0].where
    return node if isinstance(node, ast.Call) else None


MOVES = ("to", "cuda", "cpu", "eval", "train", "float", "double")


def told(script: Script, cut: Cut, node: Any, name: str, whole: bool = False) -> Hit:
    cause = "train.no_grad_in_training" if cut.reason == "no_grad" else ""
    says = f"{name} is in the optimiser, but {WHAT[cut.reason]} is between it and the loss: it gets no gradient."
    if whole:
        says = f"the whole loss passes through {WHAT[cut.reason]}: {name} gets no gradient."
    here = cut.node in script.module.up or cut.node in script.module.place
    return Hit(cut.node if here else node, says, cause=cause)


def held_by_optimizers(script: Script, scope: Scope) -> set[str]:
    """The names of networks in the optimisers that a scope steps, as that scope would call them."""
    found: set[str] = set()
    for event in training(script).events(scope):
        if event.kind in ("step", "scaler_step") and not event.through:
            found |= networks_of(script, event, scope)
    return found


def networks_of(script: Script, event: Event, scope: Scope) -> set[str]:
    node = event.node
    value = event.value
    if event.kind == "scaler_step" and isinstance(node, ast.Call) and node.args:
        values = script.value(node.args[0])
        value = values[0] if len(values) == 1 else None
    if value is None or value.kind != "instance" or not isinstance(value.node, ast.Call) or value.where is None:
        return set()
    made = value.where.block.scope
    if made.module is not script.module:
        return set()
    found = {
        text(part.value)
        for part in ast.walk(value.node)
        if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters")
    }
    if made is scope or around(made, scope):
        return found - {""}
    if made.cls is None or made.cls is not scope.cls:
        return set()
    kept = {
        value.id: f"self.{name}"
        for name, defs in made.cls.attrs.items()
        for value in (element(one.value, one.path) for one in defs if one.how == "=")
        if isinstance(value, ast.Name) and len(defs) == 1
    }
    return {name for name in (kept.get(name, name) for name in found) if name.startswith("self.")}


def around(outer: Scope, scope: Scope) -> bool:
    at: Scope | None = scope.parent
    while at is not None:
        if at is outer:
            return True
        at = at.parent
    return False


# --- inside a module


def in_forwards(script: Script) -> Iterator[Hit]:
    if script.tests or any("PreTrained" in name for name in script.module.names):
        return
    # In a large library a module that cuts its gradient is mostly meant so, and there are very many of them.
    if len(script.project.files) > MANY and not script.mentions("backward", "training_step"):
        return
    cutters = cutting_functions(script)
    loads = script.loads("data") if script.mentions("data") else []
    reads_data = {script.class_of(script.scope(node)) for node in loads if isinstance(node, ast.Attribute)}
    for cls, forward in (
        (cls, cls.methods[name])
        for cls in script.module.classes
        for name in ("forward", "training_step")
        if name in cls.methods
    ):
        # Cheap questions first: most classes cut nothing.
        if not forward.returns or forward.yields:
            continue
        done = called_by(cls)
        quiet = script.mentions("no_grad", "inference_mode")
        if (
            not quiet
            and CUTTING.isdisjoint(done)
            and cutters.isdisjoint(done)
            and cls not in reads_data
            and not borrows(script, cls)
        ):
            continue
        if not script.is_module(cls):
            continue
        running = set().union(*(words(method.node) for name, method in cls.methods.items() if name not in SETS_UP))
        if CUTTING.isdisjoint(running) and cutters.isdisjoint(running) and not borrows(script, cls):
            continue
        said = words(cls.node)
        if not FREEZES.isdisjoint(said) or script.grad_off(Where(forward.body, 1 << 60)) is not None:
            continue
        made = {name: fresh for name, fresh in built(script, cls) if not FIXED.search(name.lower())}
        if not made:
            continue
        loaded = not LOADS.isdisjoint(said)
        live: set[str] = set()
        dead: dict[str, Cut] = {}
        unknown = False
        for given, where in forward.returns:
            found = reach(script, given, where)
            unknown = unknown or found.open
            live |= found.live
            dead.update(found.dead)
        for name, cut in sorted(dead.items()):
            part = name.removeprefix("self.").split(".")[0]
            fresh = made.get(part, False) and not loaded
            known = (
                part in made
                and cut.reason in (CUTS if fresh or asked_for(script, part) else SLIPS)
                and not any(related(name, other) for other in live)
            )
            if known and not unknown and not elsewhere(script, cls, name, forward):
                what = "is built with fresh weights" if fresh else "is a part of the model"
                told = f"{name} {what}, but {WHAT[cut.reason]} blocks its gradient."
                if cut.node not in script.module.up and cut.node not in script.module.place:
                    yield Hit(forward.returns[0][0], told, related=cut_at(script, forward, cut))
                    continue
                cause = "train.no_grad_in_training" if cut.reason == "no_grad" else ""
                if cut.node in script.module.up or cut.node in script.module.place:
                    yield Hit(cut.node, told, cause=cause)


CUTTING = frozenset("detach no_grad inference_mode data numpy item tensor from_numpy round sign floor".split())
# An argmax is often meant: routing, codes. Rounding all of what a layer gives is not, without a way around it.
CUTS = ("detach", "no_grad", "data", "numpy", "item", "wrapped", "round")
# Nobody freezes a part by one of these.
SLIPS = ("data", "numpy", "item", "wrapped", "round")


def asked_for(script: Script, part: str) -> bool:
    """Whether an optimiser of the file is given the parameters of this part by its name."""
    return any(
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Attribute)
        and call.func.value.attr == part
        and not isinstance(script.statement(call), ast.For)
        for call in script.calls("parameters")
    )


def called_by(cls: Class) -> set[str]:
    """The last names of everything that the methods of a class call, but for those that set it up."""
    return {
        call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        for name, method in cls.methods.items()
        if name not in SETS_UP
        for call in method.calls
    }


SETS_UP = ("__init__", "init_weights", "_init_weights", "reset_parameters", "extra_repr")
MANY = 150  # files, beyond which what a file brings in is not looked after here


def cutting_functions(script: Script) -> frozenset[str]:
    """Functions of the file, or brought in from the project, that may cut a gradient in what they return."""
    found: set[str] = set()
    own = not CUTTING.isdisjoint(script.module.names)
    small = len(script.project.files) <= MANY
    for name, defs in script.module.main.defs.items():
        made = defs[-1]
        if made.how == "def" and own:
            func = script.module.functions[made.value]
            if any(isinstance(call.func, ast.Attribute) and call.func.attr in CUTTING for call in func.calls):
                found.add(name)
        elif small and made.how == "import" and name in script.module.calls and name.islower():
            found |= {name} if script.project.may_mention(made.value, script.module, ROUNDS) else set()
    return frozenset(found)


ROUNDS = frozenset("detach numpy item from_numpy round sign floor".split())


def borrows(script: Script, cls: Class) -> bool:
    """Whether a class of a training program holds modules that another file of the project defines."""
    if not script.mentions("backward", "training_step"):
        return False
    for defs in cls.attrs.values():
        func = defs[0].value.func if len(defs) == 1 and isinstance(defs[0].value, ast.Call) else None
        for made in script.module.main.defs.get(func.id, []) if isinstance(func, ast.Name) else ():
            if made.how == "import" or (made.how == "class" and not CUTTING.isdisjoint(words(made.value.node))):
                return True
    return False


def cut_at(script: Script, forward: Scope, cut: Cut) -> tuple[Related, ...]:
    """Where another file cuts, when one of the modules that forward applies is defined there."""
    for call in forward.calls:
        for value in script.value(call.func):
            module = value.cls.module if value.cls is not None else None
            if module is not None and cut.node in module.up:
                return (Related(module.path, cut.node.lineno, f"{WHAT[cut.reason]} cuts the graph here"),)
    return ()


def words(node: ast.AST) -> set[str]:
    return {getattr(part, "attr", getattr(part, "id", getattr(part, "arg", ""))) or "" for part in ast.walk(node)}


def built(script: Script, cls: Class) -> Iterator[tuple[str, bool]]:
    """Attributes that hold networks made in __init__, and whether nobody else has trained their weights."""
    for name, defs in cls.attrs.items():
        if len(defs) == 1 and defs[0].how == "=" and not defs[0].path and isinstance(defs[0].value, ast.Call):
            values = script.values.defined(defs[0], None)
            if all(value.kind == "instance" and value.const != "self" for value in values):
                if all(weighs(script, value) for value in values):
                    yield name, True
                elif all(network(script, value) for value in values):
                    yield name, False
            elif all(network(script, value) for value in values if value.kind == "made") and values[0].kind == "made":
                yield name, False


def elsewhere(script: Script, cls: Class, name: str, forward: Scope) -> bool:
    """Whether a method that forward does not call, and that keeps gradients, uses the layer."""
    inner = {text(call.func) for call in forward.calls}
    for method in cls.methods.values():
        if method is forward or method.name == "__init__" or f"{forward.me}.{method.name}" in inner:
            continue
        if any(script.grad_state(item) is False for item in method.decorators()):
            continue
        if any(
            text(call.func).startswith(name)
            and not (isinstance(above := script.parent(call), ast.Attribute) and above.attr in ("detach", "data"))
            and script.grad_off(script.where(call)) is None
            for call in method.calls
        ):
            return True
    return False


# --- actions without a gradient


def sampled(script: Script) -> Iterator[Hit]:
    """act = dist.sample(); actor_loss = -critic(obs, act).mean(): the critic's gradient ends at the draw."""
    for call in script.calls("sample") if script.mentions("critic", "qf", "q1", "qf1", "q_net") else ():
        statement, where = script.statement(call), script.where(call)
        if call.args or not isinstance(statement, ast.Assign) or script.grad_off(where) is not None:
            continue
        scope = where.block.scope
        names = {text(target) for target in statement.targets} - {""}
        if not re.search(r"actor|policy|(^|_)pi(_|$)", f"{scope.name} {' '.join(scope.defs)}") or not names:
            continue
        for other in scope.calls:
            given = {part.id for arg in other.args for part in ast.walk(arg) if isinstance(part, ast.Name)}
            kept = text(getattr(script.statement(other), "targets", [None])[0])
            aim = isinstance(script.statement(other), ast.Return) and "loss" in scope.name
            aim = aim or re.search(r"(actor|policy|pi)_?loss", kept) is not None
            judged = re.search(r"critic|(^|[._])qf?\d?(_net)?$", text(other.func)) is not None
            quiet = script.grad_off(script.where(other)) is not None
            if judged and aim and names & given and not quiet and script.where(other).order > where.order:
                yield Hit(
                    call, "is sampled without a gradient, so the critic's gradient cannot reach the actor: use rsample."
                )
                break


# --- requires_grad on a loss


def forced(script: Script, whole: set[Any]) -> Iterator[Hit]:
    """requires_grad switched on for the loss: one that hangs together with the network has it already."""
    lost = {text(end.node): end for end in ends(script) if isinstance(end.node, ast.Name)}
    marks: list[tuple[Any, str, Where]] = [
        (call, text(call.func.value), script.where(call))
        for call in script.calls("requires_grad_")
        if isinstance(call.func, ast.Attribute) and script.constant(script.arg(call, 0), True) is True
    ]
    marks += [
        (target, text(target.value), where)
        for scope in script.module.scopes
        for target, value, where in scope.attr_sets
        if target.attr == "requires_grad" and isinstance(value, ast.Constant) and value.value is True
    ]
    for node, name, where in marks:
        end = lost.get(name)
        if end is None or end.node in whole or end.where.block.scope is not where.block.scope:
            continue
        made = [one for one in where.block.scope.defs.get(name, []) if one.where.order < where.order]
        if made and isinstance(made[-1].value, ast.Call | ast.BinOp):
            found = reach(script, made[-1].value, made[-1].where)
            cuts = [cut for cut in found.dead.values() if cut.reason != "compare"]
            at = tuple(
                Related(script.module.path, cut.node.lineno, f"{WHAT[cut.reason]} cuts the graph here")
                for cut in cuts[:1]
                if cut.node in script.module.up
            )
            yield Hit(
                node, f"{name} should require grad without this; setting it only hides a cut in the graph.", related=at
            )
