"""Which way a condition goes, as far as constants, defaults and settings tell."""

import ast
from typing import Any

from clew.lint.index import Block, Def, Where

BRANCHES = ("if", "else")
# What may lie inside a condition.
CONDITIONS = ("if", "else", "with", "try", "for", "while")


def alive(values: Any, defs: list[Def], at: Where, context: Any) -> list[Def]:
    """Of the definitions that may hold (nearest first) those that can: none on a branch that is never taken, none
    hidden behind one on a branch that always is."""
    if not any(made.where.block.kind in CONDITIONS for made in defs):
        return defs
    around = at.block.chain()
    found: list[Def] = []
    for made in defs:
        way = taken(values, made.where.block, around, context)
        if way is False:
            continue
        found.append(made)
        if way is True and made.where.order < at.order:
            break
    return found or defs


def taken(values: Any, block: Block, around: list[Block], context: Any) -> bool | None:
    """Whether a block is entered by whoever comes through those around; None when that is open."""
    sure: bool | None = True
    for one in block.chain():
        if one in around:
            break
        if one.kind in BRANCHES and isinstance(one.node, ast.If):
            way = decided(values, one, context)
            if way is not None and one.kind == "else":
                way = not way
            if way is False:
                return False
            sure = sure and way
        elif one.kind == "case":
            way = matched(values, one, context)
            if way is False:
                return False
            sure = sure and way
        elif one.kind in ("for", "while", "except"):
            sure = None
    return sure


def matched(values: Any, block: Block, context: Any) -> bool | None:
    """Whether a case of a match on a constant is the one that is taken."""
    module = block.scope.module
    for node in module.statements.get(ast.Match, []):
        if block.node not in node.cases:
            continue
        known, subject = word(values, node.subject, module.place[node], context)
        if not known:
            return None
        for case in node.cases:
            fits = pattern(case.pattern, subject) if case.guard is None else None
            if case is block.node:
                return fits
            if fits is None:
                return None
            if fits:
                return False
    return None


def pattern(node: ast.pattern, subject: Any) -> bool | None:
    if isinstance(node, ast.MatchValue):
        return bool(node.value.value == subject) if isinstance(node.value, ast.Constant) else None
    if isinstance(node, ast.MatchOr):
        ways = [pattern(part, subject) for part in node.patterns]
        return True if True in ways else None if None in ways else False
    return True if isinstance(node, ast.MatchAs) and node.pattern is None else None


def decided(values: Any, block: Block, context: Any) -> bool | None:
    """Whether the condition of a block holds; without a context that is worked out once."""
    test = block.node.test  # type: ignore[attr-defined]
    known: dict[ast.AST, bool | None] = values.truths
    if context is not None:
        return truth(values, test, block.scope.module.place[block.node], context)
    if test in known:
        values.cuts += test in values.asking
        return known[test]
    known[test] = None
    values.asking.add(test)
    known[test] = truth(values, test, block.scope.module.place[block.node], None)
    values.asking.discard(test)
    return known[test]


def truth(values: Any, node: ast.expr, where: Where, context: Any) -> bool | None:
    """Whether an expression holds."""
    if isinstance(node, ast.Constant):
        return bool(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        way = truth(values, node.operand, where, context)
        return None if way is None else not way
    if isinstance(node, ast.BoolOp):
        ways = [truth(values, part, where, context) for part in node.values]
        stop = isinstance(node.op, ast.Or)
        if stop in ways:
            return stop
        return None if None in ways else not stop
    if isinstance(node, ast.Compare):
        return compared(values, node, where, context)
    known, held = word(values, node, where, context)
    return bool(held) if known else None


def compared(values: Any, node: ast.Compare, where: Where, context: Any) -> bool | None:
    if len(node.ops) != 1:
        return None
    known, left = word(values, node.left, where, context)
    if not known:
        return None
    right = node.comparators[0]
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        if not isinstance(right, ast.Tuple | ast.List | ast.Set) or not all(
            isinstance(item, ast.Constant) for item in right.elts
        ):
            return None
        inside = left in [item.value for item in right.elts if isinstance(item, ast.Constant)]
        return inside == isinstance(node.ops[0], ast.In)
    known, other = word(values, right, where, context)
    if not known:
        return None
    if isinstance(node.ops[0], ast.Eq | ast.Is):
        return bool(left == other)
    return bool(left != other) if isinstance(node.ops[0], ast.NotEq | ast.IsNot) else None


def word(values: Any, node: ast.expr, where: Where, context: Any) -> tuple[bool, Any]:
    """The constant that an expression is. An attribute that is set more than once is none."""
    if isinstance(node, ast.Constant):
        return True, node.value
    if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or not steady(node, where):
        return False, None
    found = values.value(node, where, context)
    if len(found) == 1 and found[0].kind == "const":
        return True, found[0].const
    return False, None


def steady(node: ast.expr, where: Where) -> bool:
    """Whether an attribute of `self` keeps what __init__ gave it."""
    if not isinstance(node, ast.Attribute):
        return True
    scope: Any = where.block.scope
    while scope is not None and scope.cls is None:
        scope = scope.parent
    if scope is None or not isinstance(node.value, ast.Name) or node.value.id != scope.me:
        return True
    defs = scope.cls.attrs.get(node.attr, [])
    return len(defs) == 1 and defs[0].where.block.scope.name == "__init__"
