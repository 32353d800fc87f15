"""Which networks a loss sends gradients to, and what stops it on the way to the others.

The way back from a loss is walked as autograd would walk it: through assignments, calls of the project's own functions
(with the arguments they were given), comprehensions and lists that were filled. A network is reached when one way to it
is free, and cut off when every way passes something without a gradient. Whatever cannot be followed counts as a way, so
that nothing is called cut off by mistake.
"""

import ast
import re
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.given import argument, default_of
from clew.lint.gradient import LEAVING, WRAPPING, Cut
from clew.lint.index import Def, Scope, Where
from clew.lint.script import Script, text
from clew.lint.value import Alternatives

FUEL = 500
DEEP = 8
NETWORKS = re.compile(
    r"(^|[._])(model|net|network|encoder|decoder|backbone|generator|discriminator|critic|actor|policy|student|teacher|"
    r"classifier|unet|head|tower|online)(_?\w{0,8})?$",
    re.I,
)
# Of a tensor these are not values that a gradient flows through.
ASIDE = frozenset("shape size device dtype ndim requires_grad grad_fn is_cuda dim numel".split())


FILLS = frozenset("append extend insert update add add_ copy_".split())


class Env(NamedTuple):
    """The call through which a function is being looked at, and what its `self` is called outside."""

    func: Scope
    call: ast.Call
    where: Where
    me: str
    outer: "Env | None"


class Reach:
    """What was met on the way: networks that are reached, networks behind a cut (with the cut that is nearest to the
    loss), whether anything could not be followed, and whether a tensor with a gradient of its own was met."""

    def __init__(self, script: Script, known: frozenset[str]) -> None:
        self.script, self.known = script, known
        self.live: set[str] = set()
        self.dead: dict[str, Cut] = {}
        self.open = False
        self.loose = False
        self.fuel = FUEL
        self.seen: set[tuple[int, int, bool]] = set()

    def cut_off(self) -> dict[str, Cut]:
        """Networks to which no way is free."""
        if self.open:
            return {}
        return {name: cut for name, cut in self.dead.items() if not any(related(name, other) for other in self.live)}

    def note(self, name: str, stop: Cut | None) -> None:
        if not name:
            self.open = self.open or stop is None
        elif stop is None:
            self.live.add(name)
        else:
            self.dead.setdefault(name, stop)

    def visit(self, node: Any, where: Where, env: Env | None, stop: Cut | None, deep: int = 0) -> None:
        key = (id(node), id(env), stop is None)
        if key in self.seen or node is None or isinstance(node, ast.Constant):
            return
        self.seen.add(key)
        self.fuel -= 1
        if self.fuel < 0:
            self.open = True
            return
        if isinstance(node, ast.Name):
            self.name(node, where, env, stop, deep)
        elif isinstance(node, ast.Attribute):
            self.attribute(node, where, env, stop, deep)
        elif isinstance(node, ast.Call):
            self.call(node, where, env, stop, deep)
        elif isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                self.visit(part, where, env, stop or Cut("compare", node), deep)
        elif isinstance(node, ast.Subscript):
            self.visit(node.value, where, env, stop, deep)
        elif isinstance(node, ast.Lambda):
            self.visit(node.body, where, env, stop, deep)
        else:
            for part in children(node):
                if isinstance(part, ast.comprehension):
                    self.visit(part.iter, where, env, stop, deep)
                elif isinstance(part, ast.expr):
                    self.visit(part, where, env, stop, deep)
                elif isinstance(part, ast.keyword):
                    self.visit(part.value, where, env, stop, deep)

    # names

    def name(self, node: ast.Name, where: Where, env: Env | None, stop: Cut | None, deep: int) -> None:
        scope: Scope | None = where.block.scope
        if node.id in where.block.scope.module.comprehended and self.comprehended(node, where, env, stop, deep):
            return
        at = where
        while scope is not None and node.id not in scope.defs:
            scope = scope.parent
            at = Where(scope.body, 1 << 60) if scope is not None else at
        if scope is None:
            return
        defs = scope.defs[node.id]
        held = reaching(defs, at)
        if any(made.how == "aug" for made in held):
            held = [made for made in defs if made.where.order <= at.order or made.where.block.loops()]
        for made in held:
            self.defined(made, at, env, stop, deep)
        self.filled(node.id, scope, env, stop, deep)

    def comprehended(self, node: ast.Name, where: Where, env: Env | None, stop: Cut | None, deep: int) -> bool:
        up = where.block.scope.module.up
        at: ast.AST | None = up.get(node)
        while isinstance(at, ast.expr | ast.comprehension | ast.keyword):
            if isinstance(at, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                for part in at.generators:
                    if any(isinstance(one, ast.Name) and one.id == node.id for one in ast.walk(part.target)):
                        self.visit(part.iter, where, env, stop, deep)
                        return True
            at = up.get(at)
        return False

    def defined(self, made: Def, at: Where, env: Env | None, stop: Cut | None, deep: int) -> None:
        if made.how == "param":
            self.parameter(made, env, stop, deep)
        elif made.how == "aug":
            self.visit(made.value.value, made.where, env, stop, deep)
        elif made.how in ("=", "walrus"):
            off = self.script.grad_off(made.where)
            computed = element(made.value, made.path)
            if off is not None and off is not self.script.grad_off(at) and isinstance(computed, ast.Call | ast.BinOp):
                stop = stop or Cut("no_grad", off)
            value = made.value
            for step in made.path:
                if not isinstance(value, ast.Tuple | ast.List) or not 0 <= step < len(value.elts):
                    self.part(value, made.path, made.where, env, stop, deep)
                    return
                value = value.elts[step]
            self.visit(value, made.where, env, stop, deep)
        elif made.how == "for":
            self.visit(made.value, made.where, env, stop, deep)

    def part(self, value: Any, path: tuple[int, ...], at: Where, env: Env | None, stop: Cut | None, deep: int) -> None:
        """One of several things that a call returned."""
        func = self.function(value, at) if isinstance(value, ast.Call) and len(path) == 1 else None
        whole = func is not None and func.returns and not func.yields and deep < DEEP
        if whole and all(isinstance(given, ast.Tuple) for given, _ in func.returns):  # type: ignore[union-attr]
            assert func is not None
            self.inside(func, value, at, env, stop, deep, path[0])
        else:
            self.visit(value, at, env, stop, deep)

    def parameter(self, made: Def, env: Env | None, stop: Cut | None, deep: int) -> None:
        if env is None or env.func is not made.value:
            return
        given = argument(env.call, env.func, made.name)
        if given is not None:
            self.visit(given, env.where, env.outer, stop, deep)
        elif default_of(env.func, made.name) is None and made.name != env.func.me:
            self.open = True

    def filled(self, name: str, scope: Scope, env: Env | None, stop: Cut | None, deep: int) -> None:
        """What was appended to a list, or set under a key."""
        module = scope.module
        for call in scope.calls:
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr not in FILLS:
                continue
            if isinstance(func.value, ast.Name) and func.value.id == name:
                for part in (*call.args, *(keyword.value for keyword in call.keywords)):
                    self.visit(part, module.where(call), env, stop, deep)
        for target, value, at in module.subscript_sets:
            if at.block.scope is scope and text(target.value) == name and isinstance(value, ast.expr):
                self.visit(value, at, env, stop, deep)

    def attribute(self, node: ast.Attribute, where: Where, env: Env | None, stop: Cut | None, deep: int) -> None:
        if node.attr in ASIDE:
            return
        if node.attr == "data":
            self.visit(node.value, where, env, stop or Cut("data", node), deep)
            return
        cls = self.script.class_of(where.block.scope)
        mine = isinstance(node.value, ast.Name) and node.value.id == where.block.scope.me
        if mine and stop is None and not (cls is not None and self.setting(cls, node.attr)):
            self.loose = True  # what an object keeps may be a parameter
        if cls is not None and mine and node.attr in cls.attrs:
            for made in cls.attrs[node.attr][:4]:
                if made.where.block.scope.name != "__init__":
                    self.defined(made, made.where, env, stop, deep)
            return
        self.visit(node.value, where, env, stop, deep)

    def setting(self, cls: Any, name: str) -> bool:
        """Whether an attribute is a number: by its default, or because a loss without weights was given it."""
        if plain_number(cls, name):
            return True
        init = cls.methods.get("__init__")
        held = [unpacked(made) for made in cls.attrs.get(name, [])]
        given = init is not None and all(isinstance(one, ast.Name) and one.id in init.params for one in held)
        return bool(held) and given and self.script.is_module(cls) and not heavy(cls)

    # calls

    def call(self, node: ast.Call, where: Where, env: Env | None, stop: Cut | None, deep: int) -> None:
        func = node.func
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        dotted = self.dotted(func, where)
        wants = last in ("requires_grad_", "Parameter") or any(word.arg == "requires_grad" for word in node.keywords)
        if wants and stop is None and dotted not in WRAPPING:
            self.loose = True
        if dotted in WRAPPING and dotted != "torch.as_tensor":
            stop = stop or Cut("wrapped", node)
        method = isinstance(func, ast.Attribute) and not dotted
        if dotted in ("builtins.len", "builtins.range", "builtins.isinstance"):
            return  # a size is no value
        if dotted in ("builtins.float", "builtins.int"):
            stop = stop or Cut("item", node)
        elif last in LEAVING and (method or dotted == f"torch.{last}"):
            stop = stop or Cut(LEAVING[last], node)
        elif (method or isinstance(func, ast.Name | ast.Subscript)) and self.applied(node, where, env, stop, deep):
            return
        if isinstance(func, ast.Attribute):
            self.visit(func.value, where, env, stop, deep)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(part, where, env, stop, deep)

    def applied(self, node: ast.Call, where: Where, env: Env | None, stop: Cut | None, deep: int) -> bool:
        """A function of the project is looked into; a network is noted. True when the arguments are dealt with."""
        off = None
        held = self.function(node, where)
        if held is not None:
            off = next((item for item in held.decorators() if self.script.grad_state(item) is False), None)
        stop = stop or (Cut("no_grad", off) if off is not None else None)
        if held is not None and held.returns and not held.yields and deep < DEEP and not starred(node):
            self.inside(held, node, where, env, stop, deep)
            return True
        values = self.called(node.func, where)
        criterion = next((value.cls for value in values if value.cls is not None), None) if len(values) == 1 else None
        forward = criterion.methods.get("forward") if criterion is not None and values[0].kind == "instance" else None
        if forward is not None and criterion is not None and not heavy(criterion) and deep < DEEP and not starred(node):
            self.inside(forward, node, where, env, stop, deep)
            return True
        said = self.outside(text(node.func), where, env)
        base = self.outside(text(node.func.value), where, env) if isinstance(node.func, ast.Attribute) else ""
        if any(value.kind in ("instance", "made") and network(self.script, value) for value in values) or self.is_one(
            said
        ):
            self.note(said, stop)
        elif self.is_one(base) and held is None:
            self.note(base, stop)
        elif held is None and unknown(node.func, values):
            self.loose = True  # it may be a network under any name
            self.note(said, stop)
        elif held is None and not self.dotted(node.func, where):
            # An unknown function may apply the networks that it is given.
            for part in (*node.args, *(keyword.value for keyword in node.keywords)):
                given = self.outside(text(part), where, env)
                if self.is_one(given):
                    self.note(given, stop)
        return False

    def is_one(self, name: str) -> bool:
        return bool(name) and (name in self.known or bool(NETWORKS.search(name)))

    def dotted(self, func: ast.expr, where: Where) -> str:
        return self.script.at_home(where).dotted(func)

    def function(self, node: ast.Call, where: Where) -> Scope | None:
        values = self.called(node.func, where)
        return values[0].func if len(values) == 1 and values[0].kind == "function" else None

    def called(self, func: ast.expr, where: Where) -> Alternatives:
        return self.script.values.value(func, where, None) if isinstance(func, ast.Name | ast.Attribute) else ()

    def inside(
        self, func: Scope, node: ast.Call, where: Where, env: Env | None, stop: Cut | None, deep: int, at: int = -1
    ) -> None:
        me = self.outside(text(node.func.value), where, env) if isinstance(node.func, ast.Attribute) else ""
        if func.name == "forward" and not text(node.func).endswith(".forward"):
            me = self.outside(text(node.func), where, env)
        inner = Env(func, node, where, me, env)
        for given, place in func.returns:
            off = self.script.grad_off(place)
            halt = stop or (Cut("no_grad", off) if off is not None and off not in func.decorators() else None)
            part = given.elts[at] if isinstance(given, ast.Tuple) and 0 <= at < len(given.elts) else given
            self.visit(part, place, inner, halt, deep + 1)

    def outside(self, said: str, where: Where, env: Env | None) -> str:
        """What a thing is called where the loss is: a parameter goes by its argument, `self` by the object."""
        scope = where.block.scope
        while env is not None and said:
            if scope is not env.func:
                return said if said.split(".")[0] not in scope.defs else ""
            first, _, rest = said.partition(".")
            if first == env.func.me:
                if env.me:
                    said = ".".join(part for part in (env.me, rest) if part)
                elif rest:
                    said = f"self.{rest}"
            elif first in env.func.params:
                given = argument(env.call, env.func, first)
                held = text(given)
                said = ".".join(part for part in (held, rest) if part) if held else ""
            elif first in env.func.defs:
                return ""
            scope = env.where.block.scope
            env = env.outer
        return said


def element(value: Any, path: tuple[int, ...]) -> Any:
    """The part of a tuple that is written out; of anything else the whole."""
    for step in path:
        if isinstance(value, ast.Tuple | ast.List):
            value = value.elts[step] if 0 <= step < len(value.elts) else None
    return value


def unpacked(made: Def) -> Any:
    """What one of several targets is set to."""
    value = made.value
    for step in made.path:
        value = value.elts[step] if isinstance(value, ast.Tuple | ast.List) and 0 <= step < len(value.elts) else None
    return value


def plain_number(cls: Any, name: str) -> bool:
    """Whether an attribute is a setting: a number, or a parameter of __init__ whose default is one."""
    defs = cls.attrs.get(name, [])
    init = cls.methods.get("__init__")
    for made in defs:
        value = unpacked(made)
        if isinstance(value, ast.Name) and init is not None and value.id in init.params:
            value = default_of(init, value.id)
        if not isinstance(value, ast.Constant) or not isinstance(value.value, int | float):
            return False
    return bool(defs)


def unknown(func: ast.expr, values: Alternatives) -> bool:
    """A parameter, or something kept on an object, that is called."""
    mine = isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == "self"
    return (isinstance(func, ast.Name) or mine) and all(one.kind in ("param", "unknown", "attr") for one in values)


def children(node: ast.AST) -> list[Any]:
    return list(ast.iter_child_nodes(node))


def starred(call: ast.Call) -> bool:
    return Script.starred(call)


def heavy(cls: Any) -> bool:
    """Whether a class makes layers: a network, and not a loss written as a module."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute | ast.Name)
        and (part.func.attr if isinstance(part.func, ast.Attribute) else part.func.id).startswith(LAYERS)
        for part in ast.walk(cls.node)
    )


LAYERS = ("Linear", "Conv", "LSTM", "GRU", "RNN", "Embedding", "Transformer", "Sequential", "ModuleList", "Multihead")


ZOOS = ("torchvision.models.", "timm.create_model", "segmentation_models_pytorch.")


def network(script: Script, value: Any) -> bool:
    """Whether a value is something with weights, as far as its class says."""
    if value.cls is not None:
        return script.is_module(value.cls)
    if value.name.startswith(ZOOS):
        return True
    return bool(value.name.startswith("torch.nn.")) and value.name.rsplit(".", 1)[-1].startswith(LAYERS)


def related(one: str, other: str) -> bool:
    """Whether one network is the other, or a part of it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def reach(script: Script, node: Any, where: Where, known: frozenset[str] = frozenset()) -> Reach:
    """What the gradient of `node` reaches. `known` are names of networks that do not look like any."""
    found = Reach(script, known)
    found.visit(node, where, None, None)
    return found
