"""A seed is accepted and never used.

What it sees: a --seed argument that nothing in the file reads, or that is only printed and saved while nothing is
seeded; a parameter `seed` of a function that draws or trains and never looks at it.
Why it matters: runs with the same seed differ, and a comparison over seeds is meaningless.
Silent when: the arguments are passed on as a whole, or anything reads the seed.
Fix: seed Python, numpy and torch from it at the start.
"""

import ast
from collections.abc import Iterator

from clew.lint.index import Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

SETS = (
    "manual_seed seed seed_everything set_seed set_random_seed default_rng RandomState PRNGKey key Generator "
    "manual_seed_all seed_all fix_seed set_seeds setup_seed seed_torch Random"
).split()


@rule("CLW512", "seed-not-used", "env.nondeterminism", "look")
def check(script: Script) -> Iterator[Hit]:
    if not script.mentions("torch", "numpy", "np", "sklearn", "jax"):
        return
    yield from unread_parameter(script)
    yield from unread_field(script)
    for call in script.calls("add_argument"):
        flags = [script.constant(arg) for arg in call.args]
        if "--seed" not in flags or script.arg(call, -1, "dest") is not None:
            continue
        if "seed" not in script.module.names and not passed_on(script):
            yield Hit(call, "--seed is accepted and never used: runs with the same seed differ.")
        elif trains(script) and only_noted(script) and not passed_on(script):
            yield Hit(call, "--seed is only logged: nothing is seeded, and runs with the same seed differ.")


def trains(script: Script) -> bool:
    return script.mentions("backward", "fit", "training_step", "value_and_grad")


def only_noted(script: Script) -> bool:
    """Whether every use of args.seed is a note: printed, logged, put into a dict or a file name."""
    if any(script.calls(*SETS)) or any(
        word.arg == "random_state" for call in script.calls("fit") for word in call.keywords
    ):
        return False
    uses = [node for node in script.loads("seed") if isinstance(node, ast.Name | ast.Attribute)]
    return bool(uses) and all(noted(script, node) for node in uses)


def noted(script: Script, node: ast.AST) -> bool:
    at: ast.AST | None = script.parent(node)
    while isinstance(at, ast.expr | ast.keyword):
        if isinstance(at, ast.JoinedStr | ast.Dict):
            return True
        if isinstance(at, ast.Call):
            return text(at.func).rsplit(".", 1)[-1] in NOTES
        at = script.parent(at)
    return False


NOTES = ("print", "info", "log", "format", "str", "write", "dict", "debug", "join", "append")


def unread_parameter(script: Script) -> Iterator[Hit]:
    """def train(..., seed=0), with a body that draws or trains and never looks at the seed."""
    for scope in script.module.scopes:
        if scope.kind != "function" or "seed" not in scope.params or "seed" in scope.outside:
            continue
        if any(isinstance(part, ast.Name) and part.id == "seed" for part in ast.walk(scope.node)):
            continue
        body = getattr(scope.node, "body", [])
        empty = all(
            isinstance(part, ast.Pass | ast.Raise) or isinstance(getattr(part, "value", None), ast.Constant)
            for part in body
        )
        random = any(random_call(script, call) for call in scope.calls)
        if not empty and random and scope.cls is None and not scope.decorators():
            yield Hit(scope.node, f"{scope.name} takes a seed and ignores it: runs with the same seed differ.")


def unread_field(script: Script) -> Iterator[Hit]:
    """A seed among the settings of a class, in a file that trains, seeds nothing, and never reads it."""
    for cls in script.module.classes:
        fields = cls.body.defs.get("seed", [])
        if not fields or script.loads("seed") or not script.mentions("backward") or any(script.calls(*SETS)):
            continue
        if script.project.neighbours_with(script.module.path, ".seed") == 0:
            yield Hit(fields[0].node, "seed is a setting that is never used: runs with the same seed differ.")


def random_call(script: Script, call: ast.Call) -> bool:
    """A call that draws, or builds or trains a network."""
    dotted = script.dotted(call.func) if isinstance(call.func, ast.Name | ast.Attribute) else ""
    last = dotted.rsplit(".", 1)[-1] if dotted else text(call.func).rsplit(".", 1)[-1]
    if dotted.startswith(("numpy.random.", "random.")) or last in (
        "randperm",
        "randn",
        "rand",
        "DataLoader",
        "backward",
    ):
        return True
    return last in ("train_test_split", "random_split") or (
        dotted.startswith("torch.nn.") and last in ("Linear", "Sequential")
    )


def passed_on(script: Script) -> bool:
    """Whether the parsed arguments go somewhere as a whole."""
    holders = set()
    for call in script.calls("parse_args", "parse_known_args"):
        statement = script.statement(call)
        if isinstance(statement, ast.Return):
            kept = returned_to(script, script.scope(call))
            if not kept:
                return True
            holders |= kept
            continue
        if not isinstance(statement, ast.Assign):
            return True
        holders |= {
            text(part)
            for target in statement.targets
            for part in (target.elts if isinstance(target, ast.Tuple) else [target])
        }
    if not holders:
        return True
    for node in script.module.up:
        if isinstance(node, ast.Name) and node.id in holders and isinstance(node.ctx, ast.Load):
            above = script.module.up[node]
            if not isinstance(above, ast.Attribute) and not printed(above):
                return True
    return False


def returned_to(script: Script, scope: Scope) -> set[str]:
    """The names that hold what a function of this file returns; none when it is called from elsewhere."""
    found: set[str] = set()
    for call in script.module.calls.get(scope.name, []):
        statement = script.statement(call)
        if not isinstance(statement, ast.Assign):
            return set()
        found |= {text(target) for target in statement.targets}
    return found - {""}


def printed(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and text(node.func) in ("print", "vars")
