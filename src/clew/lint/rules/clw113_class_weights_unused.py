"""Class weights are computed and never reach the loss.

What it sees: a variable named like class weights, or a result of compute_class_weight, that is never used, or that is
only printed; a data set made with strongly unequal classes, labels put together from few of one and many of another, or
sizes of classes written out, where neither loss nor metric takes notice; the share of a rare class that is only
printed.
Why it matters: someone saw that the classes are unequal and prepared the remedy. Without it the model learns to
predict the common class, and accuracy hides that.
Silent when: the variable is read anywhere, or returned.
Fix: pass it: CrossEntropyLoss(weight=...), pos_weight=..., class_weight=... or a sampler.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.index import Def, Scope
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

WEIGHTS = re.compile(r"^(class|cls|label|pos|sample)_?weights?$", re.I)


@rule(
    "CLW113",
    "class-weights-unused",
    "data.class_imbalance",
    "likely",
    (
        "class_weights class_weight pos_weight pos_weights compute_class_weight weights cls_weights sample_weights "
        "WeightedRandomSampler BCEWithLogitsLoss BCELoss make_classification CrossEntropyLoss cross_entropy"
    ),
)
def check(script: Script) -> Iterator[Hit]:
    yield from unused_sampler(script)
    yield from unused_attribute(script)
    told = script.speaks("ratio", "imbalance", "pos_w", "skew", "freq") or any(
        WEIGHTS.match(name) or HELPER.search(name) for name in script.module.names if "eig" in name
    )
    sklearn = "compute_class_weight" in script.module.calls or "compute_class_weight" in script.aliases
    for scope in script.module.scopes if told else ():
        if scope.kind not in ("function", "module"):
            continue
        for name, defs in scope.defs.items():
            made = defs[-1]
            if (
                made.how == "="
                and not made.path
                and isinstance(made.value, ast.Call | ast.BinOp)
                and (
                    WEIGHTS.match(name)
                    or (sklearn and from_sklearn(script, made))
                    or by_helper(made)
                    or ratio(made.value)
                )
                and not read(script, name, scope)
            ):
                yield Hit(made.node, f"{name} is computed and never used: the loss weights all classes equally.")
    for call, _ in script.calls_to("sklearn.datasets.", "make_classification"):
        shares = script.arg(call, -1, "weights")
        if (
            isinstance(shares, ast.List | ast.Tuple)
            and any(rare(script, item) for item in shares.elts)
            and not aware(script)
        ):
            yield Hit(
                shares, "one class is rare, and nothing in this file weights, resamples or evaluates by class.", "look"
            )

    yield from counted(script)
    yield from laid_out(script)
    yield from only_told(script)


def unused_attribute(script: Script) -> Iterator[Hit]:
    """self.class_weights = ..., which no method and no other file reads."""
    for cls in script.module.classes:
        for name, defs in cls.attrs.items():
            made = defs[-1]
            plain = made.how == "=" and not made.path and isinstance(made.value, ast.Call | ast.BinOp)
            if not plain or not (WEIGHTS.match(name) or (name == "weights" and by_helper(made))):
                continue
            read_ = any(isinstance(node, ast.Attribute) and node.attr == name for node in script.loads(name))
            read_ = read_ or not script.mentions("CrossEntropyLoss", "cross_entropy", "BCEWithLogitsLoss", "NLLLoss")
            if not read_ and script.project.neighbours_with(script.module.path, f".{name}") == 0:
                yield Hit(made.node, f"self.{name} is computed and never used: the loss weights all classes equally.")


def unused_sampler(script: Script) -> Iterator[Hit]:
    """sampler = WeightedRandomSampler(...), which no loader is given."""
    for call in script.calls("WeightedRandomSampler"):
        statement = script.statement(call)
        target = statement.targets[0] if isinstance(statement, ast.Assign) and statement.value is call else None
        if isinstance(target, ast.Name) and not read(script, target.id, script.scope(call)):
            yield Hit(
                call, f"{target.id} is built and passed to no loader: classes are drawn at their natural frequency."
            )


def laid_out(script: Script) -> Iterator[Hit]:
    """Labels put together from n zeros and m ones, with numbers that say how rare one class is."""
    shares = next((found for node in joined(script) if (found := sizes(script, node))), []) or written(script)
    # A handful beside many is a mask, or the one right answer among wrong ones.
    if len(shares) < 2 or max(shares) < 10 * min(shares) or min(shares) < FEWEST or aware(script):
        return
    if script.mentions("WeightedRandomSampler", "weight", "weights", "sigmoid_focal_loss", "alpha"):
        return
    rare_one = f"{min(shares)} of {sum(shares)} examples are of one class"
    classes = ("BCEWithLogitsLoss", "BCELoss", "CrossEntropyLoss", "NLLLoss")
    losses = [call for call, _ in script.calls_to("torch.nn.", *classes) if not call.args and not call.keywords]
    functions = ("binary_cross_entropy_with_logits", "binary_cross_entropy", "cross_entropy")
    losses += [call for call, _ in script.calls_to("torch.nn.functional.", *functions) if len(call.args) < 3]
    for call in losses[:1]:
        yield Hit(call, f"{rare_one}, and the loss weights all classes equally.", "look")


def only_told(script: Script) -> Iterator[Hit]:
    """POS_RATE = 492 / 284807, which is printed and reaches neither loss nor sampler."""
    if script.mentions("WeightedRandomSampler", "pos_weight", "sigmoid_focal_loss", "class_weight", "sample_weight"):
        return
    for scope in (script.module.main, *script.module.scopes):
        for name, defs in scope.defs.items():
            made = defs[0] if len(defs) == 1 and RATE.search(name) else None
            share = number(script, made.value) if made is not None and made.how == "=" and not made.path else None
            if share is None or not 0 < min(share, 1 - share) < RARE or read(script, name, scope):
                continue
            for call, dotted in script.calls_to("torch.nn.", "BCEWithLogitsLoss", "BCELoss", "CrossEntropyLoss"):
                if not call.args and not call.keywords:
                    last = dotted.rsplit(".", 1)[-1]
                    told = f"{name} is {share:.2%} and is only printed: {last} weights all classes equally."
                    yield Hit(call, told, "look")
                    return


RARE = 0.1
RATE = re.compile(
    r"^(pos(itive)?|fraud|minority|anomaly|defect|event|class|target|base|churn|default)_?(rate|share|frac|fraction|prior|"
    r"ratio|prevalence)$|^(prevalence|imbalance|pos_prior)$",
    re.I,
)


def number(script: Script, node: ast.AST) -> float | None:
    """A number, or the quotient of two."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        top, bottom = script.constant(node.left), script.constant(node.right)
        plain = isinstance(top, int | float) and isinstance(bottom, int | float) and bottom
        return top / bottom if plain else None
    given = script.constant(node)
    return float(given) if isinstance(given, int | float) else None


def written(script: Script) -> list[int]:
    """The sizes of classes, where a constant of the file says them."""
    for name, defs in script.module.main.defs.items():
        value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and COUNTS.search(name) else None
        parts = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", [])
        found = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, int)]
        if len(found) == len(parts) > 1 and min(found) > 0:
            return found
    return []


COUNTS = re.compile(
    r"^(n_?per_?class|(class|label|examples?_per_class)_?(counts?|sizes?|freqs?|frequenc\w+|totals?))$", re.I
)


def joined(script: Script) -> Iterator[list[ast.expr]]:
    """The parts of cat([a, b]), and of [0] * n + [1] * m."""
    for call in script.calls("cat", "concat", "concatenate", "hstack"):
        if call.args and isinstance(call.args[0], ast.List | ast.Tuple):
            yield call.args[0].elts
    for node in script.module.nodes.get(ast.BinOp, []):
        if isinstance(node.op, ast.Add) and isinstance(node.right, ast.BinOp) and isinstance(node.left, ast.BinOp):
            yield [node.left, node.right]


def sizes(script: Script, parts: list[ast.expr]) -> list[int]:
    """How many labels each part holds, when every part is one label many times over."""
    found: list[int] = []
    for part in parts:
        while isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in CASTS:
            part = part.func.value
        many: ast.expr | None = None
        if isinstance(part, ast.Call) and text(part.func).rsplit(".", 1)[-1] in ("zeros", "ones", "full") and part.args:
            many = part.args[0]
            if isinstance(many, ast.Tuple | ast.List) and len(many.elts) == 1:
                many = many.elts[0]
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult) and isinstance(part.left, ast.List):
            many = part.right if len(part.left.elts) == 1 and isinstance(part.left.elts[0], ast.Constant) else None
        number = script.constant(many)
        if not isinstance(number, int) or number < 1:
            return []
        found.append(number)
    return found


FEWEST = 20
CASTS = ("long", "float", "int", "astype", "to", "double")


def counted(script: Script) -> Iterator[Hit]:
    """Positives and negatives are counted, and the loss is not told."""
    names = {name for scope in script.module.scopes for name in scope.defs}
    if not any(POSITIVES.search(name) for name in names) or not any(NEGATIVES.search(name) for name in names):
        return
    if aware(script) or script.mentions("WeightedRandomSampler", "pos_weight", "weight"):
        return
    for call, dotted in script.calls_to("torch.nn.", "BCEWithLogitsLoss", "BCELoss", "CrossEntropyLoss"):
        if not call.args and not call.keywords:
            last = dotted.rsplit(".", 1)[-1]
            yield Hit(
                call, f"positives and negatives are counted in this file, and {last} weights them equally.", "look"
            )


POSITIVES = re.compile(
    r"^(n|num|count|total)_?(pos|positives?|fraud|defects?)$|^(pos|positive)s?_?(count|num|n)$", re.I
)
NEGATIVES = re.compile(r"^(n|num|count|total)_?(neg|negatives?|normal|ok)$|^(neg|negative)s?_?(count|num|n)$", re.I)


def from_sklearn(script: Script, made: Def) -> bool:
    return any(
        isinstance(part, ast.Call) and script.dotted(part.func).endswith(".compute_class_weight")
        for part in ast.walk(made.value)
    )


def read(script: Script, name: str, scope: Scope) -> bool:
    """Whether any expression of the file reads the name. At the top of a file other files may."""
    if scope.kind == "module" and scope.module.path.endswith(("config.py", "constants.py")):
        return True
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) and not shown(script, node)
        for node in script.module.up
    ) or any(name in inner.outside for inner in script.module.scopes)


def shown(script: Script, node: ast.AST) -> bool:
    """Whether a value is only printed or logged."""
    at = script.parent(node)
    while isinstance(at, ast.expr):
        if isinstance(at, ast.Call):
            last = ast.unparse(at.func).rsplit(".", 1)[-1]
            if last in ("print", "info", "debug", "warning", "pprint") and isinstance(script.parent(at), ast.Expr):
                return True
        at = script.parent(at)
    return False


RATIO = re.compile(r"ratio|imbalance|pos_w|skew", re.I)


def ratio(node: ast.AST) -> bool:
    """(y == 0).sum() / (y == 1).sum()"""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    return all(
        any(isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq) for part in ast.walk(side))
        and any(isinstance(part, ast.Attribute) and part.attr == "sum" for part in ast.walk(side))
        for side in (node.left, node.right)
    )


def by_helper(made: Def) -> bool:
    """weights = class_weights(y): the function's name says what it gives."""
    calls = [part.func for part in ast.walk(made.value) if isinstance(part, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in calls]
    return any(HELPER.search(name) for name in names)


HELPER = re.compile(r"(class|label|balanced?|inverse_?freq\w*|loss)_?weights?|inv(erse)?_freq\w*", re.I)


def rare(script: Script, node: ast.AST) -> bool:
    share = script.constant(node)
    return isinstance(share, int | float) and (0 < share <= 0.1 or share >= 0.9)


def aware(script: Script) -> bool:
    return any(
        word in name.lower()
        for name in script.module.names
        for word in (
            "class_weight",
            "f1",
            "recall",
            "precision",
            "auc",
            "smote",
            "balanced",
            "stratif",
            "sample_weight",
            "report",
            "confusion",
            "pos_weight",
        )
    )
