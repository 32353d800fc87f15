"""Whether gradients can flow through an expression, and what cuts them if not."""

import ast
import re
from typing import Any, NamedTuple

from clew.lint.flow import reaching
from clew.lint.index import Def, Scope, Where
from clew.lint.script import Script, text

LEAVING = {
    "item": "item",
    "numpy": "numpy",
    "tolist": "numpy",
    "detach": "detach",
    "detach_": "detach",
    "argmax": "argmax",
    "argmin": "argmax",
    "argsort": "argmax",
    "round": "round",
    "sign": "round",
    "floor": "round",
    "ceil": "round",
    "long": "integer",
    "int": "integer",
    "byte": "integer",
    "bool": "integer",
    "eq": "compare",
    "ne": "compare",
    "gt": "compare",
    "lt": "compare",
    "ge": "compare",
    "le": "compare",
    "multinomial": "argmax",
}
WRAPPING = frozenset(
    "torch.tensor torch.FloatTensor torch.Tensor torch.as_tensor torch.from_numpy torch.scalar_tensor "
    "torch.DoubleTensor torch.LongTensor torch.cuda.FloatTensor".split()
)
# Methods and functions whose result has a gradient exactly when what they work on has one.
THROUGH = frozenset(
    "mean sum abs pow sqrt exp log log1p square norm max min clamp clamp_min clamp_max relu sigmoid tanh softmax "
    "log_softmax float double half to cuda cpu view reshape squeeze unsqueeze flatten mul add sub div neg stack cat "
    "type_as contiguous clone logsumexp std var prod requires_grad_ type transpose permute expand".split()
)
LOSSES = frozenset(
    "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy kl_div "
    "binary_cross_entropy_with_logits cosine_similarity gaussian_nll_loss poisson_nll_loss".split()
)


# What takes the loss as an argument of its backward; a tensor's own backward takes a gradient.
HANDLERS = re.compile(r"accelerator|fabric|engine|self$|scaler|optim|manager|trainer|strategy|plugin", re.IGNORECASE)


LOADER = re.compile(r"loader|(^|_)dl\b", re.IGNORECASE)
NAMED_LOSS = re.compile(r"^(criterion|crit|loss_fn|loss_func|loss_function|criterion_\w+)$")


PLAIN = ("constant", "number")


class Cut(NamedTuple):
    """Why no gradient comes through, and the node that stops it."""

    reason: str  # item numpy detach argmax round integer compare data wrapped no_grad constant number
    node: Any


def cut(script: Script, node: Any, where: Where, fuel: int = 60) -> Cut | None:
    """What stops every gradient on its way through `node`, or None when one may get through."""
    return _Cutter(script, fuel).cut(node, where)


class _Cutter:
    def __init__(self, script: Script, fuel: int) -> None:
        self.script, self.fuel = script, fuel

    def cut(self, node: Any, where: Where) -> Cut | None:
        self.fuel -= 1
        if self.fuel < 0:
            return None
        if isinstance(node, ast.Constant):
            return Cut("constant", node)
        if isinstance(node, ast.Name):
            return self.named(node, where)
        if isinstance(node, ast.BinOp):
            return self.both(node.left, node.right, where)
        if isinstance(node, ast.UnaryOp):
            return Cut("compare", node) if isinstance(node.op, ast.Not) else self.cut(node.operand, where)
        if isinstance(node, ast.Compare):
            return Cut("compare", node)
        if isinstance(node, ast.Call):
            return self.called(node, where)
        if isinstance(node, ast.Attribute) and node.attr == "data" and not isinstance(node.value, ast.Attribute):
            return Cut("data", node)
        if isinstance(node, ast.Subscript):
            return self.cut(node.value, where)
        if isinstance(node, ast.IfExp):
            return self.both(node.body, node.orelse, where)
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            parts = [self.cut(item, where) for item in node.elts]
            return next((part for part in parts if part and part.reason not in PLAIN), parts[0]) if all(parts) else None
        return None

    def both(self, left: Any, right: Any, where: Where) -> Cut | None:
        first = self.cut(left, where)
        second = self.cut(right, where) if first is not None else None
        if first is None or second is None:
            return None
        return first if second.reason in PLAIN else second if first.reason in PLAIN else first

    def named(self, node: ast.Name, where: Where) -> Cut | None:
        scope = where.block.scope
        if node.id not in scope.defs or self.script.module is not scope.module:
            return None
        found = None
        for made in reaching(scope.defs[node.id], where):
            if made.path == (1,) and made.how == "=" and indices(made.value):
                found = found or Cut("argmax", made.value)
                continue
            if of_batch(made, scope):
                found = found or Cut("constant", node)
                continue
            if made.path or made.how not in ("=", "aug"):
                return None
            if made.how == "aug":
                value = made.value.value
                stopped = self.cut(value, made.where)
                if stopped is None:
                    return None
            else:
                value = made.value
                off = self.script.grad_off(made.where)
                # A value made under no_grad has no gradient; one that is only named there may.
                if (
                    off is not None
                    and off is not self.script.grad_off(where)
                    and isinstance(value, ast.Call | ast.BinOp)
                ):
                    stopped = Cut("no_grad", off)
                else:
                    stopped = self.cut(value, made.where)
                if stopped is None:
                    return None
            if found is None or found.reason in PLAIN:
                found = stopped
        return found

    def called(self, node: ast.Call, where: Where) -> Cut | None:
        func = node.func
        dotted = self.script.dotted(func)
        if dotted in WRAPPING:
            return self.wrapped(node, where)
        if dotted == "torch.autograd.Variable" and node.args:
            inner = self.cut(node.args[0], where)
            return Cut("wrapped", node) if inner is not None and inner.reason == "data" else inner
        if dotted.startswith(("numpy.", "math.")):
            return Cut("numpy" if computed(self.script, node, where) else "number", node)
        if dotted in ("builtins.float", "builtins.int"):
            return Cut("item", node) if node.args and not isinstance(node.args[0], ast.Constant) else None
        last = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
        method = isinstance(func, ast.Attribute) and not dotted
        library = dotted.startswith("torch.")
        off = self.switched_off(func, where)
        if off is not None:
            return Cut("no_grad", off)
        own = self.of_function(node, where)
        if own is not None:
            return own
        if self.is_loss(func, where) and node.args:
            return self.against(node.args[0], self.script.arg(node, 1, "target"), where)
        if not method and not library:
            return None
        operand = func.value if method and isinstance(func, ast.Attribute) else self.script.arg(node, 0, "input")
        if operand is None:
            return None
        if last in LEAVING and not (last in ("long", "int", "byte", "bool") and not method):
            return Cut(LEAVING[last], node)
        if last in LOSSES and library:
            return self.against(operand, self.script.arg(node, 1, "target"), where)
        if last in THROUGH:
            others = [arg for arg in node.args if arg is not operand and not isinstance(arg, ast.Constant)]
            if others and last not in ("mean", "sum", "view", "reshape", "to", "stack", "cat", "transpose", "permute"):
                return None
            return self.cut(operand, where)
        return None

    def is_loss(self, func: ast.expr, where: Where) -> bool:
        """Whether a loss object of torch is called."""
        if not isinstance(func, ast.Name | ast.Attribute):
            return False
        values = self.script.values.value(func, where, None)
        name = text(func).rsplit(".", 1)[-1]
        if NAMED_LOSS.match(name) and all(value.kind in ("param", "unknown", "attr") for value in values):
            return True
        return all(value.kind == "instance" and value.name.startswith("torch.nn.") for value in values) and all(
            value.name.endswith("Loss") for value in values
        )

    def switched_off(self, func: ast.expr, where: Where) -> ast.AST | None:
        """The no_grad that decorates the project's own function that is called."""
        if not isinstance(func, ast.Name | ast.Attribute):
            return None
        for value in self.script.values.value(func, where, None):
            if value.kind == "function" and value.func is not None and value.func.module is self.script.module:
                for decorator in value.func.decorators():
                    if self.script.grad_state(decorator) is False:
                        return decorator
        return None

    def of_function(self, node: ast.Call, where: Where) -> Cut | None:
        """What stops every gradient in what a function of the project returns. Its parameters may carry one."""
        if not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        values = self.script.values.value(node.func, where, None)
        func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
        if func is None or not func.returns or func.yields or self.fuel <= 0:
            return None
        here = func.module is self.script.module
        script = self.script if here else Script(func.module, self.script.project, "")
        inner = _Cutter(script, self.fuel - 1)
        parts = [inner.cut(given, at) for given, at in func.returns]
        self.fuel = min(self.fuel, inner.fuel)
        found = [part for part in parts if part is not None and part.reason not in ("constant", "number")]
        if not found or not all(parts):
            return None
        # A tensor built anew in another file is reported there.
        return found[0] if here else Cut(found[0].reason, node) if found[0].reason != "wrapped" else None

    def against(self, prediction: Any, target: Any, where: Where) -> Cut | None:
        """A loss has a gradient when one of its sides has; targets that are plainly labels have none."""
        stopped = self.cut(prediction, where)
        if stopped is None or target is None:
            return None
        words = {part.id.lower() for part in ast.walk(target) if isinstance(part, ast.Name)}
        if words and all(word.startswith(("label", "target", "y", "gt", "truth")) for word in words):
            return stopped
        other = self.cut(target, where)
        return stopped if other is not None or from_loader(target, where) else None

    def wrapped(self, node: ast.Call, where: Where) -> Cut | None:
        """A tensor built anew is a leaf. That is a fault when what it is built from had been computed."""
        if not node.args:
            return Cut("constant", node)
        if self.script.dotted(node.func) == "torch.as_tensor" and not isinstance(node.args[0], ast.List | ast.Tuple):
            # Of a tensor it hands back that tensor, with its history.
            inner = self.cut(node.args[0], where)
            return Cut("wrapped", node) if inner is not None and inner.reason in ("item", "numpy", "detach") else inner
        return Cut("wrapped", node) if computed(self.script, node.args[0], where) else Cut("number", node)


def of_batch(made: Def, scope: Scope) -> bool:
    """Whether a name is data: what a loop over a loader gives, or a part of the parameter `batch`."""
    if made.how == "for":
        return bool(LOADER.search(ast.unparse(made.value)))
    whole = made.value.id if made.how == "=" and made.path and isinstance(made.value, ast.Name) else ""
    return whole == "batch" and whole in scope.params


def from_loader(node: Any, where: Where) -> bool:
    """Whether all names of an expression are what a loop gives: a batch has no gradient."""
    defs = where.block.scope.defs
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    return bool(names) and all(name in defs and all(made.how == "for" for made in defs[name]) for name in names)


def indices(node: Any) -> bool:
    """`_, preds = torch.max(out, 1)`: the second result is a position."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("max", "min", "topk", "sort", "median")
    )


def computed(script: Script, node: Any, where: Where, deep: int = 20) -> bool:
    """Whether an expression comes out of a network or a loss, rather than out of data."""
    if deep == 0:
        return False
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("detach", "item"):
            return True
        through = isinstance(node.func, ast.Attribute) and node.func.attr in GATHERS
        if through and computed(script, node.func.value, where, deep - 1):  # type: ignore[attr-defined]
            return True
        dotted = script.at_home(where).dotted(node.func)
        if dotted.startswith(("numpy.", "math.")) or dotted in NUMBERS:
            return any(computed(script, part, where, deep - 1) for part in node.args)
        if isinstance(node.func, ast.Attribute) and not dotted and node.func.attr in THROUGH:
            return computed(script, node.func.value, where, deep - 1)
        if dotted.startswith("torch.") and dotted.rsplit(".", 1)[-1] in THROUGH:
            return any(computed(script, part, where, deep - 1) for part in node.args)
        if dotted.rsplit(".", 1)[-1] in LOSSES and dotted.startswith("torch."):
            return True
        called = script.values.value(node.func, where, None)
        func = called[0].func if len(called) == 1 and called[0].kind == "function" else None
        if func is not None and func.returns and not func.yields:
            there = script if func.module is script.module else Script(func.module, script.project, "")
            return all(computed(there, given, at, deep - 2 if deep > 2 else 0) for given, at in func.returns)
        if MODELS.search(text(node.func)) and all(value.kind in ("param", "attr", "unknown") for value in called):
            return bool(node.args or node.keywords)
        return any(
            value.kind == "instance"
            and (value.name.startswith("torch.nn.") or (value.cls is not None and script.is_module(value.cls)))
            for value in called
        )
    if isinstance(node, ast.BinOp):
        return any(computed(script, part, where, deep - 1) for part in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return computed(script, node.operand, where, deep - 1)
    if isinstance(node, ast.Subscript):
        return computed(script, node.value, where, deep - 1)
    if isinstance(node, ast.IfExp):
        return any(computed(script, part, where, deep - 1) for part in (node.body, node.orelse))
    if isinstance(node, ast.List | ast.Tuple):
        return any(computed(script, part, where, deep - 1) for part in node.elts)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return computed(script, node.elt, where, deep - 1)
    if isinstance(node, ast.DictComp):
        return computed(script, node.value, where, deep - 1)
    if isinstance(node, ast.Name):
        scope = where.block.scope
        source = each_of(node, scope) if node.id in scope.module.comprehended else None
        if source is not None:
            return computed(script, source, where, deep - 1)
        if node.id in scope.defs:
            for call in scope.calls:
                appended = text(call.func) == f"{node.id}.append" and bool(call.args)
                if appended and computed(script, call.args[0], script.where(call), deep - 1):
                    return True
            return any(
                made.how in ("=", "aug")
                and computed(script, made.value.value if made.how == "aug" else at(made), made.where, deep - 1)
                for made in reaching(scope.defs[node.id], where)
            )
    return False


def each_of(node: ast.Name, scope: Scope) -> Any:
    """What a comprehension's own variable is taken from: parts of `for k, v in parts.items()`; nothing for the key."""
    at = scope.module.up.get(node)
    while at is not None and isinstance(at, ast.expr):
        for generator in getattr(at, "generators", ()):
            target = generator.target
            names = [text(item) for item in target.elts] if isinstance(target, ast.Tuple) else [text(target)]
            if node.id in names:
                call = generator.iter
                if isinstance(call, ast.Call) and text(call.func) == "zip" and len(call.args) == len(names):
                    return call.args[names.index(node.id)]
                pairs = isinstance(call, ast.Call) and text(call.func).endswith((".items", "enumerate"))
                return None if pairs and names[0] == node.id else call
        at = scope.module.up.get(at)
    return None


GATHERS = ("cpu", "numpy", "mean", "sum", "items", "values")
NUMBERS = frozenset(f"builtins.{name}" for name in ("float", "max", "min", "sum", "abs", "list", "round"))
MODELS = re.compile(r"(^|[._])(model|net|network|classifier|encoder|critic|actor)$", re.I)


def at(made: Def) -> Any:
    """The part of a tuple that a name was given."""
    value = made.value
    for step in made.path:
        inside = isinstance(value, ast.Tuple | ast.List) and 0 <= step < len(value.elts)
        value = value.elts[step] if inside else ast.Constant(None)
    return value


class End(NamedTuple):
    """Where a loss is handed over to autograd: the expression, the place, and what cuts it off, if anything does."""

    node: Any
    where: Where
    cut: Cut | None


def ends(script: Script) -> list[End]:
    """The losses of the file: what `backward` is called on, and what Lightning and the HF Trainer are given."""
    if "ends" not in script.known:
        script.known["ends"] = [End(node, where, cut(script, node, where)) for node, where in _given(script)]
    found: list[End] = script.known["ends"]
    return found


def _given(script: Script) -> list[tuple[Any, Where]]:
    found: list[tuple[Any, Where]] = []
    for call in script.calls("backward", "manual_backward"):
        if not isinstance(call.func, ast.Attribute):
            continue
        base = call.func.value
        if call.args and HANDLERS.search(text(base)):
            base = call.args[0]  # accelerator.backward(loss)
        if (
            isinstance(base, ast.Call)
            and isinstance(base.func, ast.Attribute)
            and base.func.attr == "scale"
            and base.args
        ):
            base = base.args[0]  # scaler.scale(loss).backward()
        found.append((base, script.where(call)))
    for scope in script.module.scopes:
        # What steps by itself hands back a number to log.
        manual = script.mentions("manual_backward", "automatic_optimization") or any(
            isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in scope.calls
        )
        if scope.cls is not None and scope.name in ("training_step", "compute_loss") and not manual:
            found += [pair for pair in scope.returns if not isinstance(pair[0], ast.Constant | ast.Dict | ast.Tuple)]
    return found
