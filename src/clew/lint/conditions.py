"""What is known to hold where a place is reached, and what follows from it for another condition."""

import ast
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Where


class Known:
    """Facts at a place: expressions that are true or false there, and names that equal a constant."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.facts: dict[str, bool] = {}
        self.equal: dict[str, Any] = {}
        for block in where.block.chain():
            if block.kind in ("if", "else") and isinstance(block.node, ast.If):
                self.add(block.node.test, block.kind == "if")

    def add(self, node: ast.expr, holds: bool) -> None:
        node = spelled(node, self.where)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.add(node.operand, not holds)
            return
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) == holds:
            for part in node.values:
                self.add(part, holds)
            return
        self.facts[ast.unparse(node)] = holds
        pair = equation(node)
        if pair is not None and pair[2] == holds:
            self.equal[pair[0]] = pair[1]

    def truth(self, node: ast.expr) -> bool | None:
        """Whether an expression holds as well; None when nothing follows."""
        node = spelled(node, self.where)
        if isinstance(node, ast.Constant):
            return bool(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.truth(node.operand)
            return None if inner is None else not inner
        known = self.facts.get(ast.unparse(node))
        if known is not None:
            return known
        pair = equation(node)
        if pair is not None and pair[0] in self.equal:
            return bool(self.equal[pair[0]] == pair[1]) == pair[2]
        return None


def equation(node: ast.expr) -> tuple[str, Any, bool] | None:
    """`name == constant` as (name, constant, True), with != as False."""
    if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
        return None
    right = node.comparators[0]
    if not isinstance(right, ast.Constant):
        return None
    return ast.unparse(node.left), right.value, isinstance(node.ops[0], ast.Eq)


def spelled(node: ast.expr, where: Where) -> ast.expr:
    """A name that was given to a condition, as that condition: `train = phase == "train"`."""
    defs = where.block.scope.defs
    for _ in range(3):
        if not isinstance(node, ast.Name) or node.id not in defs:
            return node
        held = reaching(defs[node.id], where)
        made = held[0] if len(held) == 1 and held[0].how == "=" and not held[0].path else None
        if made is None or not isinstance(made.value, ast.Compare | ast.UnaryOp | ast.Name):
            return node
        node = made.value
    return node
