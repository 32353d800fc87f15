"""A metric that should grow is monitored as if it should shrink, or the reverse.

What it sees: ReduceLROnPlateau that is stepped with an accuracy in mode "min" or with a loss in mode "max"; early
stopping, checkpoints, Trainer arguments and Optuna studies whose direction does not fit the name of what they watch;
`if accuracy < best: best = accuracy`, and max() or min() over results by such a name.
Why it matters: the learning rate is cut while the model improves, or the worst checkpoint is kept and reported as the
best. Nothing raises, and the training curve looks right.
Silent when: the name of the metric does not tell which way is better, or the sign is flipped.
Fix: set the mode that fits the metric: "max" for accuracies and scores, "min" for losses and errors.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.data import helper
from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.model import Related
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

UP = re.compile(
    r"(^|[^a-z])(acc|accuracy|top1|top5|auc|auroc|roc_auc|f1|f1_score|map|miou|iou|dice|psnr|ssim|bleu|rouge|recall|"
    r"precision|r2|kappa|mcc|accuracies|hits|ndcg|mrr|success_rate)([^a-z]|$)",
    re.I,
)
DOWN = re.compile(
    r"(^|[^a-z])(loss|losses|err|error|mse|mae|rmse|nll|ppl|perplexity|wer|cer|fid|mape|logloss)([^a-z]|$)", re.I
)
WATCHERS = ("EarlyStopping", "ModelCheckpoint")
BETTER = {"max": "larger", "min": "smaller"}


@rule(
    "CLW307",
    "metric-direction",
    "loss.metric_misaligned",
    "likely",
    (
        "ReduceLROnPlateau EarlyStopping ModelCheckpoint metric_for_best_model create_study best best_acc best_loss "
        "best_val best_val_loss best_val_acc best_score best_metric max min"
    ),
)
def check(script: Script) -> Iterator[Hit]:
    if script.tests:
        return
    yield from plateaus(script)
    yield from watchers(script)
    yield from studies(script)
    yield from kept(script)
    yield from chosen(script)


def way(name: str) -> str:
    """`max` when more is better, `min` when less is, "" when the name does not say, or says both."""
    up, down = bool(UP.search(name)), bool(DOWN.search(name))
    if up == down or re.search(r"neg|minus|inv|1m|one_minus", name, re.I):
        return ""
    return "max" if up else "min"


def figure(script: Script, node: Any, where: Where, deep: int = 4) -> str:
    """Which way a figure is better, by its name, by the function it came out of, or by the key it is kept under."""
    if deep == 0 or isinstance(node, ast.UnaryOp | ast.BinOp):
        return ""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else text(node.func)
        if name in ("item", "mean", "cpu", "float") and isinstance(node.func, ast.Attribute):
            return figure(script, node.func.value, where, deep - 1)
        if name in ("mean", "float", "round") and node.args:
            return figure(script, node.args[0], where, deep - 1)
        if name in ("cross_val_score", "cross_validate"):
            said = script.constant(script.arg(node, -1, "scoring"))
            return "max" if said is None or isinstance(said, str) else ""  # sklearn's scores are all to be maximised
        func = helper(script, node, where)
        if func is not None and len(func.returns) == 1 and not way(name):
            return figure(script, func.returns[0][0], func.returns[0][1], deep - 1)
        return way(name)
    if isinstance(node, ast.Subscript):
        key = script.constant(node.slice)
        return way(key) if isinstance(key, str) else figure(script, node.value, where, deep - 1)
    said = way(text(node).rsplit(".", 1)[-1])
    if said or not isinstance(node, ast.Name):
        return said
    defs = where.block.scope.defs.get(node.id, [])
    held = reaching(defs, where) if defs else []
    if len(held) != 1 or held[0].how != "=":
        return ""
    if not held[0].path:
        return figure(script, held[0].value, held[0].where, deep - 1)
    func = helper(script, held[0].value, held[0].where)
    given = func.returns[0] if func is not None and len(func.returns) == 1 and len(held[0].path) == 1 else None
    inside = isinstance(given[0], ast.Tuple) and held[0].path[0] < len(given[0].elts) if given else False
    return figure(script, given[0].elts[held[0].path[0]], given[1], deep - 1) if given and inside else ""  # type: ignore[attr-defined]


def plateaus(script: Script) -> Iterator[Hit]:
    for call in script.calls("step"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        given = script.arg(call, 0, "metrics")
        values = script.value(base) if base is not None and given is not None else ()
        if len(values) != 1 or not values[0].name.endswith("ReduceLROnPlateau"):
            continue
        made = values[0].node
        said = script.arg(made, 1, "mode")
        mode = script.constant(said, "?") if said is not None else "min"
        better = figure(script, given, script.where(call))
        if better and mode in BETTER and mode != better:
            told = f"looks for a plateau in mode {mode!r}, but {BETTER[better]} is better for this metric."
            if said is not None and said in script.module.up:
                place = (Related(script.module.path, call.lineno, "the scheduler gets the metric here"),)
                yield Hit(said, told, related=place)
            else:
                yield Hit(call, told, related=script.related(values[0], "the scheduler is made here"))


def watchers(script: Script) -> Iterator[Hit]:
    for call in script.calls(*WATCHERS, "TrainingArguments", "Seq2SeqTrainingArguments"):
        name = text(call.func).rsplit(".", 1)[-1]
        if name.endswith("TrainingArguments"):
            watched = script.constant(script.arg(call, -1, "metric_for_best_model"))
            larger = script.constant(script.arg(call, -1, "greater_is_better"))
            mode = {True: "max", False: "min"}.get(larger, "") if isinstance(larger, bool) else ""
        else:
            watched = script.constant(script.arg(call, -1 if name == "ModelCheckpoint" else 0, "monitor"))
            said = script.arg(call, -1, "mode")
            lightning = "lightning" in script.dotted(call.func)
            mode = script.constant(said, "") if said is not None else "min" if lightning else ""
        better = way(watched) if isinstance(watched, str) else ""
        if better and mode in BETTER and mode != better:
            place = script.arg(call, -1, "greater_is_better") or script.arg(call, -1, "mode") or call
            yield Hit(place, f"watches {watched} with mode {mode!r}, but {BETTER[better]} is better for it.")
    for node in script.module.nodes.get(ast.Dict, []):
        yield from configured(script, node)


def configured(script: Script, node: ast.Dict) -> Iterator[Hit]:
    """{"scheduler": ReduceLROnPlateau(opt, mode="max"), "monitor": "val_loss"} in Lightning."""
    held = {
        key.value: value for key, value in zip(node.keys, node.values, strict=True) if isinstance(key, ast.Constant)
    }
    watched = script.constant(held.get("monitor"))
    made = script.value(held["scheduler"]) if isinstance(watched, str) and "scheduler" in held else ()
    if len(made) == 1 and made[0].name.endswith("ReduceLROnPlateau") and isinstance(watched, str):
        said = script.arg(made[0].node, 1, "mode")
        mode, better = script.constant(said, "?") if said is not None else "min", way(watched)
        if better and mode in BETTER and mode != better:
            yield Hit(made[0].node, f"watches {watched} in mode {mode!r}, but {BETTER[better]} is better for it.")


def studies(script: Script) -> Iterator[Hit]:
    """optuna.create_study(direction="minimize") over an objective that returns an accuracy."""
    for call in script.calls("optimize"):
        base = call.func.value if isinstance(call.func, ast.Attribute) else None
        values = script.value(base) if base is not None and call.args else ()
        if len(values) != 1 or not values[0].name.endswith("create_study"):
            continue
        said = script.arg(values[0].node, -1, "direction")
        asked = script.constant(said, "?") if said is not None else "minimize"
        mode = {"minimize": "min", "maximize": "max"}.get(str(asked), "")
        for value in script.value(call.args[0]):
            func = value.func if value.kind == "function" else None
            if func is not None and isinstance(func.node, ast.Lambda):
                func = helper(script, func.node.body, script.where(func.node.body))  # lambda trial: objective(trial, X)
            found = {figure(script, given, where) for given, where in func.returns} if func is not None else set()
            better = found.pop() if len(found) == 1 else ""
            if mode and better and mode != better:
                yield Hit(values[0].node, f"the study is to {asked}, but {BETTER[better]} is better for its objective.")


def kept(script: Script) -> Iterator[Hit]:
    """if acc < best_acc: best_acc = acc"""
    for node in script.module.statements.get(ast.If, []):
        test = node.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        op = test.ops[0]
        left, right = text(test.left), text(test.comparators[0])
        if not left or not right or not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
            continue
        best, new, below = right, left, isinstance(op, ast.Lt | ast.LtE)
        if "best" in left.lower() and "best" not in right.lower():
            best, new, below = left, right, not below
        if "best" not in best.lower() or "best" in new.lower():
            continue
        taken = any((best, new) in given(part) for part in node.body)
        source = test.left if text(test.left) == new else test.comparators[0]
        better = figure(script, source, script.where(node)) if taken else ""
        if better and (better == "min") != below:
            yield Hit(test, f"keeps the worst checkpoint: for {new} {BETTER[better]} is better.")


def given(node: ast.stmt) -> list[tuple[str, str]]:
    """The names that a statement sets, with the names they are set to."""
    if not isinstance(node, ast.Assign):
        return []
    target, value = node.targets[0], node.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [(text(one), text(other)) for one, other in zip(target.elts, value.elts, strict=True)]
    return [(text(target), text(value))]


def chosen(script: Script) -> Iterator[Hit]:
    """best = max(results, key=lambda r: r["val_loss"])"""
    for call in script.calls("max", "min"):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        key = script.arg(call, -1, "key")
        if not name or not isinstance(key, ast.Lambda) or script.dotted(call.func) != f"builtins.{name}":
            continue
        above = script.parent(call)
        told = ast.unparse(above.targets[0]) if isinstance(above, ast.Assign) else ""
        better = figure(script, key.body, script.where(call), 1) if "best" in told.lower() else ""
        if better and better != name:
            yield Hit(call, f"takes the worst: for this metric {BETTER[better]} is better.")
