"""Which definitions of a name reach a place."""

import ast

from clew.lint.index import OPEN, Block, Def, Where


def reaching(defs: list[Def], at: Where) -> list[Def]:
    """The definitions that may hold at `at`, the nearest first. A definition that every way to `at` passes hides those
    before it; one further down in a loop that both share comes round again."""
    if len(defs) == 1:
        return defs
    around = at.block.chain()
    found: list[Def] = []
    covered: dict[ast.AST, set[str]] = {}
    last: Def | None = None
    for made in reversed(defs):
        # A loop's target is set where the loop begins, in the loop's own block.
        if made.where.order > at.order or (made.where.order == at.order and made.how not in ("for", "with", "param")):
            continue
        if apart(made.where.block, around):
            continue
        found.append(made)
        if settled(made.where.block, around, covered):
            last = made
            break
    shared = {block for block in around if block.kind in ("for", "while")}
    if shared:
        hidden = set(last.where.block.loops()) if last is not None else set()
        for made in defs:
            again = made.where.order >= at.order and made not in found
            if again and any(loop in shared and loop not in hidden for loop in made.where.block.loops()):
                found.append(made)
    return found or defs[:1]


def outward(name: str, at: Where) -> list[Def]:
    """The definitions of a name that may hold at a place, also those of a scope around it; none where it is unknown."""
    scope = at.block.scope
    while name not in scope.defs and scope.parent is not None:
        scope = scope.parent
        at = Where(scope.body, 1 << 60)
    return reaching(scope.defs[name], at) if name in scope.defs else []


def apart(block: Block, around: list[Block]) -> bool:
    """Whether the block and the place lie in different branches of one condition."""
    branches = {id(one.node): one.kind for one in around if one.kind in ("if", "else")}
    return any(one.kind in ("if", "else") and branches.get(id(one.node), one.kind) != one.kind for one in block.chain())


def settled(block: Block, around: list[Block], covered: dict[ast.AST, set[str]]) -> bool:
    """Whether every way to the place leads through `block`; two branches of one condition together count."""
    at: Block | None = block
    while at is not None:
        if at in around:
            return True
        if at.kind in OPEN:
            at = at.parent
        elif at.kind in ("if", "else"):
            sides = covered.setdefault(at.node, set())
            sides.add(at.kind)
            if len(sides) < 2:
                return False
            at = at.parent
        else:
            return False
    return False
