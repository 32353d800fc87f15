"""The result of an operation that is not in place is thrown away.

What it sees: a line that only calls masked_fill, clamp, to, detach, squeeze, transpose, softmax or another method or
function of tensors that returns its result, on something that is a tensor; the same of numpy, of frames (dropna, drop,
fillna) and data sets (map, filter); a layer or transform that is only called; `x.at[i].set(...)` of jax,
apply_updates of optax, apply_gradients of flax.
Why it matters: the tensor is unchanged. A mask that is never applied lets a model see its own future; a tensor that
is never moved or detached fails elsewhere.
Silent when: the method works in place (masked_fill_, model.to), it is not known to be a tensor's, or a line outside of
all functions and loops is there to be shown, as in notebooks; a batch with fields moves in place.
Fix: assign the result.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.given import argument
from clew.lint.index import Where
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import Step, said_by, trail

METHODS = frozenset(
    "masked_fill clamp clamp_min clamp_max masked_scatter index_fill detach unsqueeze transpose permute softmax "
    "log_softmax index_copy index_add scatter scatter_add".split()
)
FUNCTIONS = METHODS | frozenset(
    "relu sigmoid tanh exp log sqrt abs flatten reshape squeeze cat stack where normalize dropout layer_norm "
    "leaky_relu gelu".split()
)
AT_METHODS = frozenset("set add multiply divide min max power apply".split())
CAUSES = {"masked_fill": "arch.causal_leak", "detach": "train.graph_retained"}


@rule(
    "CLW404",
    "result-discarded",
    "train.inplace_corruption",
    "certain",
    "",
)
def check(script: Script) -> Iterator[Hit]:
    for statement in script.module.statements.get(ast.Expr, []):
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name = call.func.attr
        if name in AT_METHODS and indexed(call.func.value):
            base = call.func.value.value.value  # type: ignore[attr-defined]
            yield Hit(call, f".at[...].{name} leaves {text(base) or 'its array'} unchanged: the result is discarded.")
            continue
        lost = of_frame(script, call, name) or of_tensor(script, call, name) or of_state(script, call, name)
        if lost:
            yield Hit(
                call,
                f"{name} returns a new {lost} and leaves the old one unchanged: the result is discarded.",
                "likely",
            )
            continue
        if name in NUMPY and script.dotted(call.func) == f"numpy.{name}" and script.arg(call, -1, "out") is None:
            if not expected_to_raise(script, call) and not script.tests:
                yield Hit(call, f"numpy.{name} leaves its input unchanged: the result is discarded.", "likely")
            continue
        if name not in FUNCTIONS and name not in ("to", "cuda"):
            continue
        dotted = script.dotted(call.func)
        if dotted in (f"torch.{name}", f"torch.nn.functional.{name}"):
            if (
                name in FUNCTIONS
                and not shown(script, statement, call)
                and script.arg(call, -1, "out") is None
                and script.arg(call, -1, "inplace") is None
                and not script.starred(call)
                and not expected_to_raise(script, call)
            ):
                yield hit(script, call, script.arg(call, 0, "input"), name)
        elif (
            not dotted
            and (name in METHODS or name in ("to", "cuda"))
            and is_tensor(script, call.func.value, name)
            and not expected_to_raise(script, call)
        ):
            yield hit(script, call, call.func.value, name)

    yield from of_layer(script)


def shown(script: Script, statement: ast.Expr, call: ast.Call) -> bool:
    """torch.softmax(torch.from_numpy(z), 0) as the last line of a notebook's cell: nothing there was to be changed."""
    outside = isinstance(script.parent(statement), ast.Module | None)
    return outside and isinstance(script.arg(call, 0, "input"), ast.Call)


def of_frame(script: Script, call: ast.Call, name: str) -> str:
    """df.dropna(), df.drop(columns=...), dataset.map(...), image.convert(...): each returns a new one."""
    if any(word.arg in ("inplace", "out") for word in call.keywords) or script.starred(call):
        return ""
    assert isinstance(call.func, ast.Attribute)
    if name not in FRAMES and name not in DATASETS:
        return ""
    if expected_to_raise(script, call) or script.dotted(call.func):
        return ""
    kind = made_by(script, call.func.value, script.where(call), 8)
    return kind if (kind == "frame" and name in FRAMES) or (kind == "data set" and name in DATASETS) else ""


def made_by(script: Script, node: Any, where: Where, deep: int) -> str:
    """`frame` or `data set` for what pandas or datasets made, and their own methods since."""
    if deep == 0:
        return ""
    if isinstance(node, ast.Name):
        scope = where.block.scope
        found = set()
        for made in reaching(scope.defs[node.id], where) if node.id in scope.defs else ():
            if made.how == "param":
                calls = script.project.callers(made.value)[:3]
                found |= {made_by(script, argument(call, made.value, node.id), at, deep - 2) for call, at in calls}
            else:
                plain = made.how == "=" and not made.path
                found.add(made_by(script, made.value, made.where, deep - 1) if plain else "")
        return found.pop() if len(found) == 1 else ""
    if isinstance(node, ast.Attribute):
        cls = script.class_of(where.block.scope)
        defs = cls.attrs.get(node.attr, []) if cls is not None and isinstance(node.value, ast.Name) else []
        kinds = {made_by(script, made.value, made.where, deep - 1) if made.how == "=" else "" for made in defs}
        return kinds.pop() if len(kinds) == 1 else ""
    if isinstance(node, ast.Subscript):
        inner = made_by(script, node.value, where, deep - 1)
        column = inner == "frame" and isinstance(node.slice, ast.Constant)
        return "" if column else inner
    if not isinstance(node, ast.Call):
        return ""
    dotted = script.at_home(where).dotted(node.func)
    if dotted.startswith("pandas.") and dotted.rsplit(".", 1)[-1] in READS:
        return "frame"
    if dotted in ("datasets.load_dataset", "datasets.load_from_disk"):
        return "data set"
    chained = isinstance(node.func, ast.Attribute) and node.func.attr in FRAMES | DATASETS | {"copy", "sample", "head"}
    return made_by(script, node.func.value, where, deep - 1) if chained else ""  # type: ignore[attr-defined]


READS = frozenset("read_csv read_parquet read_excel read_json DataFrame concat merge get_dummies read_table".split())


def of_tensor(script: Script, call: ast.Call, name: str) -> str:
    """img.sub(mean).div(std), where img surely is a tensor: something only tensors do is done to it nearby."""
    if name not in PURE or expected_to_raise(script, call) or script.starred(call):
        return ""
    base: ast.AST = call
    while isinstance(base, ast.Call | ast.Attribute):
        if isinstance(base, ast.Call) and not isinstance(base.func, ast.Attribute):
            return ""
        if isinstance(base, ast.Attribute) and base.attr.endswith("_") and not base.attr.endswith("__"):
            return ""  # x.add_(1).mul(2): the first one did change it
        base = base.func if isinstance(base, ast.Call) else base.value
    if not isinstance(base, ast.Name) or script.dotted(base):
        return ""
    where = script.where(call)
    for step in trail(script, base, where, steps=25):
        if tensorial(script, step):
            return "tensor"
    return ""


def tensorial(script: Script, step: Step) -> bool:
    """Whether an expression is something only tensors do."""
    node = step.node
    if not isinstance(node, ast.Call):
        return False
    dotted = said_by(script, step)
    if dotted.startswith("torch."):
        return dotted not in NOT_TENSORS and dotted.count(".") == 1 and not dotted.rsplit(".", 1)[-1][:1].isupper()
    if dotted or not isinstance(node.func, ast.Attribute):
        return False
    name, held = node.func.attr, node.func.value
    maker = script.at_home(step.where).dotted(held.func) if isinstance(held, ast.Call) else ""
    if maker.startswith("torch.nn.") and maker.rsplit(".", 1)[-1][:1].isupper():
        return False  # nn.CrossEntropyLoss().cuda() is a module, which .half() changes in place
    return name in ONLY_TENSORS or (name.endswith("_") and name[:-1] in PURE)


def of_state(script: Script, call: ast.Call, name: str) -> str:
    """state.apply_gradients(grads=g), optax.apply_updates(params, updates): flax and optax change nothing in place."""
    if name == "apply_updates" and script.dotted(call.func) == "optax.apply_updates":
        return "tree of parameters"
    if (
        name == "apply_gradients"
        and any(word.arg == "grads" for word in call.keywords)
        and script.mentions("flax", "jax")
    ):
        return "state"
    return ""


def of_layer(script: Script) -> Iterator[Hit]:
    """self.dropout(x), transform(img), as a line of its own."""
    for statement in script.module.statements.get(ast.Expr, []):
        call = statement.value
        if not isinstance(call, ast.Call) or len(call.args) != 1 or not isinstance(call.args[0], ast.Name):
            continue
        scope = script.scope(call)
        if scope.name not in ("forward", "__getitem__", "__call__") or scope.cls is None:
            continue
        names = script.instances(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else []
        pure = [
            name
            for name in names
            if (name.startswith("torch.nn.") and name.rsplit(".", 1)[-1] in QUIET_LAYERS)
            or (name.startswith("torchvision.transforms.") and scope.name != "forward")
        ]
        inplace = any(
            word.arg == "inplace" for value in script.value(call.func) for word in getattr(value.node, "keywords", ())
        )
        if names and len(pure) == len(names) and not inplace:
            said = text(call.func) or pure[0]
            yield Hit(call, f"{said} leaves {text(call.args[0])} unchanged: the result is discarded.")


QUIET_LAYERS = frozenset(
    "Dropout Dropout2d ReLU GELU LeakyReLU Tanh Sigmoid Softmax LayerNorm BatchNorm1d BatchNorm2d Linear Conv2d "
    "Embedding MaxPool2d AvgPool2d Flatten SiLU ELU GroupNorm".split()
)
NUMPY = frozenset(
    "clip transpose reshape sort abs delete append concatenate where flip roll expand_dims squeeze log sqrt exp pad "
    "moveaxis swapaxes repeat tile stack vstack hstack".split()
)
FRAMES = frozenset(
    "drop dropna fillna drop_duplicates rename reset_index set_index sort_values sort_index replace astype clip assign "
    "shuffle round join merge".split()
)
DATASETS = frozenset("map filter shuffle remove_columns rename_column cast_column with_format".split())
PURE = frozenset(
    "add sub mul div clamp neg abs sqrt exp pow float long half double view reshape flip roll squeeze flatten "
    "contiguous type transpose permute unsqueeze masked_fill normalize softmax sigmoid relu tanh clip detach "
    "clone".split()
)
ONLY_TENSORS = frozenset(
    "float double half long unsqueeze permute contiguous cuda detach masked_fill requires_grad_ type_as "
    "bfloat16".split()
)


def indexed(node: ast.expr) -> bool:
    """x.at[i] of jax."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "at"


def hit(script: Script, call: ast.Call, target: ast.AST | None, name: str) -> Hit:
    said = text(target)
    fix = Fix("assign the result", False, (script.before(call, f"{said} = "),)) if said and "[" not in said else None
    return Hit(
        call,
        f"{name} leaves {said or 'its input'} unchanged: the result is discarded.",
        fix=fix,
        cause=CAUSES.get(name, ""),
    )


def is_tensor(script: Script, node: ast.expr, name: str) -> bool:
    """Whether the receiver surely is a tensor. Modules move in place, so `to` takes more certainty."""
    values = script.value(node)
    made = all(value.kind in ("made", "binop", "unop") for value in values)
    if name in ("to", "cuda"):
        if holds_fields(script, node):
            return False
        if all(value.kind == "element" and value.const and LOADER.search(ast.unparse(value.node)) for value in values):
            return True
        if of_batch(script, node):
            return True
        return all(
            value.kind == "made"
            and (value.name in TENSOR_OPS or str(value.const).startswith("torch."))
            and value.const not in NOT_TENSORS
            for value in values
        )
    if name in (
        "masked_fill",
        "masked_scatter",
        "index_fill",
        "clamp",
        "clamp_min",
        "clamp_max",
        "scatter_add",
        "index_add",
        "unsqueeze",
        "permute",
    ):
        return made or all(
            value.kind in ("made", "binop", "param", "unknown", "element", "attr", "unop") for value in values
        )
    return made and all(
        value.kind != "made" or value.name in TENSOR_OPS or str(value.const).startswith("torch.") for value in values
    )


def holds_fields(script: Script, node: ast.expr) -> bool:
    """Whether a name stands for a batch with fields, such as a BatchEncoding or a graph: those move in place."""
    if not isinstance(node, ast.Name):
        return False
    scope = script.scope(node).node
    for held in ast.walk(scope):
        if isinstance(held, ast.keyword) and held.arg is None and same_name(held.value, node):
            return True
        if isinstance(held, ast.Subscript) and same_name(held.value, node):
            if isinstance(held.slice, ast.Constant) and isinstance(held.slice.value, str):
                return True
        elif isinstance(held, ast.Attribute) and same_name(held.value, node) and held.attr in FIELDS:
            return True
    return False


FIELDS = frozenset("x y edge_index edge_attr batch pos input_ids attention_mask labels text label num_graphs".split())


def same_name(node: ast.AST, name: ast.Name) -> bool:
    return isinstance(node, ast.Name) and node.id == name.id


def of_batch(script: Script, node: ast.expr) -> bool:
    """A name for batch["image"], where `batch` comes out of a loader."""
    where = script.where(node)
    scope = where.block.scope
    made = reaching(scope.defs[node.id], where) if isinstance(node, ast.Name) and node.id in scope.defs else []
    if len(made) != 1 or made[0].how != "=":
        return False
    value = made[0].value
    for step in made[0].path:
        value = value.elts[step] if isinstance(value, ast.Tuple) and 0 <= step < len(value.elts) else None
    if not isinstance(value, ast.Subscript) or not isinstance(value.value, ast.Name):
        return False
    return all(
        one.how == "for" and bool(LOADER.search(ast.unparse(one.value)))
        for one in reaching(scope.defs.get(value.value.id, []), made[0].where) or [made[0]]
    )


LOADER = re.compile(r"load|(^|_)dl|batch", re.IGNORECASE)
TENSOR_OPS = frozenset(
    "linear softmax log_softmax sigmoid relu tanh matmul bmm mean sum exp log tensor randn zeros ones rand "
    "randint arange cat stack masked_fill tril triu full einsum".split()
)
NOT_TENSORS = frozenset(
    ("torch.load", "torch.device", "torch.compile", "torch.hub.load", "torch.jit.load", "torch.Generator")
)


def expected_to_raise(script: Script, call: ast.Call) -> bool:
    """A test that an operation fails, or a timing loop, needs no result."""
    where = script.where(call)
    for block in where.block.chain():
        if block.kind == "try":
            return True
        if block.kind == "with" and isinstance(block.node, ast.With):
            said = " ".join(ast.unparse(item.context_expr) for item in block.node.items)
            if any(word in said for word in ("raises", "assertRaises", "profile", "time", "Time", "warns", "catch")):
                return True
    scope = where.block.scope
    return any(word in scope.name.lower() for word in ("bench", "test", "time", "profile", "warm"))
