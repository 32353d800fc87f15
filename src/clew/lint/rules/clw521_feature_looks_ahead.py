"""A feature is computed from rows that come later.

What it sees: a centred window, a value moved back from later rows, a fill from the next value, a window over reversed
rows or a smoother that looks both ways, kept as a column of rows in time that a model is then fitted on, and not as its
target. A helper that returns what such a smoother made counts where it is called, if the file takes its targets from
later rows.
Why it matters: at the moment of prediction those rows do not exist. The score is far too good, and it does not hold in
use.
Silent when: the column is the target by its name or use, or nothing says that rows follow each other in time.
Fix: use windows that end at the row itself, and lags with a positive shift.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text
from clew.lint.trail import root, verb

AIM = re.compile(
    r"target|label|(^|_)(y|next|future|fwd|forward|ahead|tomorrow|goal|outcome|response|actual|truth|horizon|lead)(_|\d|$)",
    re.I,
)
LAG = re.compile(r"(^|_)(lag|prev|previous|yesterday|last)(_|\d|$)", re.I)
TIME = re.compile(
    r"['\"](\w*_)?(date|time|timestamp|datetime|day|hour|week|month|ts|period)(_\w*)?['\"]|parse_dates", re.I
)
YS = re.compile(r"^ys?$|(^|_)(y|ys|target|targets|label|labels|future)(_|$)", re.I)
BOTH = ("savgol_filter", "gaussian_filter1d", "filtfilt", "uniform_filter1d", "medfilt")


@rule(
    "CLW521",
    "feature-looks-ahead",
    "data.leak_temporal",
    "likely",
    "rolling shift bfill backfill fillna savgol_filter gaussian_filter1d filtfilt",
)
def check(script: Script) -> Iterator[Hit]:
    found = [(call, why) for call in candidates(script) if (why := looks_ahead(script, call))]
    if not found or not learns(script):
        return
    forecast = in_time(script)
    for call, why in found:
        column = kept_in(script, call)
        if column is None and verb(call) in BOTH and forecasts(script):
            column = handed_on(script, call)
        if column is None or AIM.search(column) or not forecast:
            continue
        if only_target(script, column, call):
            continue
        told = f"{why}: {column or 'the feature'} uses later rows"
        if (of := base(script, call)) and of in aimed_at(script):
            yield Hit(call, f"{told}, and the target is {of} of a later row.", "certain")
        else:
            yield Hit(call, f"{told}.")


def handed_on(script: Script, call: ast.Call) -> str | None:
    """Where the result of a function is kept that returns what the call made; None where nobody keeps it."""
    if not isinstance(script.statement(call), ast.Return):
        return None
    functions = [node for node in ast.walk(script.module.tree) if isinstance(node, ast.FunctionDef)]
    around = [held for held in functions if held.lineno <= call.lineno <= (held.end_lineno or 0)]
    callers = script.calls(max(around, key=lambda held: held.lineno).name) if around else ()
    kept = [column for other in callers if (column := kept_in(script, other)) is not None]
    return next((column for column in kept if not AIM.search(column)), kept[0] if kept else None)


def forecasts(script: Script) -> bool:
    """Whether targets are taken from later rows: ys.append(load[t + 1]), y[i] = series[i + horizon]."""
    for node in script.module.nodes.get(ast.Subscript, []):
        at = node.slice
        if not isinstance(node.ctx, ast.Load) or not (isinstance(at, ast.BinOp) and isinstance(at.op, ast.Add)):
            continue
        if not isinstance(at.left, ast.Name):
            continue
        statement = script.statement(node)
        if isinstance(statement, ast.Assign):
            names = [text(statement.targets[0]) or root(statement.targets[0])]
        else:
            held = statement.value if isinstance(statement, ast.Expr) else None
            names = [root(held.func)] if isinstance(held, ast.Call) and verb(held) == "append" else []
        if any(YS.search(name) for name in names):
            return True
    return False


def candidates(script: Script) -> Iterator[ast.Call]:
    yield from script.calls("rolling", "shift", "bfill", "backfill", "fillna", "diff", "pct_change", *BOTH)


def looks_ahead(script: Script, call: ast.Call) -> str:
    last = verb(call)
    if last == "rolling":
        if script.constant(script.arg(call, -1, "center")) is True:
            return "the window is centred"
        return "the window runs over reversed rows" if reversed_rows(call) and not turned_back(script, call) else ""
    if last in ("shift", "diff", "pct_change"):
        return "the shift brings in values of later rows" if _back(script, script.arg(call, 0, "periods")) else ""
    if last in ("bfill", "backfill"):
        return "gaps are filled from the next value"
    if last == "fillna":
        return (
            "gaps are filled from the next value"
            if script.constant(script.arg(call, -1, "method")) in ("bfill", "backfill")
            else ""
        )
    return "the filter runs in both directions" if script.dotted(call.func).startswith("scipy.") else ""


def base(script: Script, call: ast.Call) -> str:
    """The column that is worked on: load of df["load"].rolling(7)."""
    at: Any = call.func.value if isinstance(call.func, ast.Attribute) else None
    while isinstance(at, ast.Call) and isinstance(at.func, ast.Attribute):
        at = at.func.value
    said = script.constant(at.slice) if isinstance(at, ast.Subscript) else None
    return said if isinstance(said, str) else ""


def aimed_at(script: Script) -> set[str]:
    """Columns of which a later row is the target."""
    calls = [call for call in script.calls("shift") if _back(script, script.arg(call, 0, "periods"))]
    return {base(script, call) for call in calls if AIM.search(kept_in(script, call) or "")}


def _back(script: Script, by: ast.expr | None) -> bool:
    """A number below zero, or minus something that is set elsewhere."""
    said = script.constant(by) if by is not None else None
    if isinstance(said, int) and not isinstance(said, bool):
        return said < 0
    return isinstance(by, ast.UnaryOp) and isinstance(by.op, ast.USub)


def reversed_rows(call: ast.Call) -> bool:
    """x[::-1].rolling(...), x.iloc[::-1].rolling(...)"""
    at: Any = call.func
    while isinstance(at, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(at, ast.Subscript) and isinstance(at.slice, ast.Slice) and at.slice.step is not None:
            return ast.unparse(at.slice.step) == "-1"
        at = at.func if isinstance(at, ast.Call) else at.value
    return False


def turned_back(script: Script, call: ast.Call) -> bool:
    """Whether the window's result is a target: the sum over the next days is often one."""
    return AIM.search(kept_in(script, call) or "") is not None


def kept_in(script: Script, call: ast.Call) -> str | None:
    """The column that a statement sets: df["trend"] = ..., df.assign(trend=...), {"trend": ...}; "" for a whole frame;
    None where it is not kept as a column."""
    at: ast.AST | None = call
    while at is not None and not isinstance(at, ast.stmt):
        above = script.parent(at)
        if isinstance(above, ast.keyword):
            return above.arg or ""
        if isinstance(above, ast.Dict) and at in above.values:
            key = above.keys[above.values.index(at)]
            return str(script.constant(key, "")) if key is not None else ""
        if isinstance(above, ast.Compare):
            return None  # (next > now) is a target in most programs
        at = above
    if not isinstance(at, ast.Assign):
        return None
    target = at.targets[0]
    if isinstance(target, ast.Subscript):
        key = target.slice.elts[-1] if isinstance(target.slice, ast.Tuple) and target.slice.elts else target.slice
        if isinstance(key, ast.JoinedStr):
            return "".join(str(part.value) for part in key.values if isinstance(part, ast.Constant))
        said = script.constant(key)
        return said if isinstance(said, str) else text(key) or ast.unparse(key)
    if isinstance(target, ast.Name):
        return target.id
    return target.attr if isinstance(target, ast.Attribute) else None


def only_target(script: Script, column: str, call: ast.Call) -> bool:
    """Whether the column is asked for by itself, as what is to be predicted, and dropped from the features: y =
    df["up"], df.drop(columns=["up"]); or the name is the second thing that fit is given."""
    for other in script.calls("fit", "train_test_split", "cross_val_score"):
        given = script.arg(other, 1 if verb(other) != "cross_val_score" else 2, "y")
        if given is None:
            continue
        if text(given) == column or (isinstance(given, ast.Subscript) and script.constant(given.slice) == column):
            return True
    for node in script.module.nodes.get(ast.Subscript, []):
        if not isinstance(node.ctx, ast.Load) or script.constant(node.slice) != column:
            continue
        statement = script.statement(node)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Tuple):
            names = [text(item) for item in target.elts]
        else:
            names = [text(target)] if target is not None else []
        if any(AIM.search(name) for name in names) and root(node.value) not in ("", *names):
            return True
    return any(
        column in {part.value for part in ast.walk(other) if isinstance(part, ast.Constant)}
        for other in script.calls("drop")
    ) and not isinstance(script.statement(call), ast.Return)


def learns(script: Script) -> bool:
    """Whether a model is fitted here or in a file that uses this one."""
    if any(script.calls("fit", "backward", "cross_val_score", "train", "fit_predict")):
        return True
    path = script.module.path
    return script.project.neighbours_with(path, ".fit(") > 0 or script.project.neighbours_with(path, ".backward(") > 0


def in_time(script: Script) -> bool:
    """Whether rows follow each other: dates are read or sorted by, lags are taken, a target lies in the future."""
    if any(
        verb(call) in ("pct_change", "ewm", "TimeSeriesSplit", "to_datetime", "asfreq", "resample")
        for call in times(script)
    ):
        return True
    if any(
        (column := kept_in(script, call)) and ((AIM.search(column) and looks_ahead(script, call)) or LAG.search(column))
        for call in script.calls("shift")
    ):
        return True
    return any(
        TIME.search(ast.unparse(call)) for call in script.calls("read_csv", "sort_values", "set_index", "read_parquet")
    )


def times(script: Script) -> Iterator[ast.Call]:
    yield from script.calls("pct_change", "ewm", "TimeSeriesSplit", "to_datetime", "asfreq", "resample")
