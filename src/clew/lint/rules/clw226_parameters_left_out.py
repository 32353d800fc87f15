"""Parameters are sorted into groups, and some fit none.

What it sees: a loop over named_parameters() or comprehensions for the groups of an optimiser that pick each parameter
by a word in its name or by its number of axes, without an else, where parameters of the model fit none of the tests;
one list for the optimiser that leaves out biases or vectors.
Why it matters: what is in no group is in no optimiser, and stays at its start. The loss falls all the same.
Silent when: there is an else, the rest is frozen, or a test asks for something that the source does not show.
Fix: end the chain with else, or raise there.
"""

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from clew.lint.flow import outward
from clew.lint.index import Scope
from clew.lint.reach import network
from clew.lint.registry import rule
from clew.lint.rules.clw212_optimizer_in_loop import OPTIMIZERS
from clew.lint.script import Hit, Script, text
from clew.lint.value import Value

FREEZES = ("requires_grad_", "freeze", "lora_alpha", "peft")


class Param(NamedTuple):
    """A parameter as far as the model's layers say: its name, and its number of axes (0: not known)."""

    name: str
    axes: int


# What nearly every network has.
USUAL = (Param("norm.weight", 1), Param("layer.weight", 2), Param("layer.bias", 1))
WEIGHTS = {"Linear": 2, "Embedding": 2, "Conv1d": 3, "Conv2d": 4, "Conv3d": 5, "ConvTranspose2d": 4, "Bilinear": 3}
NORMS = ("LayerNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "RMSNorm")


@rule("CLW226", "parameters-left-out", "train.params_not_in_optimizer", "likely", "named_parameters parameters")
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.For, []):
        base, named = over(node.iter)
        if base is not None and keeps_in_lists(node):
            yield from in_loop(script, node, base, named)
    if script.mentions("named_parameters") and not script.mentions(*FREEZES):
        yield from in_lists(script)


def over(node: Any) -> tuple[Any, bool]:
    """The model in `model.named_parameters()`, and whether names come with it."""
    func = node.func if isinstance(node, ast.Call) and not node.args else None
    known = isinstance(func, ast.Attribute) and func.attr in ("named_parameters", "parameters")
    return (func.value, func.attr == "named_parameters") if known else (None, False)  # type: ignore[union-attr]


def keeps_in_lists(node: ast.For) -> bool:
    """Whether a loop does nothing but put parameters into two lists or more, without an else at the end."""
    chain = node.body[-1] if node.body else None
    if not isinstance(chain, ast.If) or not chain.orelse:
        return False
    while isinstance(chain, ast.If) and chain.orelse:
        chain = chain.orelse[0] if len(chain.orelse) == 1 else None
    return isinstance(chain, ast.If)


def in_loop(script: Script, node: ast.For, base: ast.expr, named: bool) -> Iterator[Hit]:
    pair = node.target.elts if isinstance(node.target, ast.Tuple) and len(node.target.elts) == 2 else None
    name, param = (text(pair[0]), text(pair[1])) if pair and named else ("", text(node.target))
    if not param:
        return
    tests = Tests(script, name, param)
    left, sure = missed(script, base, lambda one: tests.run(node.body, one))
    if left:
        last: Any = node.body[-1]
        while last.orelse and isinstance(last.orelse[0], ast.If):
            last = last.orelse[0]
        told = f"no condition here matches {', '.join(left[:3])}, so no group holds it."
        yield Hit(last.test, told, "" if sure else "look")


def missed(script: Script, base: ast.expr, kept: Any) -> tuple[list[str], bool]:
    """The parameters of a model that are surely not kept; those that most models have, when the model is not in
    sight."""
    values = script.value(base)
    for value in values:
        held = params(script, value)
        if held:
            left = [one.name for one in held if kept(one) is False]
            return (left if len(left) < len(held) else []), True
    if any(value.kind == "instance" and value.cls is not None for value in values):
        return [], True
    left = [one.name for one in USUAL if kept(one) is False]
    return (left if len(left) < len(USUAL) else []), False


class Tests(NamedTuple):
    """What a loop's tests say of one parameter: True, False, or None where that cannot be told."""

    script: Script
    name: str
    param: str

    def run(self, body: list[ast.stmt], one: Param) -> bool | None:
        """Whether the parameter is kept by the statements; one that is skipped on purpose counts as kept."""
        for node in body:
            if isinstance(node, ast.Continue):
                return True
            if not isinstance(node, ast.If):
                if self.param in ast.unparse(node) and not isinstance(node, ast.Assign | ast.Assert):
                    return True
                continue
            says = self.truth(node.test, one)
            if says is None:
                return None
            found = self.run(node.body if says else node.orelse, one)
            if found is not False:
                return found
        return False

    def truth(self, node: ast.expr, one: Param) -> bool | None:
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(part, one) for part in node.values]
            stop = isinstance(node.op, ast.Or)
            return stop if stop in parts else None if None in parts else not stop
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand, one)
            return None if inner is None else not inner
        if text(node) == f"{self.param}.requires_grad":
            return True
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self.compared(node, one)
        if isinstance(node, ast.Call):
            return self.called(node, one)
        return None

    def compared(self, node: ast.Compare, one: Param) -> bool | None:
        op, right = node.ops[0], node.comparators[0]
        if isinstance(op, ast.In | ast.NotIn) and text(right) == self.name:
            found = self.word(self.script.constant(node.left), "in", one)
            return found if isinstance(op, ast.In) or found is None else not found
        if not self.axes(node.left) or not one.axes:
            return None
        given = [self.script.constant(item) for item in right.elts] if isinstance(right, ast.Tuple | ast.List) else []
        if isinstance(op, ast.In | ast.NotIn) and given and all(isinstance(item, int) for item in given):
            return (one.axes in given) == isinstance(op, ast.In)
        number = self.script.constant(right)
        if not isinstance(number, int):
            return None
        ways = {ast.Eq: "__eq__", ast.NotEq: "__ne__", ast.Gt: "__gt__", ast.GtE: "__ge__"}
        way = {**ways, ast.Lt: "__lt__", ast.LtE: "__le__"}.get(type(op))
        return bool(getattr(one.axes, way)(number)) if way else None

    def axes(self, node: ast.expr) -> bool:
        """p.ndim, p.dim(), len(p.shape), len(p.size())"""
        said = ast.unparse(node)
        param = self.param
        return said in (f"{param}.ndim", f"{param}.dim()", f"len({param}.shape)", f"len({param}.size())")

    def called(self, node: ast.Call, one: Param) -> bool | None:
        func = text(node.func)
        if func in (f"{self.name}.startswith", f"{self.name}.endswith") and len(node.args) == 1:
            given = node.args[0]
            words = given.elts if isinstance(given, ast.Tuple) else [given]
            return self.some([self.word(self.script.constant(word), func.rsplit(".")[-1], one) for word in words])
        if func in ("any", "all") and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
            inner = node.args[0]
            test = inner.elt
            held = self.script.value(inner.generators[0].iter)
            words = list(held[0].items) if len(held) == 1 and held[0].kind == "items" else []
            plain = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In)
            own = isinstance(test, ast.Compare) and text(test.comparators[0]) == self.name != ""
            if func == "any" and plain and own and text(test.left) == text(inner.generators[0].target):  # type: ignore[attr-defined]
                return self.some([self.word(getattr(word, "value", None), "in", one) for word in words])
        return None

    def some(self, found: list[bool | None]) -> bool | None:
        return True if True in found else None if None in found or not found else False

    def word(self, word: object, how: str, one: Param) -> bool | None:
        """A test for a word of the name. What the usual parameters are called beyond their last word is not known."""
        if not isinstance(word, str):
            return None
        if how == "startswith":
            known = one not in USUAL
            first, rest = word.split(".")[0], word.partition(".")[2]
            if not known or (rest and one.name.startswith(f"{first}.") and not one.name.startswith(word)):
                return None
            return one.name.startswith(word)
        if how == "endswith":
            return one.name.endswith(word) if one not in USUAL or word.strip(".") in ("weight", "bias") else None
        deep = one in USUAL and word.strip(".") not in ("weight", "bias")
        return True if word in one.name else None if deep or one.axes == 0 else False


# --- lists for the groups of an optimiser


def in_lists(script: Script) -> Iterator[Hit]:
    """[p for n, p in model.named_parameters() if ...], once for each group."""
    made = [call for call, _ in script.calls_to("torch.optim.", *OPTIMIZERS)]
    found: dict[tuple[Scope, str], list[Any]] = {}
    for kind in (ast.ListComp, ast.GeneratorExp, ast.DictComp):
        for node in script.module.nodes.get(kind, []):
            base, _ = over(source(script, node)) if len(node.generators) == 1 else (None, False)
            if base is not None and text(base) and (for_groups(script, node, made) or handed_out(script, node)):
                found.setdefault((script.scope(node), text(base)), []).append(node)
    for (scope, name), nodes in found.items():
        whole = sum(
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("parameters", "named_parameters")
            and (text(call.func.value) == name or text(call.func.value).startswith(f"{name}."))
            for call in scope.calls
        )
        if whole != len({source(script, node) for node in nodes}) or not all(node.generators[0].ifs for node in nodes):
            continue
        sides = [picker(script, node) for node in nodes]
        if not all(sides) or (len(nodes) == 1 and not leaves_vectors(nodes[0])):
            continue

        def kept(one: Param, sides: list[Any] = sides) -> bool | None:
            parts = [side(one) for side in sides]
            return True if True in parts else None if None in parts else False

        left, sure = missed(script, over(source(script, nodes[0]))[0], kept)
        if left:
            told = f"leaves out {', '.join(left[:3])}, which no other group holds."
            yield Hit(nodes[-1], told, "" if sure and len(nodes) > 1 else "look")


def source(script: Script, node: Any) -> Any:
    """The call that a comprehension reads, also through a list that is kept: named = list(model.named_parameters())."""
    given = node.generators[0].iter
    if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr == "items":
        given = given.func.value
    if isinstance(given, ast.Name):
        held = outward(given.id, script.where(node))
        given = held[0].value if len(held) == 1 and held[0].how == "=" and not held[0].path else None
    if isinstance(given, ast.Call) and text(given.func) in ("list", "tuple", "dict") and len(given.args) == 1:
        given = given.args[0]
    return given


def handed_out(script: Script, node: ast.AST) -> bool:
    """Whether a function returns the list, and what it returns goes into an optimiser."""
    scope = script.scope(node)
    statement = script.statement(node)
    names = [text(target) for target in statement.targets] if isinstance(statement, ast.Assign) else []
    back = [part for given, _ in scope.returns for part in ast.walk(given)]
    if scope.kind != "function" or not (
        node in back or any(isinstance(part, ast.Name) and part.id in names for part in back)
    ):
        return False
    for call, where in script.project.callers(scope):
        home = script.at_home(where)
        at: ast.AST | None = call
        while isinstance(at, ast.expr | ast.keyword):
            at = home.parent(at)
            if isinstance(at, ast.Call) and home.dotted(at.func).startswith("torch.optim."):
                return True
        kept = text(at.targets[0]) if isinstance(at, ast.Assign) else ""
        for other in where.block.scope.calls if kept else ():
            given = home.arg(other, 0, "params")
            if text(given) == kept and home.dotted(other.func).startswith("torch.optim."):
                return True
    return False


def for_groups(script: Script, node: ast.AST, made: list[ast.Call]) -> bool:
    """Whether a list goes into an optimiser: written in its call, or by name in the same function."""
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.stmt):
        if at in made:
            return True
        at = script.parent(at)
    names = [text(target) for target in at.targets] if isinstance(at, ast.Assign) else []
    scope = script.scope(node)
    return any(
        isinstance(part, ast.Name) and part.id in names
        for call in made
        if script.scope(call) is scope
        for part in reaches(script, call, scope)
    )


def reaches(script: Script, call: ast.Call, scope: Scope) -> Iterator[ast.AST]:
    """The names in an optimiser's first argument, and in what that was set to."""
    given = script.arg(call, 0, "params")
    for part in ast.walk(given) if given is not None else ():
        yield part
        if isinstance(part, ast.Name):
            for made in scope.defs.get(part.id, []):
                if made.how == "=" and isinstance(made.value, ast.List):
                    yield from ast.walk(made.value)


def picker(script: Script, node: Any) -> Any:
    """The filter of a comprehension as a question about one parameter."""
    part = node.generators[0]
    pair = part.target.elts if isinstance(part.target, ast.Tuple) and len(part.target.elts) == 2 else None
    name, param = (text(pair[0]), text(pair[1])) if pair else ("", text(part.target))
    if not param or param != text(node.value if isinstance(node, ast.DictComp) else node.elt):
        return None
    tests = Tests(script, name, param)
    whole = part.ifs[0] if len(part.ifs) == 1 else ast.BoolOp(op=ast.And(), values=part.ifs)
    return lambda one: tests.truth(whole, one)


def leaves_vectors(node: Any) -> bool:
    """Whether the one list of an optimiser is told by axes, or by a word that must not be there: to pick a part by
    name is often meant."""
    said = " ".join(ast.unparse(one) for one in node.generators[0].ifs)
    return (
        ".ndim" in said
        or ".dim()" in said
        or ".shape)" in said
        or ("not " in said and any(word in said for word in ("bias", "norm", "weight")))
    )


# --- the parameters of a model


def params(script: Script, value: Value, deep: int = 3) -> list[Param]:
    """The parameters of a model of the project, as far as its layers are known."""
    if value.kind != "instance" or value.cls is None or value.const == "self" or not script.is_module(value.cls):
        return []
    found: list[Param] = []
    for cls in script.values.lineage(value.cls):
        for name, defs in cls.attrs.items():
            made = script.values.defined(defs[0], None) if len(defs) == 1 else ()
            for one in made if len(made) == 1 else ():
                found += of_layer(script, name, one, deep)
    return found


def of_layer(script: Script, name: str, one: Value, deep: int) -> list[Param]:
    last = one.name.rsplit(".", 1)[-1]
    if one.kind != "instance":
        return []
    if one.cls is not None:
        inner = params(script, one, deep - 1) if deep else []
        return [Param(f"{name}.{part.name}", part.axes) for part in inner] or (
            [Param(f"{name}.", 0)] if network(script, one) else []
        )
    if last == "Parameter":
        return [Param(name, axes_of(one))]
    if not one.name.startswith("torch.nn."):
        return []
    if last in NORMS:
        return [Param(f"{name}.weight", 1), Param(f"{name}.bias", 1)]
    if last in WEIGHTS:
        held = [Param(f"{name}.weight", WEIGHTS[last])]
        bias = script.arg(one.node, -1, "bias") if isinstance(one.node, ast.Call) else None
        plain = last != "Embedding" and not (isinstance(bias, ast.Constant) and bias.value is False)
        return [*held, Param(f"{name}.bias", 1)] if plain else held
    return [Param(f"{name}.", 0)] if network(script, one) else []


def axes_of(one: Value) -> int:
    """The number of axes of nn.Parameter(torch.zeros(1, 1, dim))."""
    given: Any = one.node.args[0] if isinstance(one.node, ast.Call) and one.node.args else None
    while isinstance(given, ast.BinOp):
        given = given.left if isinstance(given.left, ast.Call | ast.BinOp) else given.right
    func = text(given.func).rsplit(".", 1)[-1] if isinstance(given, ast.Call) else ""
    if func not in ("zeros", "ones", "randn", "rand", "empty") or given is None or not given.args:
        return 0
    sizes = given.args[0].elts if isinstance(given.args[0], ast.Tuple | ast.List) else given.args
    return 0 if any(isinstance(size, ast.Starred) for size in sizes) else len(sizes)
