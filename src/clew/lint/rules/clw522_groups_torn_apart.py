"""Rows that belong together are split one by one.

What it sees: a random split of a frame by rows, in a file that counts or groups the rows by a column of patients,
subjects, users, speakers or the like.
Why it matters: rows of one person land on both sides. The model recognises the person, and the score does not predict
performance on new ones.
Silent when: a splitter for groups is used, or the column is only dropped.
Fix: GroupShuffleSplit, GroupKFold, or a split of the ids themselves.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.divide import divisions
from clew.lint.registry import rule
from clew.lint.script import Hit, Script
from clew.lint.trail import verb

GROUP = re.compile(
    r"^(patient|subject|person|speaker|user|participant|donor|animal|video|session|slide|study|author|customer|"
    r"household|device|plot|well|specimen)s?(_?(id|ids|no|num|name|code|uid))?$",
    re.I,
)
COUNTS = ("groupby", "nunique", "unique", "value_counts", "duplicated", "drop_duplicates")
AWARE = ("GroupKFold", "GroupShuffleSplit", "StratifiedGroupKFold", "LeaveOneGroupOut", "groups", "LeavePGroupsOut")


@rule("CLW522", "groups-torn-apart", "data.leak_split", "look", "train_test_split random_split KFold StratifiedKFold")
def check(script: Script) -> Iterator[Hit]:
    if script.mentions(*AWARE) or not script.mentions(*COUNTS):
        return
    column = counted(script)
    for division in divisions(script) if column else ():
        # A split of the ids themselves keeps rows together.
        ids = any(GROUP.search(name) for row in division.rows for name in whole(script, row)) or not division.random
        if division.kind in ("split", "folds", "cross") and not ids:
            yield Hit(division.node, f"rows of one {column} may land on both sides: rows are split one by one.")


def counted(script: Script) -> str:
    """The column of persons or things that the file counts or groups by."""
    for call in script.calls(*COUNTS):
        for part in ast.walk(call):
            said = part.value if isinstance(part, ast.Constant) else getattr(part, "attr", "")
            if isinstance(said, str) and GROUP.search(said) and verb(call) in COUNTS:
                return said
    return ""


def whole(script: Script, row: ast.expr) -> list[str]:
    """The names in what is divided, and in what a name was set to."""
    defs = script.defs(row.id, script.scope(row)) if isinstance(row, ast.Name) else []
    held = [made.value for made in defs if made.how == "=" and isinstance(made.value, ast.Call | ast.Attribute)]
    return [name for node in (row, *held) for name in names(node)]


def names(node: ast.AST) -> list[str]:
    return [
        part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else str(part.value)
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute | ast.Constant)
    ]
