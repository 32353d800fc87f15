"""A metric is averaged over batches of unequal size.

What it sees: in a validation loop, the mean of each batch is added up, or kept in a list, and divided by the number
of batches, while the loader keeps its last, smaller batch; a meter that is told the mean and not the batch's size;
means added up and divided by the number of examples.
Why it matters: the examples of the last batch weigh more than the others. With a few batches or metrics that are not
means (F1, perplexity) the figure is visibly off, and it depends on the batch size.
Silent when: the loader drops the last batch, or the sum is over examples.
Fix: add up sums and divide by the number of examples.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper
from clew.lint.flow import reaching
from clew.lint.given import default_of
from clew.lint.index import Block, Def, Scope
from clew.lint.losses import loss_calls
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.validation import validations


@rule("CLW306", "mean-of-batch-means", "loss.metric_misaligned", "look", "mean no_grad inference_mode")
def check(script: Script) -> Iterator[Hit]:
    for found in validations(script):
        loop = found.loop.block
        source = text(loop.node.iter) if isinstance(loop.node, ast.For) else ""
        if not source or drops_last(script, loop.node):
            continue
        for node in script.module.statements.get(ast.AugAssign, []):
            if (
                loop in script.where(node).block.chain()
                and (batch_mean(script, node.value) or mean_loss(script, node.value))
                and divided(script, text(node.target), source)
            ):
                yield Hit(node, "adds up batch means although the last batch is smaller: its examples count for more.")
            elif (
                loop in script.where(node).block.chain()
                and (mean_loss(script, node.value) or batch_mean(script, node.value) or named_loss(node.value))
                and divided(script, text(node.target), f"{source}.dataset")
            ):
                told = "adds the means of batches and divides by the number of examples: the result is far too small."
                yield Hit(node, told, "likely")
        for part in script.module.nodes.get(ast.BinOp, []):
            if isinstance(part.op, ast.Div) and script.scope(part) is loop.scope and full_batches(part.right, source):
                told = "counts the last batch as a full one: the sum is divided by more examples than there are."
                yield Hit(part, told)
        yield from metered(script, loop)
        for call in script.calls("append"):
            if (
                len(call.args) == 1
                and loop in script.where(call).block.chain()
                and (batch_mean(script, call.args[0]) or mean_loss(script, call.args[0]))
                and averaged(script, text(call.func).removesuffix(".append"))
            ):
                yield Hit(call, "averages batch means although the last batch is smaller: its examples count for more.")


def full_batches(node: ast.expr, source: str) -> bool:
    """len(loader) * batch_size"""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    sides = [ast.unparse(node.left), ast.unparse(node.right)]
    return f"len({source})" in sides and any(side.endswith("batch_size") for side in sides)


def named_loss(node: ast.AST) -> bool:
    """criterion(out, y).item(): losses of torch are means unless told otherwise."""
    call = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    if not isinstance(node, ast.Call) or not isinstance(call, ast.Call) or node.func.attr != "item":  # type: ignore[attr-defined]
        return False
    last = text(call.func).rsplit(".", 1)[-1].lower()
    said = any(word.arg == "reduction" for word in call.keywords)
    return not said and last in ("criterion", "crit", "loss_fn", "loss_func", "loss_function")


def metered(script: Script, loop: Block) -> Iterator[Hit]:
    """meter.update(mean), where the meter could be told how many examples the mean stands for and is not."""
    for call in loop.scope.calls:
        said = text(call.func)
        if not call.args or call.keywords or not said or loop not in script.where(call).block.chain():
            continue
        func = (
            helper(script, call, script.where(call)) if said.endswith((".update", ".add", ".log", ".append")) else None
        )
        if func is None and "." not in said and not said[0].isupper():
            held = [value.cls for value in script.value(call.func) if value.kind == "instance" and value.cls]
            func = held[0].methods.get("__call__") if len(held) == 1 else None
        if (
            func is not None
            and func.cls is not None
            and len(func.params) == 2 == len(call.args) + 1
            and counts_turns(func)
        ):
            if batch_mean(script, call.args[0]) or mean_loss(script, call.args[0]) or named_loss(call.args[0]):
                yield Hit(call, "counts a smaller last batch as a full one: the meter gets no batch size.")
            continue
        if func is None or func.cls is None or len(func.params) != len(call.args) + 2:
            continue
        count = default_of(func, func.params[-1])
        if not isinstance(count, ast.Constant) or count.value != 1:
            continue
        for at, name in enumerate(func.params[1:-1]):
            given = call.args[at]
            if weighed(func, name) and (batch_mean(script, given) or mean_loss(script, given)):
                told = f"{func.params[-1]} stays 1: the meter counts a smaller last batch as a full one."
                yield Hit(call, told)


def counts_turns(func: Scope) -> bool:
    """self.total += value; self.count += 1"""
    adds = [part for part in ast.walk(func.node) if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add)]
    return any(text(part.value) == func.params[1] for part in adds) and any(
        isinstance(part.value, ast.Constant) and part.value.value == 1 for part in adds
    )


def weighed(func: Scope, name: str) -> bool:
    """Whether a method multiplies what it is told with its last parameter."""
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Mult)
        and {bare(part.left), bare(part.right)} == {name, func.params[-1]}
        for part in ast.walk(func.node)
    )


def bare(node: ast.expr) -> str:
    """A name, also as a number of Python."""
    while isinstance(node, ast.Call) and (node.args or isinstance(node.func, ast.Attribute)):
        node = node.args[0] if node.args else node.func.value  # type: ignore[attr-defined]
    return text(node)


def averaged(script: Script, kept: str) -> bool:
    """sum(kept) / len(kept), or np.mean(kept)."""
    if not kept:
        return False
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Div) and ast.unparse(node) == f"sum({kept}) / len({kept})":
            return True
    return any(
        script.dotted(call.func) in ("numpy.mean", "statistics.mean") and call.args and text(call.args[0]) == kept
        for call in script.calls("mean")
    )


def batch_mean(script: Script, node: ast.AST) -> bool:
    """`(pred == y).float().mean().item()`: the share of hits in one batch, also when the hits have a name."""
    said = ast.unparse(node)
    if ".mean()" not in said:
        return False
    if "==" in said:
        return True
    first = start(node)
    for part in ast.walk(node) if first.isidentifier() and node in script.module.up else ():
        if isinstance(part, ast.Name) and part.id == first:
            where = script.where(part)
            defs = where.block.scope.defs.get(first, [])
            held = reaching(defs, where) if defs else []
            return len(held) == 1 and held[0].how == "=" and "==" in ast.unparse(held[0].value)
    return False


def start(node: ast.AST) -> str:
    """The name that a chain of methods and subscripts begins with."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def returned_mean(script: Script, made: Def) -> bool:
    """top1, top5 = accuracy(out, y), where that returns a mean for each: in a tuple, a list, or a comprehension."""
    func = helper(script, made.value, made.where)
    given = func.returns[0] if func is not None and len(func.returns) == 1 and len(made.path) == 1 else None
    if given is None:
        return False
    back = given[0]
    home = script.at_home(given[1])
    if isinstance(back, ast.ListComp):
        return batch_mean(home, back.elt)
    items = back.elts if isinstance(back, ast.Tuple | ast.List) else []
    return 0 <= made.path[0] < len(items) and (
        batch_mean(home, items[made.path[0]]) or mean_loss(home, items[made.path[0]])
    )


def mean_loss(script: Script, node: ast.AST) -> bool:
    """`loss_fn(pred, y).item()`, or a name that was given that: the mean over one batch."""
    func = helper(script, node, script.where(node)) if isinstance(node, ast.Call) else None
    if func is not None and len(func.returns) == 1 and batch_mean(script, func.returns[0][0]):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "detach"):
        return mean_loss(script, node.func.value)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "float" and node.args:
        return mean_loss(script, node.args[0])
    if isinstance(node, ast.Name):
        where = script.where(node)
        defs = where.block.scope.defs.get(node.id, [])
        held = reaching(defs, where) if defs else []
        made = held[0] if len(held) == 1 and held[0].how == "=" else None
        if made is not None and made.path:
            return returned_mean(script, made)
        if made is None or not isinstance(made.value, ast.Call):
            return False
        return batch_mean(script, made.value) or mean_loss(script, made.value)
    for loss in loss_calls(script):
        if loss.node is node:
            made_by = loss.made.node if loss.made is not None else node
            said = script.arg(made_by, -1, "reduction") if isinstance(made_by, ast.Call) else None
            return said is None or script.constant(said) == "mean"
    return False


def divided(script: Script, total: str, source: str) -> bool:
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Div) and text(node.left) == total and ast.unparse(node.right) == f"len({source})":
            return True
    return any(
        isinstance(node.op, ast.Div) and text(node.target) == total and ast.unparse(node.value) == f"len({source})"
        for node in script.module.statements.get(ast.AugAssign, [])
    )


def drops_last(script: Script, node: object) -> bool:
    iterable = getattr(node, "iter", None)
    for value in script.value(iterable) if iterable is not None else ():
        if value.kind == "instance" and value.name.endswith("DataLoader"):
            return script.constant(script.arg(value.node, -1, "drop_last")) is True
    return False
