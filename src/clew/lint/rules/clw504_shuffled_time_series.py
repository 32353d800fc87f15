"""Time-ordered data is split at random.

What it sees: train_test_split that shuffles, or a shuffled KFold, on rows that were sorted by time, carry lags,
rolling windows or differences, or are indexed by date.
Why it matters: neighbouring moments land on both sides. The model interpolates between rows it has seen, and the
score promises a forecast it cannot make.
Silent when: shuffle=False, TimeSeriesSplit, or nothing in sight says that the rows follow each other.
Fix: split at a date, or TimeSeriesSplit.
"""

import ast
from collections.abc import Iterator

from clew.lint.data import Split, helper, roots, sources, splits
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TIMELY = frozenset("shift rolling pct_change ewm expanding".split())
WORDS = ("date", "time", "timestamp", "datetime", "day")


@rule("CLW504", "shuffled-time-series", "data.leak_temporal", "likely", "train_test_split KFold random_split")
def check(script: Script) -> Iterator[Hit]:
    for split in splits(script):
        shuffle = script.arg(split.call, -1, "shuffle")
        if script.constant(shuffle) is False or script.starred(split.call):
            continue
        frames = set(split.given)
        for name in split.given:
            for made in sources(split.where.block.scope, name, split.where.order):
                frames |= (
                    {part.id for part in ast.walk(made.value) if isinstance(part, ast.Name)}
                    if isinstance(made.value, ast.AST)
                    else set()
                )
        why = ordered(script, frames, split.where.order) or by_helper(script, split)
        if why:
            yield Hit(split.call, f"rows that follow each other in time ({why}) are divided at random.")

    yield from of_windows(script)
    for call, _ in script.calls_to("sklearn.model_selection.", "cross_val_score", "cross_validate"):
        fold = script.arg(call, -1, "cv")
        values = script.value(fold) if fold is not None else ()
        if not any(value.name.endswith("KFold") and shuffles(script, value.node) for value in values):
            continue
        where = script.where(call)
        frames = {root for arg in call.args[1:] for root in roots(arg)}
        for name in list(frames):
            for made in sources(where.block.scope, name, where.order):
                frames |= set(roots(made.value)) if isinstance(made.value, ast.AST) else set()
        why = ordered(script, frames, where.order)
        if why:
            yield Hit(fold, f"rows that follow each other in time ({why}) are dealt to folds at random.")


def by_helper(script: Script, split: Split) -> str:
    """A frame that a function of the project made, sorted by time or with lags of other rows."""
    for name in split.given:
        for made in sources(split.where.block.scope, name, split.where.order):
            func = helper(script, made.value, made.where)
            for call in func.calls if func is not None else ():
                assert func is not None
                verb = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                said = ast.unparse(call).lower()
                timed = verb in ("sort_values", "set_index") and any(f"'{word}'" in said for word in WORDS)
                if verb in TIMELY or timed:
                    return f"{verb} in {func.name}"
    return ""


def of_windows(script: Script) -> Iterator[Hit]:
    """random_split of a data set that a function of the project cut out of rows in time."""
    for call, _ in script.calls_to("torch.utils.data.", "random_split"):
        given = [root for arg in call.args[:1] for root in roots(arg)]
        why = by_helper(script, Split(call, script.where(call), given, []))
        if why:
            yield Hit(call, f"rows that follow each other in time ({why}) are divided at random.")


def shuffles(script: Script, call: ast.Call) -> bool:
    return script.constant(script.arg(call, 1, "shuffle")) is True


def ordered(script: Script, frames: set[str], before: int) -> str:
    """What says that the rows of one of these frames are ordered in time."""
    for call in script.calls("sort_values", "set_index", *TIMELY):
        if not isinstance(call.func, ast.Attribute) or script.where(call).order > before:
            continue
        names = {part.id for part in ast.walk(call.func) if isinstance(part, ast.Name)} | targets(script, call)
        if not names & frames:
            continue
        name = call.func.attr
        said = ast.unparse(call).lower()
        if name in TIMELY:
            return f"{name} on line {call.lineno}"
        if any(word in str(script.constant(arg)).lower() for arg in call.args[:1] for word in WORDS) or any(
            f"'{word}'" in said for word in WORDS
        ):
            return f"{name} by time on line {call.lineno}"
    return ""


def targets(script: Script, call: ast.Call) -> set[str]:
    statement = script.statement(call)
    return (
        {text(target).split(".")[0].split("[")[0] for target in statement.targets}
        if isinstance(statement, ast.Assign)
        else set()
    )
