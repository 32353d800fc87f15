"""What happens in a training program, and in which order: the calls that matter, with helpers looked into.

A loop is training when gradients are computed in it, validation when a model is applied in it without, and neither
otherwise. Functions and methods of the project that a loop calls count as if they stood there.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from clew.lint.given import argument
from clew.lint.index import Block, Scope, Where
from clew.lint.project import Silence
from clew.lint.script import Script, text
from clew.lint.value import Alternatives, Value

DEEP = 3
OPTIMIZER = re.compile(
    r"(^|[._])(opt|optim|optimi[sz]er)(s|_?[a-z0-9]{0,12}|[A-Z]\w*)?(\[\])?$|[a-z0-9]_?(opt|optim|optimi[sz]er)(\[\])?$"
)
SCHEDULER = re.compile(r"sched|lr_s|warmup", re.IGNORECASE)
SCALER = re.compile(r"scaler", re.IGNORECASE)
KINDS = frozenset(
    "backward manual_backward step zero_grad clip_grad_norm_ clip_grad_value_ clip_grad_norm clip_gradients unscale_ "
    "unscale_gradients update train eval zero_ fill_ _foreach_zero_ minimize".split()
)


# A file without any of these has no training loop, and calls none that matters.
CONCERNED = frozenset("backward manual_backward zero_grad optimizer optim opt scheduler criterion loss_fn".split())
BACKWARD = ("backward", "manual_backward")
DOES = frozenset("backward manual_backward zero_grad step eval train clip_grad_norm_ grad".split())


class Event(NamedTuple):
    """One call that training is made of. `order` sorts events of one scope; `block` is where it happens in that scope;
    `through` are the calls of helpers that lead to it; `maybe` says that a condition in a helper may skip it."""

    kind: str
    node: Any
    order: tuple[int, ...]
    block: Block
    who: str
    value: Value | None
    through: tuple[ast.Call, ...] = ()
    maybe: bool = False
    looped: int = 0


class Loop(NamedTuple):
    """A loop and the events in it, those of helpers included."""

    block: Block
    events: list[Event]

    def of(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def has(self, *kinds: str) -> bool:
        return any(event.kind in kinds for event in self.events)


class Training:
    """The events and loops of one file, found once. `base` is how many calls already lead to where it begins."""

    def __init__(self, script: Script, base: int = 0) -> None:
        self.script, self.base = script, base
        self.held: dict[tuple[Scope, int], list[Event]] = {}
        self.busy: set[Scope] = set()
        self.circles = 0
        self.all: list[Loop] | None = None

    def events(self, scope: Scope) -> list[Event]:
        """Everything of interest that a scope does, in order."""
        key = (scope, len(self.busy))
        if key not in self.held:
            if scope in self.busy or self.deep() > DEEP:
                self.circles += scope in self.busy
                return []
            before = self.circles
            self.busy.add(scope)
            try:
                found = [event for call in scope.calls for event in self.read(call, scope)]
                found += self.cleared(scope)
                found.sort(key=lambda event: event.order)
            finally:
                self.busy.discard(scope)
            if self.busy and self.circles != before:
                return found  # seen from inside a circle of calls it is cut short
            self.held[key] = found
        return self.held[key]

    def deep(self) -> int:
        return self.base + len(self.busy)

    def silent(self, key: tuple[str, int, str], happens: Callable[["Training"], Iterable[Event]]) -> bool:
        """Whether nothing happens behind a way into another file, as far as it is followed from here. That is worked
        out once for all who ask, knowing nothing yet: so the files read for it are all that the answer rests on."""
        project, deep = self.script.project, self.deep()
        if project.loud.get(key, 0) >= deep:
            return False
        known = project.silent.get(key)
        if known is None or known.deep > deep:
            outer, project.touched = project.touched, set()
            try:
                loud = any(True for _ in happens(Training(self.script.afresh(), deep)))
                reads = frozenset(project.touched)
            finally:
                project.touched = outer
            if loud:
                project.loud[key] = deep
                return False
            known = project.silent[key] = Silence(deep, reads, project.searched)
        project.touched |= known.reads
        project.searched = project.searched or known.wide
        return True

    def cleared(self, scope: Scope) -> Iterator[Event]:
        for target, value, where in scope.attr_sets:
            if target.attr == "grad" and isinstance(value, ast.Constant) and value.value is None:
                yield Event("zero", target, (where.order, target.col_offset), where.block, text(target.value), None)

    def read(self, call: ast.Call, scope: Scope) -> Iterator[Event]:
        module = scope.module
        where = module.where(call)
        order = (where.order, getattr(call, "end_lineno", 0), getattr(call, "end_col_offset", 0))
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if isinstance(call.func, ast.Name) and call.func.id.startswith("clip_grad_"):
            yield Event("clip", call, order, where.block, "", None)
            return
        kind, value = "", None
        if name in KINDS:
            kind, value = self.kind(name, call, scope)
        if kind == "backward" and self.own_backward(call, scope):
            yield from self.inlined(call, scope)
            return
        if kind:
            if kind == "step":
                yield from self.closure(call, scope)
            base = call.func.value if isinstance(call.func, ast.Attribute) else None
            yield Event(kind, call, order, outside(where.block), text(base), value)
            return
        if self.interesting(call, scope):
            yield from self.inlined(call, scope)

    def own_backward(self, call: ast.Call, scope: Scope) -> bool:
        """Whether `backward` is a method of the project that calls a tensor's own."""
        values = self.script.values.of(call.func, scope.module)
        func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
        return func is not None and func is not scope and any(one.kind == "backward" for one in self.events(func))

    def interesting(self, call: ast.Call, scope: Scope) -> bool:
        """Cheaply: may this call one of the project's own functions?"""
        func = call.func
        if isinstance(func, ast.Name):
            at: Scope | None = scope
            while at is not None:
                if func.id in at.defs:
                    return at.defs[func.id][0].how in ("def", "import", "=", "param", "class")
                at = at.parent
            return False
        if isinstance(func, ast.Attribute):
            base = func.value
            return isinstance(base, ast.Name | ast.Attribute) and func.attr not in ("append", "item", "format")
        return False

    def brought(self, func: ast.expr, scope: Scope) -> str:
        """The dotted name under which a file imports what is called, or nothing."""
        said = text(func)
        first, _, rest = said.partition(".")
        at: Scope | None = scope
        while at is not None and first not in at.defs:
            at = at.parent
        defs = at.defs[first] if at is not None else []
        if not said or len(defs) != 1 or defs[0].how != "import":
            return ""
        return f"{defs[0].value}.{rest}" if rest else str(defs[0].value)

    def idle(self, call: ast.Call, scope: Scope) -> bool:
        """Is this imported from a library, or from a file of the project and does nothing of interest?"""
        dotted = self.brought(call.func, scope)
        if not dotted:
            return False
        project, module = self.script.project, scope.module
        if not project.may_mention(dotted, module, DOES):
            return True
        found = project.file_of(dotted, module)
        if found is None or found[0] == module.path:
            return False
        return self.silent((found[0], 0, ".".join(found[1])), lambda apart: apart.followed(call, scope))

    def inlined(self, call: ast.Call, scope: Scope) -> Iterator[Event]:
        if self.deep() <= DEEP and not self.idle(call, scope):
            yield from self.followed(call, scope)

    def followed(self, call: ast.Call, scope: Scope) -> Iterator[Event]:
        module = scope.module
        values = self.script.values.of(call.func, module)
        where = module.where(call)
        for value in values[:2]:
            func = value.func if value.kind == "function" else None
            if value.kind == "instance" and value.cls is not None and value.const != "self":
                func = value.cls.methods.get("__call__")  # a callback, or a stepper that is called
            if func is None or func is scope or func.kind == "lambda" or func.module.names.isdisjoint(DOES):
                continue
            if func.module is not self.script.module and self.quiet(func):
                continue
            for event in self.events(func):
                inner = event.block.chain()
                yield Event(
                    event.kind,
                    event.node,
                    (where.order, call.end_lineno or 0, call.end_col_offset or 0, *event.order),
                    where.block,
                    event.who,
                    event.value,
                    (call, *event.through),
                    event.maybe
                    or len(values) > 1
                    or any(
                        block.kind in ("if", "else", "except", "case") and not present(block, event.who)
                        for block in inner
                    ),
                    event.looped + sum(block.kind in ("for", "while") for block in inner),
                )

    def quiet(self, func: Scope) -> bool:
        """Whether a function of another file does nothing of interest."""
        key = (func.module.path, getattr(func.node, "lineno", 0), func.name)
        return self.silent(key, lambda apart: apart.events(func))

    def closure(self, call: ast.Call, scope: Scope) -> Iterator[Event]:
        if call.args and isinstance(call.args[0], ast.Name | ast.Lambda):
            made = ast.Call(func=call.args[0], args=[], keywords=[])
            ast.copy_location(made, call)
            scope.module.up[made] = scope.module.up[call]
            yield from self.inlined(made, scope)

    def kind(self, name: str, call: ast.Call, scope: Scope) -> tuple[str, Value | None]:
        """What a call of this name does, as far as its receiver says."""
        assert isinstance(call.func, ast.Attribute)
        base = call.func.value
        said = text(base)
        if name in ("backward", "manual_backward"):
            return (
                ("distributed", None)
                if "dist_autograd" in said or "distributed.autograd" in said
                else ("backward", None)
            )
        if name == "step":
            return self.step(base, said, call, scope)
        if name == "zero_grad":
            return "zero", self.one(base, scope)
        if name in ("zero_", "fill_", "_foreach_zero_"):
            return ("zero" if ".grad" in ast.unparse(base) or name == "_foreach_zero_" else ""), None
        if name.startswith("clip_grad"):
            return "clip", None
        if name.startswith("unscale"):
            return "unscale", None
        if name == "update":
            return ("scaler_update" if SCALER.search(said) else ""), None
        if name in ("train", "eval"):
            return self.mode(name, base, call, scope)
        return "", None

    def one(self, base: ast.expr, scope: Scope) -> Value | None:
        values = self.script.values.of(base, scope.module)
        return values[0] if len(values) == 1 and values[0].kind != "unknown" else None

    def step(self, base: ast.expr, said: str, call: ast.Call, scope: Scope) -> tuple[str, Value | None]:
        values = self.each(self.script.values.of(base, scope.module))
        value = values[0] if len(values) == 1 else None
        names = {value.name for value in values if value.kind in ("instance", "made")}
        if any("lr_scheduler" in name or "schedule" in name.lower() for name in names):
            return "schedule", value
        if any(name.startswith("torch.optim.") or name.rsplit(".", 1)[-1].startswith("Adam") for name in names):
            return "step", value
        if any(name.endswith("GradScaler") for name in names):
            return "scaler_step", value
        if value is not None and value.cls is not None:
            bases = self.script.values.bases(value.cls)
            if any("lr_scheduler" in base for base in bases):
                return "schedule", value
            if any(base.startswith("torch.optim.") for base in bases):
                return "step", value
            return "", None
        if SCALER.search(said) and call.args:
            return "scaler_step", value
        if SCHEDULER.search(said):
            return "schedule", value
        if OPTIMIZER.search(said) or any("optimizer" in name.lower() for name in names):
            return "step", value
        return "maybe_step", value

    def each(self, values: Alternatives) -> Alternatives:
        """What a loop over a list that is written out gives: any of its items."""
        if len(values) != 1 or values[0].kind != "element" or values[0].where is None:
            return values
        node = values[0].node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
            node = node.func.value
        made = self.listed(node, values[0].where)
        if made is not None:
            return self.script.values.of(made.elt, values[0].where.block.scope.module)
        held = self.script.values.value(node, values[0].where, None)
        if len(held) != 1 or held[0].kind != "items" or held[0].where is None or not 0 < len(held[0].items) <= 6:
            return values
        inner = held[0].const if isinstance(held[0].const, tuple) else None
        items = [self.script.values.value(item, held[0].where, inner) for item in held[0].items]  # type: ignore[arg-type]
        return self.script.values.join(items)

    def listed(self, node: Any, where: Where) -> ast.ListComp | None:
        """The comprehension that a name or an attribute of the object holds."""
        scope = where.block.scope
        defs = scope.defs.get(node.id, []) if isinstance(node, ast.Name) else []
        cls = self.script.class_of(scope)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and cls is not None:
            defs = cls.attrs.get(node.attr, []) if node.value.id == scope.me else []
        value = defs[0].value if len(defs) == 1 and not defs[0].path else None
        return value if isinstance(value, ast.ListComp) else None

    def mode(self, name: str, base: ast.expr, call: ast.Call, scope: Scope) -> tuple[str, Value | None]:
        if len(call.args) + len(call.keywords) > 1 or (name == "eval" and call.args):
            return "", None
        on = name == "train"
        given = self.script.arg(call, 0, "mode")
        if given is not None:
            if not isinstance(given, ast.Constant) or not isinstance(given.value, bool):
                return ("mode", None) if isinstance(given, ast.Name | ast.Attribute | ast.Compare) else ("", None)
            on = given.value
        value = self.one(base, scope)
        if value is not None and value.cls is not None and not self.script.is_module(value.cls):
            return "", None
        if value is not None and value.kind == "ref":
            return "", None
        if value is not None and value.name.rsplit(".", 1)[-1].endswith(
            ("Trainer", "Agent", "PPO", "DQN", "SAC", "A2C")
        ):
            return "", None
        return ("train" if on else "eval"), value

    def loops(self) -> list[Loop]:
        """Every loop of the file with its events."""
        found: list[Loop] = []
        if self.script.module.names.isdisjoint(CONCERNED):
            return found
        if self.all is not None:
            return self.all
        for scope in self.script.module.scopes:
            if scope.loops:
                events = self.events(scope) if self.stirs(scope) else []
                found += [
                    Loop(block, [event for event in events if block in event.block.chain()]) for block in scope.loops
                ]
        self.all = found
        return found

    def stirs(self, scope: Scope) -> bool:
        """Whether anything of interest happens in a loop of a scope; what it calls outside of them is passed over."""
        if any(True for _ in self.cleared(scope)):
            return True
        place = scope.module.where
        inside = [call for call in scope.calls if place(call).block.loops()]
        inside.sort(key=lambda call: not (isinstance(call.func, ast.Attribute) and call.func.attr in KINDS))
        self.busy.add(scope)
        try:
            return any(True for call in inside for _ in self.read(call, scope))
        finally:
            self.busy.discard(scope)

    def computes(self, scope: Scope) -> bool:
        """Whether gradients are computed in a scope by a call that stands there itself."""
        calls = (call.func for call in scope.calls)
        return any(isinstance(func, ast.Attribute) and func.attr in BACKWARD for func in calls)

    def training(self) -> list[Loop]:
        """The innermost loops in which gradients are computed."""
        loops = [loop for loop in self.loops() if loop.has("backward")]
        return [loop for loop in loops if innermost(loop)]


def innermost(loop: Loop) -> bool:
    """Whether a `backward` stands in this loop and not only in one inside it."""
    return any(
        event.kind == "backward" and not event.looped and event.block.loops()[:1] == [loop.block]
        for event in loop.events
    )


def outside(block: Block) -> Block:
    """`for opt in optimizers: opt.step()` happens where the loop stands."""
    node = block.node
    if block.kind == "for" and isinstance(node, ast.For) and block.parent is not None and len(node.body) <= 2:
        name = text(node.target.elts[-1] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target)
        calls = [part.value for part in node.body if isinstance(part, ast.Expr)]
        alone = bool(name) and len(calls) == len(node.body)
        if alone and all(isinstance(one, ast.Call) and text(one.func).split(".")[0] == name for one in calls):
            return outside(block.parent)
    return block


def training(script: Script) -> Training:
    if "training" not in script.known:
        script.known["training"] = Training(script)
    found: Training = script.known["training"]
    return found


def within(loop: Loop, event: Event) -> bool:
    """Whether an event happens in every turn of the loop: no condition around it, no loop inside."""
    if event.maybe or event.looped:
        return False
    for block in event.block.chain():
        if block is loop.block:
            return True
        if block.kind in ("if", "else", "except", "case", "for", "while") and not present(block, event.who):
            return False
    return False


def present(block: Block, who: str) -> bool:
    """`if self.scheduler is not None:` asks only whether there is one."""
    test = block.node.test if block.kind == "if" and isinstance(block.node, ast.If) else None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        test = test.left
    return bool(who) and text(test) == who


def here(script: Script, event: Event) -> Any:
    """The node to show for an event: its own, or the call in this file that leads to it."""
    for node in (event.node, *reversed(event.through)):
        if node in script.module.up or node in script.module.place:
            return node
    return event.node


def name_here(script: Script, event: Event) -> str:
    """What the thing that an event is about is called where the event is seen from: a helper's parameter is traced back
    to the argument it was given."""
    who = event.who
    calls = list(event.through)
    while calls:
        call = calls.pop()
        values = script.values.of(call.func, script.module) if call.func in script.module.up else ()
        func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
        if func is None and len(values) == 1 and values[0].kind == "instance" and values[0].cls is not None:
            func = values[0].cls.methods.get("__call__")
        first, _, rest = who.partition(".")
        if func is None or first not in func.params:
            continue
        given = argument(call, func, first)
        if given is None:
            continue
        who = ".".join(part for part in (text(given), rest) if part)
    return who


def alike(first: Event, second: Event) -> bool:
    """Whether two events happen under the same conditions and in the same loops."""
    return (
        first.block is second.block and not first.maybe and not second.maybe and not first.looped and not second.looped
    )


def trained(script: Script, loop: Loop) -> set[str]:
    """The names of the models that the optimisers stepped in a loop hold."""
    found: set[str] = set()
    known = False
    for event in loop.of("step", "scaler_step"):
        value = event.value
        if (
            event.kind == "scaler_step"
            and isinstance(event.node, ast.Call)
            and event.node.args
            and event.node in script.module.up
        ):
            values = script.value(event.node.args[0])
            value = values[0] if len(values) == 1 else None
        if value is None or value.kind != "instance" or not isinstance(value.node, ast.Call) or not value.node.args:
            continue
        known = True
        for part in ast.walk(value.node.args[0]):
            if isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters"):
                found.add(text(part.value))
    if known:
        return found - {""}
    # The optimiser came from elsewhere: a name that is called with the batch, in the loop itself, is the model.
    for call in loop.block.scope.calls:
        if call in script.module.up and loop.block in script.module.where(call).block.chain():
            said = text(call.func)
            if MODELS.search(said) and (call.args or call.keywords):
                found.add(said)
    # A method of the same object that the loop calls applies it under the same name.
    for event in loop.of("backward") if not found else []:
        if event.through and event.node in script.module.up:
            scope = script.module.where(event.node).block.scope
            if scope.cls is not None and scope.cls is script.class_of(loop.block.scope):
                said_there = {text(call.func) for call in scope.calls if call.args or call.keywords}
                found |= {said for said in said_there if said.startswith(f"{scope.me}.") and MODELS.search(said)}
    return found


MODELS = re.compile(r"(^|[._])(model|net|network|classifier|unet)(_?\w{0,4})?$", re.IGNORECASE)
