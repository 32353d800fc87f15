"""A trained model is scored on a split that is drawn again.

What it sees: a function or program that loads a model, draws a split at random without a seed, here or through a
function of the project, and scores the model on the held-out part without fitting it; two random splits without a
seed, of which one gives the training part and the other the held-out part.
Why it matters: the split is not the one that the model was trained with. Most of the rows it is scored on were in its
training set, and the score is that of training.
Silent when: random_state, a generator or a seed is given, or the model is fitted in the same place.
Fix: give the split a fixed seed, or store the indices with the model.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import helper, side
from clew.lint.index import Where
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

LOADS = frozenset(("load", "load_model", "load_state_dict", "load_from_checkpoint", "from_pretrained", "restore"))
TRAINS = frozenset(("fit", "fit_transform", "backward", "train_one_epoch", "partial_fit", "training_step"))
SEEDS = ("seed", "manual_seed", "seed_everything", "set_seed", "set_random_seed", "fix_seed", "seed_all", "setup_seed")


@rule(
    "CLW520",
    "split-drawn-again",
    "data.leak_split",
    "likely",
    "load load_model load_state_dict load_from_checkpoint restore random_split",
)
def check(script: Script) -> Iterator[Hit]:
    yield from drawn_apart(script)
    if script.tests or any(script.calls(*SEEDS)):
        return
    for scope in script.module.scopes:
        said = {name(call) for call in scope.calls}
        if said.isdisjoint(LOADS) or said & TRAINS or not scores(said):
            continue
        if not any(name(call) in LOADS and a_model(call) for call in scope.calls):
            continue
        for call in scope.calls:
            if unseeded(script, call):
                yield Hit(call, "the split is drawn again: the model loaded here was trained on another split.")
            else:
                yield from by_helper(script, call)


def drawn_apart(script: Script) -> Iterator[Hit]:
    """train, _ = random_split(augmented, ...); _, val = random_split(plain, ...): two draws, one part of each."""
    calls = list(script.calls("random_split"))
    if len(calls) < 2 or sum(1 for _ in script.calls(*SEEDS)) > 1:
        return
    kept: list[tuple[ast.Call, list[str]]] = []
    for call in calls:
        statement = script.statement(call)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        names = [text(part) for part in target.elts] if isinstance(target, ast.Tuple) else []
        if unseeded(script, call):
            kept.append((call, [one for one in names if one != "_" and script.loads(one)]))
    for first, one in kept:
        for second, other in kept:
            alone = len(one) == len(other) == 1 and script.scope(first) is script.scope(second)
            if alone and side(one[0]) == "train" and side(other[0]) == "out":
                says = f"{other[0]} is drawn again, and shares rows with {one[0]}, which comes from another draw."
                yield Hit(second, says)


def by_helper(script: Script, call: ast.Call) -> Iterator[Hit]:
    func = helper(script, call, script.where(call)) if isinstance(call.func, ast.Name | ast.Attribute) else None
    if func is None or not func.returns:
        return
    home = script.at_home(Where(func.body, 0))
    if any(home.calls(*SEEDS)) or any(name(one) in TRAINS for one in func.calls):
        return
    for one in func.calls:
        if unseeded(home, one):
            at = (Related(func.module.path, one.lineno, "no seed is given here"),)
            says = f"{func.name} draws another split in every run: the loaded model was trained on other rows."
            yield Hit(call, says, related=at)
            return


def name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else text(call.func)


def a_model(call: ast.Call) -> bool:
    """joblib.load("rf.joblib"), torch.load(path), model.load_state_dict(...); not np.load or json.load."""
    base = text(call.func).rsplit(".", 1)[0].lower()
    return base not in ("np", "numpy", "json", "yaml", "toml", "tomllib", "csv", "toml", "safe")


def scores(said: set[str]) -> bool:
    return any(
        word in ("predict", "score", "predict_proba", "eval", "evaluate", "test", "argmax", "accuracy")
        or word.endswith(("_score", "_error", "_report", "evaluate", "accuracy"))
        for word in said
    )


def unseeded(script: Script, call: ast.Call) -> bool:
    """A random split that nothing fixes."""
    last = name(call)
    if last not in ("train_test_split", "random_split") or Script.starred(call):
        return False
    dotted = script.dotted(call.func)
    if dotted.endswith("model_selection.train_test_split"):
        given = script.arg(call, -1, "random_state")
        shuffles = script.constant(script.arg(call, -1, "shuffle")) is not False
        return shuffles and (given is None or (isinstance(given, ast.Constant) and given.value is None))
    if dotted == "torch.utils.data.random_split":
        return script.arg(call, 2, "generator") is None
    return False
