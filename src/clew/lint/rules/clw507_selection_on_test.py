"""The test set decides which model is kept.

What it sees: in a loop over epochs, a result computed on test data is compared with the best so far, and the
comparison saves a model or stops the run; the same handed to an early stopper, a scheduler or a search; the best of a
table of results on test data; eval_set or eval_dataset of a fit that stops early.
Why it matters: the best of many looks at the test set is no longer a test: the reported score is optimistic by the
spread between epochs.
Silent when: held-out data named val decides, or no test data is in sight.
Fix: choose on validation data, look at the test set once.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.index import Where
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, one_a_line, text
from clew.lint.trail import Step, trail, verb

TEST = re.compile(r"(^|_)test(_|$|loader|set|_?data)|testloader", re.I)
STOPS = re.compile(r"stop|best|improv|patien|track|monitor", re.I)
VALIDATION = re.compile(r"(^|_)(val|vad|valid|validation|dev)(_|$|\d|loader|set)", re.I)
BEST = re.compile(r"best|patience|lowest|highest|min_|max_", re.I)
CHOOSES = "best patien lowest highest min_ max_ stop improv track monitor".split()


@rule("CLW507", "selection-on-test", "data.leak_split", "likely")
def check(script: Script) -> Iterator[Hit]:
    yield from one_a_line((*directly(script), *followed(script)))


def chooses(script: Script) -> bool:
    """Cheaply: whether the file speaks of a best one, or of stopping."""
    said = script.text.lower()
    return any(word in said for word in CHOOSES)


def directly(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.If, []) if chooses(script) else ():
        test = node.test
        if isinstance(test, ast.Call) and STOPS.search(text(test.func)) and script.where(node).block.loops():
            said = next((said for arg in test.args if (said := from_test(script, arg, node))), "")
            if said and keeps(node):
                sure = "" if any(VALIDATION.search(name) for name in script.module.names) else "look"
                yield Hit(test, f"{said} decides which model is kept: the test set has become a validation set.", sure)
            continue
        if not isinstance(test, ast.Compare) or len(test.comparators) != 1 or not script.where(node).block.loops():
            continue
        sides = (test.left, test.comparators[0])
        best = next((side for side in sides if BEST.search(text(side))), None)
        if best is None or not keeps(node):
            continue
        other = sides[1] if best is sides[0] else sides[0]
        said = from_test(script, other, node)
        if said and not any(VALIDATION.search(name) for name in script.module.names):
            yield Hit(test, f"{said} decides which model is kept: the test set has become a validation set.", "look")
        elif said:
            yield Hit(test, f"{said} decides which model is kept, although there is validation data.")


def followed(script: Script) -> Iterator[Hit]:
    """The same through functions, tables of results, callbacks and other files."""
    for node, given, where, says in (*compared(script), *picked(script), *watched(script)):
        for step in (one for part in given for one in trail(script, part, where, trained, steps=120, strict=True)):
            name = step.node.id if isinstance(step.node, ast.Name) else ""
            if VALIDATION.search(name) and not taken(name, step.where):
                break
            said = named_test(step.node)
            if said and not (SHORT.search(said) and taken(said, step.where)):
                names = script.module.names | step.where.block.scope.module.names
                sure = "" if any(VALIDATION.search(name) for name in names) else "look"
                yield Hit(node, f"{says} by a score on {said}: the test set has become a validation set.", sure)
                break


def taken(name: str, where: Where) -> bool:
    """Whether this is a parameter. By a name as short as that it may be given any data: the call says which."""
    return any(one.how == "param" for one in where.block.scope.defs.get(name, []))


def trained(step: Step) -> bool:
    """What a model was fitted on is not what it is judged by; nor is a whole table from which both parts were taken."""
    return verb(step.node) in ("fit", "train_test_split", "random_split", "load_dataset", "read_csv", "split")


def named_test(node: ast.AST) -> str:
    if isinstance(node, ast.Name | ast.Attribute):
        last = text(node).rsplit(".", 1)[-1]
        return last if TESTED.search(last) else ""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return "test" if node.slice.value == "test" else ""
    if isinstance(node, ast.Call):
        return (
            "test"
            if any(word.arg == "split" and getattr(word.value, "value", "") == "test" for word in node.keywords)
            else ""
        )
    return ""


TESTED = re.compile(
    r"^((x|y|df|ds|data|features|labels|inputs|targets)_?)?(test|te)(_?(loader|set|data|dl|ds|df|iter|batches|x|y|dataset|"
    r"dataloader|examples|features|labels|targets|inputs|split|rows|frame|images|texts))?$",
    re.I,
)
SHORT = re.compile(r"(^|_)te$", re.I)
Sink = tuple[ast.AST, list[Any], Where, str]


def compared(script: Script) -> Iterator[Sink]:
    """if score > best: best = score"""
    for node in script.module.statements.get(ast.If, []) if chooses(script) else ():
        tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
        for test in tests:
            given = test.args[:1] if isinstance(test, ast.Call) and STOPS.search(text(test.func)) else []
            if given and keeps(node) and again(script, node):
                yield test, given, script.where(node), "decides when to stop"
            if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
                continue
            sides = (test.left, test.comparators[0])
            best = next((side for side in sides if BEST.search(ast.unparse(side))), None)
            if best is None or not again(script, node) or not (keeps(node) or kept_too(node)):
                continue
            yield test, [sides[1] if best is sides[0] else sides[0]], script.where(node), "chooses what is kept"


def again(script: Script, node: ast.If) -> bool:
    """Whether a comparison is made time after time: in a loop, or in a function that a loop calls."""
    block = script.where(node).block
    return bool(block.loops()) or any(where.block.loops() for _, where in script.project.callers(block.scope))


def kept_too(node: ast.If) -> bool:
    """best, best_params = score, params: something besides the score itself is kept."""
    stored = {
        text(part)
        for statement in node.body
        for part in ast.walk(statement)
        if isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Store) and BEST.search(text(part))
    }
    return len(stored) > 1 or any(
        re.search(r"model|param|config|lr|epoch|threshold|depth|alpha|name", said) for said in stored
    )


def picked(script: Script) -> Iterator[Sink]:
    """best = max(results, key=...), results sorted and the first taken"""
    for call in script.calls("max", "min", "sorted", "argmax", "argmin", "idxmax", "idxmin"):
        statement = script.statement(call)
        named = isinstance(statement, ast.Assign) and "best" in ast.unparse(statement.targets[0]).lower()
        if not named or not (call.args or isinstance(call.func, ast.Attribute)):
            continue
        key = script.arg(call, -1, "key")
        given: list[Any] = [*call.args, *([key] if key is not None else [])]
        if isinstance(call.func, ast.Attribute) and not script.dotted(call.func):
            given.append(call.func.value)
        yield call, given, script.where(call), "chooses the best"


def watched(script: Script) -> Iterator[Sink]:
    """early stopping, schedulers and searches that look at a set of their own"""
    stops = script.mentions(
        "EarlyStopping", "ModelCheckpoint", "early_stopping_rounds", "load_best_model_at_end", "early_stopping"
    )
    for call in script.calls("fit", "Trainer", "train", "Seq2SeqTrainer") if stops else ():
        last = text(call.func).rsplit(".", 1)[-1]
        given = [
            word.value
            for word in call.keywords
            if word.arg in ("eval_set", "validation_data", "eval_dataset", "val_dataloaders", "valid_sets", "evals")
        ]
        if (
            last == "fit"
            and not given
            and len(call.args) > 2
            and script.mentions("lightning", "pytorch_lightning", "pl")
        ):
            given = [call.args[2]]
        if given:
            yield call, given, script.where(call), "decides when to stop"
    for call in script.calls("optimize"):
        for value in script.value(call.args[0]) if call.args else ():
            if value.kind == "function" and value.func is not None and value.func.module is script.module:
                for given_back, at in value.func.returns[:2]:
                    yield given_back, [given_back], at, "the search is guided"
    for statement in script.module.statements.get(ast.Expr, []):
        call = statement.value
        if not isinstance(call, ast.Call) or not call.args or not script.where(statement).block.loops():
            continue
        said = text(call.func)
        plateau = said.endswith(".step") and any(
            value.name.endswith("ReduceLROnPlateau")
            for value in script.value(call.func.value)  # type: ignore[attr-defined]
        )
        if plateau or STOPS.search(said):
            yield call, [call.args[0]], script.where(statement), "steers training"


def from_test(script: Script, node: Any, at: ast.If) -> str:
    name = text(node)
    if not name:
        return ""
    where = script.where(at)
    defs = where.block.scope.defs.get(name, [])
    for made in reaching(defs, where) if defs else []:
        value = made.value if isinstance(made.value, ast.AST) else None
        words = [text(part).rsplit(".", 1)[-1] for part in ast.walk(value)] if value is not None else []
        words += [part.id for part in ast.walk(value) if isinstance(part, ast.Name)] if value is not None else []
        used = next((word for word in words if TEST.search(word)), "")
        return f"{name}, computed on {used}," if used else ""
    return name if TEST.search(name) and not defs else ""


def keeps(node: ast.If) -> bool:
    """Whether the branch saves, copies or stops."""
    for part in ast.walk(ast.Module(body=node.body, type_ignores=[])):
        if isinstance(part, ast.Call) and re.search(r"save|deepcopy|state_dict|dump", text(part.func)):
            return True
        if isinstance(part, ast.Break):
            return True
    return False
