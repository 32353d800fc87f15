"""The value of the next state is added although the episode has ended.

What it sees: a target of the form reward + gamma * next value, gamma by name or as a number, in code that knows of
done or terminated flags and does not use them in it.
Why it matters: the end of an episode is worth nothing, but is given the value of a state that never follows. Values
drift up or down without limit, most at the states that matter.
Silent when: a flag appears in the expression, something is taken from one in it, or the next value was masked before.
Fix: reward + gamma * (1 - done) * next_value.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Scope, Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

FLAG = re.compile(
    r"(^|_|\.)(dones?|terminals?|terminated|terminations?|not_dones?|nonterminals?|non_final\w*|masks?|continues?|not_terminal|is_terminal|final_mask|d|discounts?|terms?|ended|finished|is_last|episode_over)($|_|s$|\[)|nonterm|notdone|not_?terminal",
    re.I,
)
DONE = re.compile(
    r"(^|_)(dones?|terminals?|terminated|terminations?)($|_)|^(terms?|ended|finished|is_last|episode_over)$", re.I
)
NEXT = re.compile(r"next|nxt|target|_prime|bootstrap|q_max|max_q|qmax|_tp1|(^|_)(v|q|vals?|values?)2$", re.I)
MIXING = re.compile(r"gamma|discount|lam|tau|alpha|beta|eps|polyak|rho|mom", re.I)
GAMMA = re.compile(r"gamma|discount", re.I)
REWARD = re.compile(r"reward|(^|_)(r|rew|rews)($|_)", re.I)


@rule(
    "CLW801",
    "done-ignored",
    "rl.terminal_bootstrap",
    "likely",
    "gamma GAMMA discount_factor discount done dones terminated",
)
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch", "jax", "tf", "tensorflow"):
        return
    for node in script.module.nodes.get(ast.BinOp, []):
        above = script.parent(node)
        if not isinstance(node.op, ast.Add) or (isinstance(above, ast.BinOp) and not isinstance(above.op, ast.Sub)):
            continue
        where = script.where(node)
        aimed = target(node, where)
        told = aimed and (
            knows_done(where.block.scope)
            or callers_know(script, where.block.scope)
            or kept_beside(script, node, where.block.scope)
        )
        if aimed and not told and no_grad_target(script, node) and not uses_flag(node, where, 4):
            yield Hit(node, "bootstraps from the next state after every reward, even at the end of an episode.", "look")
            continue
        lost = discounted(node) and (
            unread(script, where.block.scope)
            or unread_in_loop(script, where.block.scope)
            or stored_unread(script, where.block.scope)
        )
        if (told or lost) and not uses_flag(node, where, 4):
            yield Hit(
                node,
                "bootstraps from the next state even where the episode has ended: the done flag is not used.",
            )


def no_grad_target(script: Script, node: ast.BinOp) -> bool:
    """Whether a batch of transitions is meant: its parts are asked for by key or by attribute."""
    reward = node.left if isinstance(node.right, ast.BinOp) else node.right
    held = reward.value if isinstance(reward, ast.Subscript | ast.Attribute) else None
    return isinstance(held, ast.Name) and "batch" in held.id.lower() and script.mentions("backward")


def target(node: ast.BinOp, where: Where) -> bool:
    """reward + gamma * next value."""
    reward, product = (node.left, node.right) if isinstance(node.right, ast.BinOp) else (node.right, node.left)
    names = words(product)
    return (
        isinstance(product, ast.BinOp)
        and isinstance(product.op, ast.Mult)
        and any(REWARD.search(name) for name in words(reward))
        and (any(GAMMA.search(name) for name in names) or discounts(product))
        and (any(NEXT.search(name) for name in names) or from_next(product, where))
    )


def kept_beside(script: Script, node: ast.BinOp, scope: Scope) -> bool:
    """Whether the object that keeps the rewards keeps flags of the episode's end too, which nothing here reads."""
    reward = node.left if isinstance(node.right, ast.BinOp) else node.right
    while isinstance(reward, ast.Subscript) and not isinstance(reward.slice, ast.Constant):
        reward = reward.value
    if isinstance(reward, ast.Subscript):
        return keyed_beside(script, reward)
    if not isinstance(reward, ast.Attribute) or not REWARD.search(reward.attr):
        return False
    names: set[str] = set()
    for value in script.value(reward.value):
        if value.cls is not None:
            names |= {name for cls in script.values.lineage(value.cls) for name in (*cls.attrs, *cls.body.defs)}
    base = text(reward.value)
    held: list[Any] = [target.value for target, _, _ in script.module.subscript_sets]
    names |= {one.attr for one in held if beside(one, base)}
    flags = [name for name in names if DONE.search(name)]
    return bool(flags) and not any(
        isinstance(part, ast.Attribute) and part.attr in flags for part in ast.walk(scope.node)
    )


def beside(node: Any, base: str) -> bool:
    return isinstance(node, ast.Attribute) and text(node.value) == base != ""


def keyed_beside(script: Script, reward: ast.Subscript) -> bool:
    """batch["rewards"], where batch["dones"] is written or read elsewhere under the same name."""
    base = text(reward.value)
    keys = {
        target.slice.value
        for target, _, _ in script.module.subscript_sets
        if text(target.value) == base != "" and isinstance(target.slice, ast.Constant)
    }
    for node in script.module.nodes.get(ast.Dict, []):
        held = [key.value for key in node.keys if isinstance(key, ast.Constant)]
        if script.constant(reward.slice) in held:
            keys.update(held)
    return any(isinstance(key, str) and DONE.search(key) for key in keys)


def from_next(product: ast.BinOp, where: Where) -> bool:
    """Whether one of the factors was computed from the next observation, or stands one step later."""
    if one_later(product):
        return True
    defs = where.block.scope.defs
    for part in (product.left, product.right):
        if isinstance(part, ast.Name) and part.id in defs:
            for made in reaching(defs[part.id], where):
                plain = made.how == "=" and isinstance(made.value, ast.AST) and not made.path
                if plain and (any(NEXT.search(word) for word in words(made.value)) or one_later(made.value)):
                    return True
    return False


def one_later(node: ast.AST) -> bool:
    """values[t + 1], values[1:]"""
    for part in ast.walk(node):
        later = part.slice if isinstance(part, ast.Subscript) else None
        if isinstance(later, ast.BinOp) and isinstance(later.op, ast.Add) and isinstance(later.right, ast.Constant):
            return True
        if isinstance(later, ast.Slice) and isinstance(later.lower, ast.Constant) and later.lower.value == 1:
            return True
    return False


def discounted(node: ast.BinOp) -> bool:
    """reward + gamma * anything."""
    reward, product = (node.left, node.right) if isinstance(node.right, ast.BinOp) else (node.right, node.left)
    return (
        isinstance(product, ast.BinOp)
        and isinstance(product.op, ast.Mult)
        and any(REWARD.search(name) for name in words(reward))
        and any(GAMMA.search(name) for name in words(product))
    )


def unread(script: Script, scope: Scope) -> bool:
    """Whether the function is handed a flag of the episode's end, among what it unpacks, and never reads it."""
    for name, defs in scope.defs.items():
        if DONE.search(name) and all((made.how == "=" and made.path) or made.how == "param" for made in defs):
            return not any(
                within(script.scope(node), scope) for node in script.loads(name) if isinstance(node, ast.Name)
            )
    return False


def unread_in_loop(script: Script, scope: Scope) -> bool:
    """for r, d in zip(rewards, dones), where d is never read."""
    for name, defs in scope.defs.items():
        for made in defs:
            zipped = made.value if made.how == "for" and isinstance(made.value, ast.Call) else None
            while zipped is not None and text(zipped.func) in ("reversed", "list", "enumerate") and zipped.args:
                zipped = zipped.args[0] if isinstance(zipped.args[0], ast.Call) else None
            if zipped is None or text(zipped.func) != "zip" or len(made.path) != 1:
                continue
            arg = zipped.args[made.path[0]] if 0 <= made.path[0] < len(zipped.args) else None
            if arg is not None and any(DONE.search(word) for word in words(arg)):
                return not any(script.scope(node) is scope for node in script.loads(name) if isinstance(node, ast.Name))
    return False


def stored_unread(script: Script, scope: Scope) -> bool:
    """self.dones is filled beside self.rewards, and nothing ever reads it, while values are handed on at the end."""
    cls = script.class_of(scope)
    handed = any(NEXT.search(name) or name in ("last_value", "final_value") for name in scope.params)
    for name in cls.attrs if cls is not None and handed else ():
        if not DONE.search(name) or script.project.neighbours_with(script.module.path, f".{name}"):
            continue
        above = [script.parent(node) for node in script.loads(name)]
        fills = ("append", "clear", "extend")
        if above and all(isinstance(one, ast.Attribute) and one.attr in fills for one in above):
            return True
    return False


def within(scope: Scope | None, outer: Scope) -> bool:
    while scope is not None:
        if scope is outer:
            return True
        scope = scope.parent
    return False


def callers_know(script: Script, scope: Scope) -> bool:
    """Whether a function that is not handed the flag is called where it is at hand and never read."""
    if scope.kind != "function" or any(FLAG.search(name) for name in scope.params):
        return False
    return any(
        any(DONE.search(name) for name in where.block.scope.defs)
        and all(
            not any(
                script.scope(node) is where.block.scope for node in script.loads(name) if isinstance(node, ast.Name)
            )
            for name in where.block.scope.defs
            if DONE.search(name)
        )
        for _, where in script.project.callers(scope)
        if where.block.scope.module is script.module
    )


def discounts(product: ast.AST) -> bool:
    """A discount written out: 0.99 * next value."""
    parts = [product.left, product.right] if isinstance(product, ast.BinOp) else []
    return any(
        isinstance(part, ast.Constant) and isinstance(part.value, float) and 0.5 < part.value < 1 for part in parts
    )


def words(node: ast.AST) -> list[str]:
    return [
        part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else str(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute | ast.Constant)
    ]


def knows_done(scope: Scope) -> bool:
    """Whether a flag of the episode's end is at hand in the function."""
    return any(DONE.search(name) for name in scope.defs)


def uses_flag(node: Any, where: Where, deep: int) -> bool:
    """Whether a flag is in the expression, or in what its names were computed from, or masks them in place."""
    if deep == 0:
        return False
    scope = where.block.scope
    if any(switches(part) for part in ast.walk(node)):
        return True
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            name = part.value  # batch["done"]
        if name and FLAG.search(name):
            return True
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in scope.defs:
            for target_, _, _ in scope.module.subscript_sets:
                if text(target_.value) == part.id and (
                    FLAG.search(ast.unparse(target_.slice)) or uses_flag(target_.slice, where, 1)
                ):
                    return True
            for made in reaching(scope.defs[part.id], where):
                if made.how in ("=", "aug") and made.value is not node and isinstance(made.value, ast.AST):
                    if any(FLAG.search(word) for word in words(made.value)) and not isinstance(
                        made.value, ast.Call | ast.Name
                    ):
                        return True
                    if not made.path and uses_flag(made.value, made.where, deep - 1) and not unpacks(made.value):
                        return True
    return any(
        block.kind in ("if", "else")
        and isinstance(block.node, ast.If)
        and any(FLAG.search(word) for word in words(block.node.test))
        for block in where.block.chain()
    )


def switches(node: ast.AST) -> bool:
    """1 - T[k]: what is taken from one switches something off, whatever it is called, unless it is a weight."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Constant)
        and node.left.value == 1
        and not any(MIXING.search(word) for word in words(node.right))
    )


def unpacks(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and "sample" in ast.unparse(node.func)
