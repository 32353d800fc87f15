"""Whether a part of a data frame is one column, and so has one axis, or a frame of one column, which has two."""

import ast
from typing import Any

from clew.lint.flow import outward
from clew.lint.index import Where
from clew.lint.script import Script

# Methods of pandas that keep the axes as they are.
KEEPS = frozenset(
    "astype fillna map apply clip copy dropna reset_index replace abs round shift ffill bfill sort_index eq ne gt ge "
    "lt le isin sub add mul div rank where mask interpolate infer_objects sample".split()
)
# Functions of numpy that work number by number.
NUMPY = frozenset(
    f"numpy.{name}"
    for name in (
        "log log1p log10 log2 exp expm1 sqrt cbrt square abs absolute sign clip nan_to_num float32 float64 int64 tanh "
        "ascontiguousarray round sin cos negative power maximum minimum".split()
    )
)


def part(script: Script, node: Any, where: Where, deep: int = 6) -> str:
    """`flat` for df["price"], `column` for df[["price"]], also behind names and methods that keep the shape; or ""."""
    if deep == 0:
        return ""
    if isinstance(node, ast.Subscript):
        key = node.slice
        if isinstance(node.value, ast.Attribute) and node.value.attr == "loc" and isinstance(key, ast.Tuple):
            key = key.elts[-1]
        if isinstance(key, ast.List):
            return "column" if len(key.elts) == 1 and isinstance(script.constant(key.elts[0]), str) else ""
        return "flat" if isinstance(script.constant(key), str) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "pop":
            return "flat" if len(node.args) == 1 and isinstance(script.constant(node.args[0]), str) else ""
        return part(script, node.func.value, where, deep - 1) if node.func.attr in KEEPS else ""
    if isinstance(node, ast.Name):
        made = outward(node.id, where)
        plain = len(made) == 1 and made[0].how == "=" and not made[0].path
        return part(script, made[0].value, made[0].where, deep - 1) if plain else ""
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        return part(script, node.left, where, deep - 1)
    return ""


def of_frame(script: Script, node: ast.Subscript, where: Where) -> str:
    """The same where the frame itself is in sight: an array of several axes may lie under a name in other tables."""
    values = script.values.value(node.value, where, None)
    known = all(value.kind in ("made", "instance") and value.name.startswith("pandas.") for value in values)
    return part(script, node, where) if known else ""


def plain(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def of_table(script: Script, index: Any) -> str:
    """data[:, -1] is flat; data[:, -1:] and data[:, [3]] are columns."""
    if plain(script.constant(index)):
        return "flat"
    if isinstance(index, ast.List) and len(index.elts) == 1:
        return "column"
    low = script.constant(index.lower) if isinstance(index, ast.Slice) and index.upper is index.step is None else None
    return "column" if low == -1 else ""


TABLES = ("numpy.loadtxt", "numpy.genfromtxt", "pandas.read_csv", "pandas.read_parquet", "pandas.DataFrame")


def table(script: Script, node: Any, where: Where, deep: int) -> bool:
    """Whether an array has two axes: read from a table of numbers, or all columns of a frame."""
    if deep <= 0:
        return False
    if isinstance(node, ast.Attribute) and node.attr in ("values", "iloc", "loc"):
        return table(script, node.value, where, deep - 1)
    if isinstance(node, ast.Call):
        if script.at_home(where).dotted(node.func) in TABLES:
            return True
        kept = isinstance(node.func, ast.Attribute) and node.func.attr in ("to_numpy", "astype", "dropna", "copy")
        wraps = script.at_home(where).dotted(node.func) in (
            "torch.tensor",
            "torch.from_numpy",
            "torch.as_tensor",
            "numpy.array",
        )
        inner = node.func.value if kept else node.args[0] if wraps and node.args else None  # type: ignore[attr-defined]
        return inner is not None and table(script, inner, where, deep - 1)
    if isinstance(node, ast.Subscript):
        cut = isinstance(node.slice, ast.Slice)
        return cut and table(script, node.value, where, deep - 1)
    if isinstance(node, ast.Name):
        defs = outward(node.id, where)
        return bool(defs) and all(
            made.how == "=" and not made.path and table(script, made.value, made.where, deep - 1) for made in defs
        )
    return False


def target(script: Script, node: Any) -> bool:
    """Whether the second of what a call returns is a row of targets: x, y = load_iris(return_X_y=True)."""
    if not isinstance(node, ast.Call) or not script.dotted(node.func).startswith("sklearn.datasets."):
        return False
    makes = script.dotted(node.func).rsplit(".", 1)[-1].startswith(("make_regression", "make_classification"))
    single = script.arg(node, -1, "n_targets") is None
    return (makes and single) or script.constant(script.arg(node, -1, "return_X_y")) is True


LABELLED = frozenset("y label labels target score rating price value age".split())


def numbers(script: Script, node: ast.ListComp) -> bool:
    """[row["y"] for row in rows], [float(v) for v in values]: one number for each."""
    item = node.elt
    if isinstance(item, ast.Call) and script.dotted(item.func) in ("builtins.float", "builtins.int"):
        return True
    key = script.constant(item.slice) if isinstance(item, ast.Subscript) else getattr(item, "attr", None)
    return isinstance(key, str) and key.lower() in LABELLED
