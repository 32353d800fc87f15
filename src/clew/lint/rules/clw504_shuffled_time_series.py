"""Time-ordered data is split at random.

What it sees: train_test_split that shuffles, random_split, a shuffled KFold or a permutation of indices, on rows that
were sorted by time, carry lags, rolling windows or differences, are indexed by date, or are windows of one series,
here or in functions, data sets and files of the project.
Why it matters: neighbouring moments land on both sides. The model interpolates between rows it has seen, and the score
does not reflect real forecasts.
Silent when: shuffle=False, TimeSeriesSplit, or nothing in sight says that the rows follow each other.
Fix: split at a date, or use TimeSeriesSplit.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.data import Split, helper, roots, sources, splits
from clew.lint.divide import divided, divisions
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, one_a_line, text
from clew.lint.trail import trail, verb

TIMELY = frozenset("shift rolling pct_change ewm expanding".split())
WORDS = ("date", "time", "timestamp", "datetime", "day")


@rule(
    "CLW504",
    "shuffled-time-series",
    "data.leak_temporal",
    "likely",
    "train_test_split KFold random_split StratifiedKFold ShuffleSplit randperm permutation",
)
def check(script: Script) -> Iterator[Hit]:
    yield from one_a_line((*directly(script), *followed(script)))


def directly(script: Script) -> Iterator[Hit]:
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
            yield Hit(split.call, f"rows ordered in time ({why}) are split at random.")

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
            yield Hit(fold, f"rows ordered in time ({why}) are assigned to folds at random.")


def followed(script: Script) -> Iterator[Hit]:
    """The same through helpers, attributes and other files, for folds and data sets as well."""
    for division in divisions(script):
        if not division.random:
            continue
        stop = divided(script, slices=False)
        for step in (one for row in division.rows for one in trail(script, row, division.where, stop)):
            why = in_time(step.node, step.where)
            if why:
                yield Hit(division.node, f"rows ordered in time ({why}) are split at random.")
                break


def in_time(node: ast.AST, where: Where | None = None) -> str:
    """What says that rows follow each other in time."""
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return "windows of neighbouring rows" if windows(node) else ""
    name = verb(node)
    if isinstance(node, ast.Subscript) and where is not None:
        return "windows of neighbouring rows" if window_of(node, where) else ""
    if not isinstance(node, ast.Call):
        return ""
    if name in TIMELY or name in ("sliding_window_view", "asfreq"):
        return str(name)
    if name in ("sort_values", "set_index", "to_datetime", "sort_index", "read_csv", "read_parquet", "groupby"):
        said = ast.unparse(node).lower()
        if name in ("read_csv", "read_parquet"):
            return "parse_dates" if "parse_dates" in said and "index_col" in said else ""
        if name == "groupby":
            return ""
        return str(name) if TIMED.search(said) and name != "to_datetime" else ""
    return ""


def window_of(node: ast.Subscript, where: Where) -> bool:
    """self.series[i : i + self.width] in __getitem__: neighbours share all rows but one."""
    scope, cut = where.block.scope, node.slice
    if scope.name != "__getitem__" or len(scope.params) < 2 or not isinstance(cut, ast.Slice):
        return False
    index = scope.params[1]
    upper = cut.upper
    wide = isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add) and text(upper.left) == index
    return text(cut.lower) == index and wide and all(made.how == "param" for made in scope.defs.get(index, []))


def windows(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """[x[i : i + n] for i in range(len(x) - n)]"""
    if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
        return False
    each = node.generators[0].target.id
    counts = node.generators[0].iter
    if not isinstance(counts, ast.Call) or text(counts.func) != "range":
        return False
    step = ast.unparse(counts.args[2]) if len(counts.args) == 3 else "1"
    for part in ast.walk(node.elt):
        if isinstance(part, ast.Slice) and isinstance(part.lower, ast.Name) and isinstance(part.upper, ast.BinOp):
            wide = part.upper.right if text(part.upper.left) == each else part.upper.left
            # Pieces that lie end to end share no rows.
            if part.lower.id == each and each in ast.unparse(part.upper) and ast.unparse(wide) != step:
                return True
    return False


TIMED = re.compile(r"['\"](\w*_)?(date|time|timestamp|datetime|day|hour|week|month|ts|period)(_\w*)?['\"]")


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
            yield Hit(call, f"rows ordered in time ({why}) are split at random.")


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
