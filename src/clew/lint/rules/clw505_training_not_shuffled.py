"""Training data is read in its stored order.

What it sees: a DataLoader kept under a name of training, over a map-style data set, without shuffle, sampler or
batch_sampler, or with a SequentialSampler; a loader with shuffle=False, made anywhere, that a training loop reads.
Why it matters: files are usually sorted by class or by time. Batches are then of one kind, gradients point to the
last class seen, and batch statistics swing.
Silent when: a sampler is given, the data set is iterable or streaming, shuffled beforehand, or the loader also serves
another purpose.
Fix: shuffle=True.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import Built, built, dataset_name, loaders
from clew.lint.index import Block, Where
from clew.lint.model import Fix, Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.training import training
from clew.lint.value import Context, Value

TRAIN = re.compile(r"(^|[._ ])(train|training|tr)(_|$|\.)|trainloader|trainset|train_?(data)?loader|train_dl", re.I)
SERVES = re.compile(
    r"val|test|eval|dev|bn|swa|feature|embed|extract|predict|infer|calib|noshuf|no_shuf|ordered|stat|cache|mean|random|dummy|fake|boring|toy",
    re.I,
)
ORDERED = re.compile(
    r"iterable|stream|shuffl|sampler|sequence|webdataset|time_?series|window|permut|randperm|random_split", re.I
)


@rule("CLW505", "training-not-shuffled", "data.not_shuffled", "likely", "DataLoader backward")
def check(script: Script) -> Iterator[Hit]:
    for call, name in loaders(script):
        if script.tests or not TRAIN.search(name.rsplit(".", 1)[-1]) or SERVES.search(name):
            continue
        if script.starred(call):
            given = spread(script, call)
            off = given.get("shuffle") if given is not None else None
            read = isinstance(off, ast.Constant) and off.value is False
            sampled = {"sampler", "batch_sampler"} & set(given or ())
            if read and not sampled and not iterable(script, call) and trains(script):
                yield Hit(call, "training data is read in its stored order: shuffle is off.", strong(script))
            continue
        shuffle = script.arg(call, 2, "shuffle")
        if shuffle is not None and script.constant(shuffle) is not False:
            continue
        if in_order(script, call, script.where(call)):
            yield Hit(call, "training data is read in its stored order: its sampler is sequential.", strong(script))
            continue
        if any(script.arg(call, at, word) is not None for at, word in ((3, "sampler"), (4, "batch_sampler"))):
            continue
        data = dataset_name(script, call)
        if SERVES.search(data) or ORDERED.search(data) or iterable(script, call):
            continue
        if not trains(script) and not by_class(script, call):
            continue
        edits = (
            (script.replace(shuffle, "True"),)
            if shuffle is not None
            else (script.replace(call, with_shuffle(script, call)),)
        )
        sure = "likely" if shuffle is not None and script.mentions("backward") else "look"
        yield Hit(
            call,
            "training data is read in its stored order: no shuffle and no sampler.",
            sure,
            Fix("shuffle", False, edits),
        )

    yield from by_helper(script)
    yield from by_loop(script)


def spread(script: Script, call: ast.Call) -> dict[str, Any] | None:
    """All keywords of a call, those behind ** included; None when they cannot be read."""
    found: dict[str, Any] = {}
    for word in call.keywords:
        if word.arg is not None:
            found[word.arg] = word.value
            continue
        inner = entries(script, word.value, 3)
        if inner is None:
            return None
        found |= inner
    return found


def entries(script: Script, node: Any, deep: int) -> dict[str, Any] | None:
    """What a dict holds: {"a": 1, **common}, dict(a=1)."""
    if isinstance(node, ast.Name):
        made = script.defs(node.id, script.scope(node))
        node = made[0].value if len(made) == 1 and made[0].how == "=" and not made[0].path else None
    if deep == 0 or node is None:
        return None
    pairs: list[tuple[Any, Any]] = []
    if isinstance(node, ast.Dict):
        pairs = [
            (key.value if isinstance(key, ast.Constant) else key, value)
            for key, value in zip(node.keys, node.values, strict=True)
        ]
    elif isinstance(node, ast.Call) and text(node.func) == "dict" and not node.args:
        pairs = [(word.arg, word.value) for word in node.keywords]
    else:
        return None
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key is None:
            inner = entries(script, value, deep - 1)
            if inner is None:
                return None
            found |= inner
        elif isinstance(key, str):
            found[key] = value
    return found


def strong(script: Script) -> str:
    return "likely" if script.mentions("backward") else "look"


def in_order(script: Script, call: ast.Call, where: Where) -> bool:
    """sampler=SequentialSampler(...), also inside a BatchSampler."""
    given = script.arg(call, 3, "sampler") or script.arg(call, 4, "batch_sampler")
    for value in script.values.value(given, where, None) if given is not None else ():
        if value.kind != "instance" or value.where is None:
            return False
        if value.name.endswith(".BatchSampler"):
            inner = script.arg(value.node, 0, "sampler")
            held = script.values.value(inner, value.where, None) if inner is not None else ()
            return any(one.name.endswith(".SequentialSampler") for one in held)
        return value.name.endswith(".SequentialSampler")
    return False


def by_loop(script: Script) -> Iterator[Hit]:
    """A training loop over a loader of any name, made anywhere, that reads in stored order."""
    made = {call for call, name in loaders(script) if TRAIN.search(name.rsplit(".", 1)[-1])}
    for loop in training(script).training():
        node = loop.block.node
        if script.tests or not isinstance(node, ast.For) or not loop.has("step", "scaler_step"):
            continue
        said = ast.unparse(node.iter)
        made_each = from_dict(script, unwrapped(node.iter))
        if made_each is not None and repeats(script, loop.block):
            yield Hit(made_each, "the training loop reads its data in stored order, epoch after epoch.")
        for value in script.value(unwrapped(node.iter)):
            if not value.name.endswith(".DataLoader") or value.where is None or value.node in made:
                continue
            home = script.at_home(value.where)
            call = value.node
            shuffle = passed(script, value, 2, "shuffle")
            if home.starred(call) or SERVES.search(said) or not repeats(script, loop.block):
                continue
            sequential = in_order(script, call, value.where)
            data = dataset_name(home, call)
            if not sequential and (
                shuffle is None
                or not (isinstance(shuffle, ast.Constant) and shuffle.value is False)
                or any(script.arg(call, at, word) is not None for at, word in ((3, "sampler"), (4, "batch_sampler")))
            ):
                continue
            if SERVES.search(data) or ORDERED.search(data) or (not sequential and iterable(home, call)):
                continue
            related = (Related(home.module.path, call.lineno, "the loader is made here"),) if home is not script else ()
            at = call if home is script else node.iter
            yield Hit(at, "the training loop reads its data in stored order, epoch after epoch.", related=related)


def from_dict(script: Script, node: Any) -> ast.Call | None:
    """loaders["train"] of {part: DataLoader(data, shuffle=False) for part, data in ...}"""
    if (
        not isinstance(node, ast.Subscript)
        or not isinstance(node.slice, ast.Constant)
        or "train" not in str(node.slice.value)
    ):
        return None
    base = node.value
    cls = script.class_of(script.scope(node))
    if isinstance(base, ast.Attribute):
        defs = cls.attrs.get(base.attr, []) if cls is not None else []
    else:
        defs = script.defs(text(base), script.scope(node))
    value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    call = value.value if isinstance(value, ast.DictComp) else None
    if not isinstance(call, ast.Call) or not script.dotted(call.func).endswith("DataLoader") or script.starred(call):
        return None
    off = script.constant(script.arg(call, 2, "shuffle")) is False
    return call if off and script.arg(call, 3, "sampler") is None and not iterable(script, call) else None


def passed(script: Script, value: Value, at: int, name: str) -> Any:
    """What a loader is given, also by the caller of the function that makes it, or as its default."""
    given = script.arg(value.node, at, name)
    if isinstance(given, ast.Name) and value.where is not None:
        context = value.const if isinstance(value.const, Context) else None
        held = script.values.value(given, value.where, context)
        same = len({one.const if one.kind == "const" else one for one in held}) == 1
        return held[0].node if same and held[0].kind == "const" else given
    return given


def unwrapped(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and text(node.func).rsplit(".", 1)[-1] in ("tqdm", "enumerate") and node.args:
        node = node.args[0]
    return node


def repeats(script: Script, block: Block) -> bool:
    """Whether the data is read more than once: in a loop over epochs, here or by the callers."""
    return len(block.loops()) > 1 or any(where.block.loops() for _, where in script.project.callers(block.scope))


def by_helper(script: Script) -> Iterator[Hit]:
    """train_loader = build_loader(...), whose shuffle is off unless somebody asks for it."""
    for made in built(script):
        name = made.name.rsplit(".", 1)[-1]
        if script.tests or not TRAIN.search(name) or SERVES.search(made.name):
            continue
        home = script.at_home(Where(made.func.body, 0))
        shuffle = made.arg(2, "shuffle")
        fixed = Script.arg(made.inner, 2, "shuffle")
        passed = isinstance(fixed, ast.Name) and fixed.id in made.func.params
        off = isinstance(shuffle, ast.Constant) and shuffle.value is False
        never = fixed is None and told_which(made) and not RESULT.search(name)
        if (
            not ((passed and off) or never)
            or made.arg(3, "sampler") is not None
            or made.arg(4, "batch_sampler") is not None
        ):
            continue
        if not iterable(home, made.inner) and trains(script):
            yield Hit(
                made.call,
                f"{made.func.name} does not shuffle by default: training data is read in its stored order.",
                "likely" if script.mentions("backward") else "look",
                related=(Related(made.func.module.path, made.inner.lineno, "the loader is made here"),),
            )


RESULT = re.compile(r"score|acc|loss|metric|result|error|correct", re.I)


def told_which(made: Built) -> bool:
    """get_loader("train", 32): one function for all parts, which is told the part and shuffles none."""
    given = [*made.call.args, *(word.value for word in made.call.keywords)]
    return any(isinstance(arg, ast.Constant) and arg.value in ("train", "training", True) for arg in given)


def with_shuffle(script: Script, call: ast.Call) -> str:
    return f"{script.source(call)[:-1].rstrip().rstrip(',')}, shuffle=True)"


def trains(script: Script) -> bool:
    return script.mentions("backward", "training_step", "fit", "Trainer", "train")


def by_class(script: Script, call: ast.Call) -> bool:
    """A folder of images is read class by class, wherever the loop may be."""
    values = script.value(script.arg(call, 0, "dataset"))
    return all(
        value.name in ("torchvision.datasets.ImageFolder", "torchvision.datasets.DatasetFolder") for value in values
    )


def iterable(script: Script, call: ast.Call) -> bool:
    """Whether the data set decides the order itself, or was shuffled on the way."""
    given = script.arg(call, 0, "dataset")
    if given is None:
        return True
    for value in script.value(given):
        if value.kind == "instance" and value.cls is not None:
            methods = {name for cls in script.values.lineage(value.cls) for name in cls.methods}
            if "__iter__" in methods or any("Iterable" in base for base in script.values.bases(value.cls)):
                return True
            said = ast.unparse(value.cls.node)
            if "shuffle" in said or "random" in said or "randint" in said or "rand(" in said:
                return True
        if value.kind in ("made", "instance") and ORDERED.search(value.name):
            return True
    return any(
        ORDERED.search(ast.unparse(made.value))
        for root in ast.walk(given)
        if isinstance(root, ast.Name)
        for made in script.defs(root.id, script.scope(call))
        if isinstance(made.value, ast.AST)
    )
