"""Inputs and labels that no longer lie side by side, though nothing was shuffled by name."""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.index import Def, Scope
from clew.lint.script import Script, text
from clew.lint.trail import verb

LABELS = re.compile(
    r"^(y|ys|labels?|labs?|targets?|tgts?|gts?|classes|answers|tags|ratings|y_(all|raw|full|np|arr|data)|"
    r"train_?y|y_?tr(ain)?|train_labels?|train_targets?|labels?_(all|np|arr))$",
    re.I,
)
INPUTS = re.compile(
    r"^(x|xs|inputs?|images?|imgs?|feats?|features?|data|signals?|x_(all|raw|full|np|arr|data)|"
    r"train_?x|x_?tr(ain)?|train_(data|images?|features?)|images?_(all|np|arr)|embeddings?|embs?)$",
    re.I,
)
PATHS = re.compile(
    r"^(paths?|files?|filenames?|texts?|sentences|samples|images?_?paths?|docs|rows|sequences|seqs)$", re.I
)
LISTS = ("glob.glob", "os.listdir", "glob.iglob", "os.scandir")


def listed_apart(script: Script) -> Iterator[tuple[Any, str, str]]:
    """self.images = glob("images/*"), self.masks = glob("masks/*"): two listings, each in whatever order."""
    for cls in script.module.classes if script.mentions("glob", "listdir", "iglob") else ():
        getter = cls.methods.get("__getitem__")
        if getter is None or len(getter.params) < 2:
            continue
        index = getter.params[1]
        read = {
            node.value.attr
            for node in script.module.nodes.get(ast.Subscript, [])
            if script.scope(node) is getter and text(node.slice) == index and isinstance(node.value, ast.Attribute)
        }
        loose = [
            (name, defs[0].node)
            for name, defs in cls.attrs.items()
            if name in read and len(defs) == 1 and unsorted(script, defs[0].value) and not put_in_order(script, name)
        ]
        if len(loose) > 1:
            yield loose[1][1], loose[0][0], loose[1][0]


def unsorted(script: Script, node: Any) -> bool:
    """glob.glob(pattern), list(root.glob(pattern)), [join(d, f) for f in os.listdir(d)]"""
    if isinstance(node, ast.ListComp):
        return unsorted(script, node.generators[0].iter)
    if not isinstance(node, ast.Call):
        return False
    if text(node.func) == "list" and node.args:
        return unsorted(script, node.args[0])
    dotted = script.dotted(node.func)
    return dotted in LISTS or (
        not dotted and isinstance(node.func, ast.Attribute) and node.func.attr in ("glob", "rglob")
    )


def put_in_order(script: Script, name: str) -> bool:
    """Whether a list is sorted later on."""
    return any(
        isinstance(above := script.parent(node), ast.Attribute) and above.attr == "sort" for node in script.loads(name)
    )


def cut_to_length(script: Script) -> Iterator[tuple[Any, str, str]]:
    """x = x[keep]; y = y[: len(x)]: rows were picked out of one, and as many taken from the front of the other."""
    for node in script.module.statements.get(ast.Assign, []) if script.mentions("len") else ():
        cut = node.value.slice if isinstance(node.value, ast.Subscript) else None
        upper = cut.upper if isinstance(cut, ast.Slice) and cut.lower is None else None
        if not isinstance(upper, ast.Call) or text(upper.func) != "len" or not upper.args:
            continue
        name, other, where = text(node.targets[0]), text(upper.args[0]), script.where(node)
        picked = any(
            one.how == "=" and one.where.order < where.order and chosen(one.value, other)
            for one in where.block.scope.defs.get(other, [])
        )
        if picked and LABELS.match(name) and INPUTS.match(other):
            yield node, other, name


def chosen(node: Any, name: str) -> bool:
    """x[keep], x[~bad], x[x > 0]"""
    if not isinstance(node, ast.Subscript) or text(node.value) != name:
        return False
    return isinstance(node.slice, ast.Name | ast.UnaryOp | ast.Compare | ast.BinOp)


def zipped_loaders(script: Script) -> Iterator[tuple[Any, str, str]]:
    """for x, y in zip(DataLoader(images, shuffle=True), DataLoader(labels, shuffle=True))"""
    for call in script.calls("zip") if script.mentions("DataLoader") else ():
        if len(call.args) != 2:
            continue
        names: list[str] = []
        for arg in call.args:
            for value in script.value(arg):
                if value.name.endswith(".DataLoader") and isinstance(value.node, ast.Call):
                    shuffled = script.constant(script.arg(value.node, 2, "shuffle")) is True
                    names.append(text(script.arg(value.node, 0, "dataset")).rsplit(".", 1)[-1] if shuffled else "")
        if len(names) == 2 and INPUTS.match(names[0]) and LABELS.match(names[1]):
            yield call, names[0], names[1]


def sorted_alone(script: Script) -> Iterator[tuple[Any, str, str]]:
    """self.paths = sorted(paths) beside self.labels = labels, where both are handed over together."""
    for cls in script.module.classes:
        init = cls.methods.get("__init__")
        plain = {name: bare_param(init, defs) for name, defs in cls.attrs.items()} if init is not None else {}
        for name, defs in cls.attrs.items() if init is not None else ():
            value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
            if not isinstance(value, ast.Call) or verb(value) not in ("sorted", "sort") or len(value.args) != 1:
                continue
            given = text(value.args[0])
            kind = LABELS.match(name) or PATHS.match(name) or INPUTS.match(name)
            if init is None or not kind or given not in init.params:
                continue
            for other, param in plain.items():
                pair = LABELS.match(other) if not LABELS.match(name) else PATHS.match(other) or INPUTS.match(other)
                if param and pair and param != given:
                    yield defs[0].node, name, other


def bare_param(init: Scope | None, defs: list[Def]) -> str:
    """labels of `self.labels = labels`, also as list(labels)"""
    value = defs[0].value if len(defs) == 1 and defs[0].how == "=" and not defs[0].path else None
    if (
        isinstance(value, ast.Call)
        and text(value.func) in ("list", "np.array", "torch.tensor")
        and len(value.args) == 1
    ):
        value = value.args[0]
    return value.id if isinstance(value, ast.Name) and init is not None and value.id in init.params else ""
