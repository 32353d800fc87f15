"""The test set decides which model is kept.

What it sees: in a loop over epochs, a result computed on test data is compared with the best so far, and the
comparison saves a model or stops the run; the same handed to an early stopper.
Why it matters: the best of many looks at the test set is no test any more: the reported score is optimistic by the
spread between epochs.
Silent when: held-out data named val decides, or no test data is in sight.
Fix: choose on validation data, look at the test set once.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any

from clew.lint.flow import reaching
from clew.lint.registry import rule
from clew.lint.script import Hit, Script, text

TEST = re.compile(r"(^|_)test(_|$|loader|set|_?data)|testloader", re.I)
STOPS = re.compile(r"stop|best|improv|patien|track|monitor", re.I)
VALIDATION = re.compile(r"(^|_)(val|valid|dev)")
BEST = re.compile(r"best|patience|lowest|highest|min_|max_", re.I)


@rule(
    "CLW507",
    "selection-on-test",
    "data.leak_split",
    "likely",
    ("test_loader testloader test_dl test_data test_set test_dataloader X_test test_acc test_loss test_iter"),
)
def check(script: Script) -> Iterator[Hit]:
    for node in script.module.statements.get(ast.If, []):
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
