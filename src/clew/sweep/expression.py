"""A metric that is arithmetic on columns: `tpr - fpr`. It is parsed and never evaluated as Python."""

import ast
import operator
import re
from typing import Any

import numpy as np

from clew.errors import ClewError
from clew.sweep.roles import bare, known
from clew.sweep.table import Table, numbers, of_numbers

OPERATIONS: dict[type[ast.AST], Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
LONGEST = 500
"""Characters in an expression, which is walked recursively."""
QUOTED = re.compile(r"`([^`]+)`")


def columns_of(metric: str) -> tuple[str, ...]:
    """The columns that a metric may be made of."""
    return (metric, *QUOTED.findall(metric), *re.findall(r"[^\W\d][\w.]*", metric))


def with_metric(table: Table, metric: str) -> tuple[Table, str, tuple[str, ...]]:
    """The table with a column for the metric, its name, and the columns that an expression took."""
    tree = None
    quoted: list[str] = QUOTED.findall(metric)
    if len(metric) <= LONGEST and not any(bare(name) == bare(metric) for name in table.columns):
        places = iter(range(len(quoted)))
        try:
            tree = ast.parse(QUOTED.sub(lambda _: f"_quoted_{next(places)}", metric).strip(), mode="eval").body
        except (SyntaxError, ValueError):
            tree = None
    if not isinstance(tree, ast.BinOp | ast.UnaryOp):
        return table, known(table, metric, "metric"), ()
    missing = np.zeros(table.rows, dtype=bool)
    used: list[str] = []

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATIONS:
            return OPERATIONS[type(node.op)](value(node.operand))
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return np.float64(node.value)
        if not isinstance(node, ast.Name | ast.Attribute):
            raise ClewError(f"--metric takes + - * / ** and brackets on columns and numbers, not {ast.unparse(node)}.")
        text = ast.unparse(node)
        name = quoted[int(text.removeprefix("_quoted_"))] if text.startswith("_quoted_") else text
        used.append(known(table, name, "column"))
        held, empty = numbers(table, used[-1])
        np.logical_or(missing, empty, out=missing)
        return held

    with np.errstate(all="ignore"):
        found = np.broadcast_to(value(tree), table.rows).astype(np.float64)
    return table._replace(columns={**table.columns, metric: of_numbers(found, missing)}), metric, tuple(used)
