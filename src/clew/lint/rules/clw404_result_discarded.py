"""The result of an operation that is not in place is thrown away.

What it sees: a line that only calls masked_fill, clamp, to, detach, squeeze, transpose, softmax or another method or
function of tensors that returns its result, on something that is a tensor; `x.at[i].set(...)` of jax.
Why it matters: the tensor is unchanged. A mask that is never applied lets a model see its own future; a tensor that
is never moved or detached fails elsewhere.
Silent when: the method works in place (masked_fill_, model.to), or it is not known to be a tensor's.
Fix: assign the result.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.flow import reaching
from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

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
    " ".join(sorted(METHODS | FUNCTIONS | {"to", "cuda", "at"})),
)
def check(script: Script) -> Iterator[Hit]:
    for statement in script.module.statements.get(ast.Expr, []):
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name = call.func.attr
        if name in AT_METHODS and indexed(call.func.value):
            base = call.func.value.value.value  # type: ignore[attr-defined]
            yield Hit(call, f".at[...].{name} leaves {text(base) or 'its array'} as it was: the result is thrown away.")
            continue
        if name not in FUNCTIONS and name not in ("to", "cuda"):
            continue
        dotted = script.dotted(call.func)
        if dotted in (f"torch.{name}", f"torch.nn.functional.{name}"):
            if (
                name in FUNCTIONS
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


def indexed(node: ast.expr) -> bool:
    """x.at[i] of jax."""
    return isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "at"


def hit(script: Script, call: ast.Call, target: ast.AST | None, name: str) -> Hit:
    said = text(target)
    fix = Fix("assign the result", False, (script.before(call, f"{said} = "),)) if said and "[" not in said else None
    return Hit(
        call,
        f"{name} leaves {said or 'its input'} as it was: the result is thrown away.",
        fix=fix,
        cause=CAUSES.get(name, ""),
    )


def is_tensor(script: Script, node: ast.expr, name: str) -> bool:
    """Whether the receiver surely is a tensor. Modules move in place, so `to` takes more certainty."""
    values = script.value(node)
    made = all(value.kind in ("made", "binop", "unop") for value in values)
    if name in ("to", "cuda"):
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
