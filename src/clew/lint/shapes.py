"""Whether a batch of single numbers lies in a column, (B, 1), or flat, (B,). Anything else is not decided."""

import ast
from typing import Any

from clew.lint import series
from clew.lint.flow import outward, reaching
from clew.lint.given import argument, default_of
from clew.lint.index import Where
from clew.lint.script import Script
from clew.lint.value import Value

ELEMENTWISE = frozenset(
    "relu sigmoid tanh float double half to cuda cpu detach clone abs exp log sqrt square pow clamp contiguous type "
    "requires_grad_ neg softplus astype long int bool byte round gt ge lt le logit sign".split()
)
REDUCTIONS = frozenset("sum mean amax amin prod logsumexp".split())
DEEP = 14
MOST_CALLERS = 4
# With one size these give one axis.
SIZED = ("numpy.random.randn", "numpy.random.rand", "torch.randn", "torch.rand", "numpy.arange", "torch.arange")


def form(script: Script, node: Any, where: Where, deep: int = DEEP) -> str:
    """`column`, `flat`, `number`, or "" when the source does not say."""
    if deep <= 0:
        return ""
    script = script.at_home(where)
    if isinstance(node, ast.Constant):
        return "number"
    if isinstance(node, ast.Name):
        return named(script, node, where, deep)
    if isinstance(node, ast.UnaryOp):
        return form(script, node.operand, where, deep - 1)
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        plain = isinstance(node.comparators[0], ast.Constant | ast.Attribute | ast.UnaryOp)
        plain = plain or form(script, node.comparators[0], where, deep - 1) == "number"
        return form(script, node.left, where, deep - 1) if plain else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return "flat" if form(script, node.right, where, deep - 1) == "flat" else ""
    if isinstance(node, ast.BinOp):
        sides = {form(script, side, where, deep - 1) for side in (node.left, node.right)} - {"number"}
        # Whatever meets a flat batch and fits it leaves it flat.
        return "flat" if "flat" in sides and "column" not in sides else sides.pop() if len(sides) == 1 else ""
    if isinstance(node, ast.Call):
        return called(script, node, where, deep)
    if isinstance(node, ast.Attribute):
        return attribute(script, node, where, deep)
    if isinstance(node, ast.Subscript):
        return subscript(script, node, where, deep)
    return ""


def named(script: Script, node: ast.Name, where: Where, deep: int) -> str:
    found: set[str] = set()
    for made in outward(node.id, where):
        value = at(made) if made.how == "=" else None
        split = part_of_split(script, made)
        if made.how == "=" and made.path == (1,) and series.target(script.at_home(made.where), made.value):
            found.add("flat")
            continue
        if split is not None:
            found.add(form(script, split, made.where, deep - 1))
        elif value is not None:
            found.add(form(script, value, made.where, deep - 1))
        elif made.how == "=" and len(made.path) == 1 and isinstance(made.value, ast.Name):
            found.add(hooked(script, made, deep))
        elif made.how == "=" and made.path and isinstance(made.value, ast.Call):
            found.add(part_of_return(script, made, deep))
        elif made.how == "for":
            found.add(element(script, made.value, made.path, made.where, deep))
        elif made.how == "param":
            found.add(given(script, made, deep))
        else:
            found.add("")
    return found.pop() if len(found) == 1 else ""


def hooked(script: Script, made: Any, deep: int) -> str:
    """y of `x, y = batch` in a Lightning hook, where the only class of the file that makes loaders makes its own."""
    scope = made.where.block.scope
    cls = script.class_of(scope)
    if made.value.id not in scope.params or scope.name not in ("training_step", "validation_step") or cls is None:
        return ""
    makers = [one.methods["train_dataloader"] for one in script.module.classes if "train_dataloader" in one.methods]
    if len(makers) != 1 or len(makers[0].returns) != 1:
        return ""
    given, at_end = makers[0].returns[0]
    return element(script, given, made.path, at_end, deep - 1)


def part_of_return(script: Script, made: Any, deep: int) -> str:
    """Of `x, y = load(path)` what the project's function returns for y."""
    values = script.values.value(made.value.func, made.where, None)
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    if len(values) == 1 and values[0].kind == "instance" and values[0].cls is not None:
        func = values[0].cls.methods.get("forward")  # logits, value = model(x)
    if func is None or len(func.returns) != 1 or func.yields or len(made.path) != 1:
        return ""
    back, where = func.returns[0]
    if not isinstance(back, ast.Tuple) or not 0 <= made.path[0] < len(back.elts):
        return ""
    return form(script, back.elts[made.path[0]], where, deep - 1)


def given(script: Script, made: Any, deep: int) -> str:
    """What the callers of a function hand over for a parameter, when they all hand over the same."""
    func = made.value
    found: set[str] = set()
    for call, where in script.project.callers(func)[:MOST_CALLERS]:
        arg = argument(call, func, made.name)
        found.add(form(script, arg, where, deep - 2) if arg is not None else "")
    return found.pop() if len(found) == 1 else ""


def part_of_split(script: Script, made: Any) -> Any:
    """Of `a, b, c, d = train_test_split(x, y)` what c was divided from."""
    call = made.value
    if made.how != "=" or len(made.path) != 1 or not isinstance(call, ast.Call) or script.starred(call):
        return None
    if script.dotted(call.func) != "sklearn.model_selection.train_test_split":
        return None
    place = made.path[0] // 2
    return call.args[place] if 0 <= place < len(call.args) else None


def attribute(script: Script, node: ast.Attribute, where: Where, deep: int) -> str:
    if node.attr == "values":
        base = node.value
        held = series.part(script, base, where)
        if held:
            return held
        if isinstance(base, ast.Call) and isinstance(base.func, ast.Attribute) and base.func.attr in ("max", "min"):
            return along(script, base)
    if node.attr == "data":
        return form(script, node.value, where, deep - 1)
    return kept(script, node, where, deep)


def kept(script: Script, node: ast.Attribute, where: Where, deep: int) -> str:
    """An attribute of self that is set once."""
    cls = script.class_of(where.block.scope)
    defs = cls.attrs.get(node.attr, []) if cls is not None and isinstance(node.value, ast.Name) else []
    if len(defs) != 1 or defs[0].how != "=" or defs[0].path:
        return ""
    return form(script, defs[0].value, defs[0].where, deep - 1)


def along(script: Script, call: ast.Call) -> str:
    """A reduction over the last axis of a batch of rows."""
    given = script.arg(call, 0, "dim")
    if script.constant(script.arg(call, 1, "keepdim")) is True:
        return "column"
    return "flat" if script.constant(given) in (1, -1) and not isinstance(script.constant(given), bool) else ""


def called(script: Script, node: ast.Call, where: Where, deep: int) -> str:
    func = node.func
    dotted = script.dotted(func)
    if dotted in (
        "torch.tensor",
        "torch.FloatTensor",
        "torch.as_tensor",
        "torch.Tensor",
        "torch.from_numpy",
        "numpy.array",
        "numpy.asarray",
    ):
        return wrapped(script, node, where, deep)
    if isinstance(func, ast.Attribute) and func.attr in ("to_numpy", "to_list", "tolist") and not dotted:
        return series.part(script, func.value, where) or form(script, func.value, where, deep - 1)
    if dotted in series.NUMPY and node.args:
        return form(script, node.args[0], where, deep - 1)
    if dotted in SIZED and len(node.args) == 1 and isinstance(node.args[0], ast.Constant | ast.Name | ast.BinOp):
        return "flat" if sized(script, node.args[0], where) else ""
    if isinstance(func, ast.Attribute) and (not dotted or dotted.startswith("torch.")):
        name = func.attr
        base = script.arg(node, 0, "input") if dotted else func.value
        args = node.args[1:] if dotted else node.args
        found = method(script, name, base, args, node, where, deep) if base is not None else ""
        if found != "?":
            return found
    return of_function(script, node, where, deep) or of_layer(script, node, where)


def sized(script: Script, node: Any, where: Where) -> bool:
    """Whether a size is one number, and not the size of another tensor."""
    if isinstance(node, ast.BinOp):
        return True
    return not any(value.kind in ("items", "made", "attr") for value in script.values.value(node, where, None))


def of_function(script: Script, node: ast.Call, where: Where, deep: int) -> str:
    """What a function of the project returns, when it does so in one place."""
    if not isinstance(node.func, ast.Name | ast.Attribute):
        return ""
    values = script.values.value(node.func, where, None)
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    if func is None or len(func.returns) != 1 or func.yields:
        return ""
    given, at_end = func.returns[0]
    return form(script, given, at_end, deep - 1)


def method(script: Script, name: str, base: Any, args: list[Any], node: ast.Call, where: Where, deep: int) -> str:
    numbers = [script.constant(arg) for arg in args] or [script.constant(word.value) for word in node.keywords[:1]]
    if name == "unsqueeze":
        return "column" if numbers in ([1], [-1]) and form(script, base, where, deep - 1) == "flat" else ""
    if name in ("view", "reshape"):
        return {(-1, 1): "column", (-1,): "flat"}.get(tuple(numbers), "") if all(map(series.plain, numbers)) else ""
    if name in ("flatten", "ravel") and not args:
        return "flat"
    if name == "squeeze":
        inner = form(script, base, where, deep - 1)
        return "flat" if inner in ("column", "flat") else ""
    if name in ELEMENTWISE:
        return form(script, base, where, deep - 1)
    if name in REDUCTIONS:
        return along(script, node) if not script.dotted(node.func) else ""
    if name == "gather":
        index = args[1] if len(args) == 2 and numbers[0] == 1 else None
        if index is None:
            return ""
        return "column" if stood_up(script, index) else form(script, index, where, deep - 1)
    if name == "log_prob":
        return ""
    return "?"


def stood_up(script: Script, node: Any) -> bool:
    """actions.unsqueeze(1), actions[:, None]: where an index has two axes, the second of them is one wide."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("long", "to"):
        return stood_up(script, node.func.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        return [script.constant(arg) for arg in node.args] in ([1], [-1])
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
        last = node.slice.elts[1]
        return isinstance(last, ast.Constant) and last.value is None
    return False


TURNS = ("builtins.list", "builtins.reversed")


def wrapped(script: Script, node: ast.Call, where: Where, deep: int) -> str:
    if not node.args:
        return ""
    given = node.args[0]
    inner = form(script, given, where, deep - 1)
    if inner in ("flat", "column"):
        return inner
    while isinstance(given, ast.Subscript) and isinstance(given.slice, ast.Slice):
        given = given.value  # a list turned round
    while isinstance(given, ast.Call) and script.dotted(given.func) in TURNS and given.args:
        given = given.args[0]
    if isinstance(given, ast.ListComp) and series.numbers(script, given):
        return "flat"
    values = script.values.value(given, where, None)
    return "flat" if len(values) == 1 and values[0].kind == "items" and numbers_only(script, values[0]) else ""


def numbers_only(script: Script, value: Value) -> bool:
    """Whether a list holds plain numbers: written out, or appended one by one."""
    if value.where is None or value.where.block.scope.module is not script.module or isinstance(value.node, ast.Dict):
        return False
    if value.items:
        return all(form(script, item, value.where, 4) == "number" for item in value.items)
    scope = value.where.block.scope
    name = next((name for name, defs in scope.defs.items() if any(grows(made, value) for made in defs)), "")
    added = [
        call.args[-1]
        for call in scope.calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ("append", "insert")
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == name
        and call.args
    ]
    return bool(added) and all(summed(script, item, scope.defs) for item in added)


def grows(made: Any, value: Value) -> bool:
    """Whether a name was given this list, alone or beside others."""
    return made.how == "=" and at(made) is value.node


def summed(script: Script, node: Any, defs: Any) -> bool:
    """Whether a name starts as a number and is only ever computed further."""
    if not isinstance(node, ast.Name) or node.id not in defs:
        return isinstance(script.constant(node), int | float)
    for made in defs[node.id]:
        first = at(made)
        held = defs[first.id][0] if isinstance(first, ast.Name) and first.id in defs else None
        if held is not None and held.how == "param":
            first = default_of(held.value, held.name)
        if isinstance(first, ast.AST) and isinstance(script.constant(first), int | float):
            return True
    return False


def at(made: Any) -> Any:
    value = made.value
    for step in made.path:
        value = value.elts[step] if isinstance(value, ast.Tuple) and 0 <= step < len(value.elts) else None
    return value


def subscript(script: Script, node: ast.Subscript, where: Where, deep: int) -> str:
    index = node.slice
    if isinstance(index, ast.Tuple) and len(index.elts) == 2 and isinstance(index.elts[0], ast.Slice):
        if series.table(script, node.value, where, deep - 1):
            return series.of_table(script, index.elts[1])
        last = script.constant(index.elts[1], "?")
        if last is None:
            return "column" if form(script, node.value, where, deep - 1) == "flat" else ""
        return "flat" if last in (0, -1) and form(script, node.value, where, deep - 1) == "column" else ""
    if isinstance(index, ast.Constant) and index.value == 0 and isinstance(node.value, ast.Call):
        inner = node.value.func
        if isinstance(inner, ast.Attribute) and inner.attr in ("max", "min"):
            return along(script, node.value) if not script.dotted(inner) else ""
    if isinstance(index, ast.Constant) and isinstance(index.value, str):
        return keyed(script, node.value, index.value, where, deep) or series.of_frame(script, node, where)
    if isinstance(index, ast.List) and len(index.elts) == 1:
        return series.of_frame(script, node, where)
    if isinstance(index, ast.Name | ast.Slice):
        return form(script, node.value, where, deep - 1)
    if isinstance(index, ast.Subscript) and isinstance(index.slice, ast.Slice):
        return form(script, node.value, where, deep - 1)  # y[order[i : i + n]]
    return ""


def keyed(script: Script, base: Any, key: str, where: Where, deep: int) -> str:
    """batch["y"] of a loop over a loader whose data set returns a dict."""
    scope = where.block.scope
    defs = reaching(scope.defs[base.id], where) if isinstance(base, ast.Name) and base.id in scope.defs else []
    if len(defs) != 1 or defs[0].how != "for" or defs[0].path not in ((), (1,)):
        return ""
    for held in loaded(script, defs[0].value, defs[0].where):
        method = held.cls.methods.get("__getitem__") if held.cls is not None else None
        given, at_end = method.returns[0] if method is not None and len(method.returns) == 1 else (None, where)
        if not isinstance(given, ast.Dict) or method is None:
            return ""
        for name, item in zip(given.keys, given.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return of_item(script, item, method, at_end, deep)
    return ""


def loaded(script: Script, iterable: Any, where: Where) -> list[Value]:
    """The data sets behind a loop over a loader."""
    if isinstance(iterable, ast.Call) and script.dotted(iterable.func) in ("builtins.enumerate", "tqdm.tqdm"):
        return loaded(script, iterable.args[0], where) if iterable.args else []
    found: list[Value] = []
    for value in script.values.value(iterable, where, None):
        if value.name.endswith(".DataLoader") and value.where is not None:
            data = script.arg(value.node, 0, "dataset")
            found += script.values.value(data, value.where, None) if data is not None else ()
    return found


def of_layer(script: Script, node: ast.Call, where: Where) -> str:
    """What comes out of a network whose last layer has one unit."""
    values = script.values.value(node, where, None)
    if len(values) != 1 or values[0].name != "linear" or values[0].owner is None:
        return ""
    # The network itself may have taken the column apart; only a call that ends in the layer is certain.
    if squeezed(script, node, where):
        return by_forward(script, node, where)
    made = values[0].owner.node
    if not isinstance(made, ast.Call) or not values[0].owner.name.endswith("Linear"):
        return ""
    return "column" if script.constant(script.arg(made, 1, "out_features")) == 1 else ""


def by_forward(script: Script, node: ast.Call, where: Where) -> str:
    """What the one return of a forward of the project is."""
    values = script.values.value(node.func, where, None)
    forward = values[0].cls.methods.get("forward") if len(values) == 1 and values[0].cls is not None else None
    if forward is None or len(forward.returns) != 1:
        return ""
    given, at_end = forward.returns[0]
    last = given.func.attr if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) else ""
    return form(script, given, at_end, 6) if last in ("squeeze", "view", "reshape", "unsqueeze", "flatten") else ""


def squeezed(script: Script, node: ast.Call, where: Where) -> bool:
    """Whether a forward of the project reshapes what the layer gave before it returns it."""
    for called in script.values.value(node.func, where, None):
        if (
            called.cls is None
            and called.node is not None
            and "Flatten(" in ast.unparse(called.node).replace("Flatten()", "")
        ):
            return True
        if called.cls is None or "forward" not in called.cls.methods:
            continue
        forward = called.cls.methods["forward"]
        if any("Flatten(0" in ast.unparse(call) for method in called.cls.methods.values() for call in method.calls):
            return True
        if any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ("squeeze", "view", "reshape", "flatten", "mean", "sum", "select", "ravel")
            for call in forward.calls
        ) or any(isinstance(given, ast.Subscript) for given, _ in forward.returns):
            return True
    return False


def element(script: Script, iterable: Any, path: tuple[int, ...], where: Where, deep: int) -> str:
    """What a loop over a loader gives at one place of its batches."""
    if (
        isinstance(iterable, ast.Call)
        and script.dotted(iterable.func) in ("builtins.enumerate", "tqdm.tqdm")
        and iterable.args
    ):
        if script.dotted(iterable.func) == "builtins.enumerate":
            return element(script, iterable.args[0], path[1:], where, deep - 1) if path[:1] == (1,) else ""
        return element(script, iterable.args[0], path, where, deep - 1)
    for value in script.values.value(iterable, where, None):
        if not value.name.endswith(".DataLoader") or value.where is None:
            return ""
        joined = script.arg(value.node, -1, "collate_fn")
        if joined is not None:
            return collated(script, joined, path, value.where, deep)
        data = script.arg(value.node, 0, "dataset")
        for held in script.values.value(data, value.where, None) if data is not None else ():
            if len(path) == 1 and held.cls is not None:
                return example(script, held, path[0], deep)
            inside = len(path) == 1 and held.name.endswith(".TensorDataset") and 0 <= path[0] < len(held.node.args)
            if inside and held.where is not None:
                return form(script, held.node.args[path[0]], held.where, deep - 1)
    return ""


def collated(script: Script, node: Any, path: tuple[int, ...], where: Where, deep: int) -> str:
    """What a function of the project that puts batches together returns at one place."""
    values = script.values.value(node, where, None)
    func = values[0].func if len(values) == 1 and values[0].kind == "function" else None
    given, at_end = func.returns[0] if func is not None and len(func.returns) == 1 else (None, where)
    if not isinstance(given, ast.Tuple) or len(path) != 1 or not 0 <= path[0] < len(given.elts):
        return ""
    return form(script, given.elts[path[0]], at_end, deep - 1)


def example(script: Script, held: Value, place: int, deep: int) -> str:
    """What batches of a data set of the project hold, from `return self.x[i], self.y[i]` in its __getitem__."""
    method = held.cls.methods.get("__getitem__") if held.cls is not None else None
    if method is None or len(method.returns) != 1:
        return ""
    given, where = method.returns[0]
    if not isinstance(given, ast.Tuple) or not 0 <= place < len(given.elts):
        return ""
    return of_item(script, given.elts[place], method, where, deep)


def of_item(script: Script, item: Any, method: Any, where: Where, deep: int) -> str:
    """What a batch of one part of an example is: flat for single numbers, a column for lists of one."""
    if isinstance(item, ast.Name) and item.id in method.defs:
        made = reaching(method.defs[item.id], where)
        if len(made) == 1 and made[0].how == "=":
            item, where = at(made[0]), made[0].where
    if isinstance(item, ast.Subscript) and isinstance(item.slice, ast.Name) and item.slice.id in method.params:
        return form(script, item.value, where, deep - 1)
    home = script.at_home(where)
    if isinstance(item, ast.Call) and home.dotted(item.func) in ("torch.tensor", "torch.FloatTensor") and item.args:
        inner = item.args[0]
        if isinstance(inner, ast.List) and len(inner.elts) == 1:
            return "column"
        if isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Name) and inner.slice.id in method.params:
            return form(script, inner.value, where, deep - 1)
    return "flat" if single(home, item) else ""


def single(script: Script, node: Any) -> bool:
    """One number of one example: torch.tensor(row["age"]), float(row[3]). A list there would broadcast as well."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    inner = node.args[0]
    dotted = script.dotted(node.func)
    if dotted in ("builtins.float", "numpy.float32"):
        return True
    if dotted not in ("torch.tensor", "torch.as_tensor"):
        return False
    keyed = isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant)
    return keyed or (isinstance(inner, ast.Call) and script.dotted(inner.func) in ("builtins.float", "builtins.int"))
