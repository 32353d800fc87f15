"""Dropout that evaluation does not switch off.

What it sees: torch.nn.functional.dropout in the forward of a module, without its `training` argument, or with True.
Why it matters: the function drops by default. eval() changes nothing about it: every prediction is noisy and worse than
it need be, and the same input gives a different output each time.
Silent when: training=self.training is given, or names speak of Monte Carlo dropout.
Fix: training=self.training, or nn.Dropout.
"""

import ast
import re
from collections.abc import Iterator

from clew.lint.model import Fix
from clew.lint.registry import rule
from clew.lint.script import Hit, Script

NAMES = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
MEANT = re.compile(r"monte|mc_?drop|bayes|uncertain|always|stochastic", re.I)


@rule("CLW308", "dropout-always-on", "train.train_mode_in_eval", "likely", " ".join(NAMES))
def check(script: Script) -> Iterator[Hit]:
    for call, _ in script.calls_to("torch.nn.functional.", *NAMES) if not script.tests else ():
        scope = script.scope(call)
        cls = script.class_of(scope)
        if cls is None or script.starred(call) or not script.is_module(cls):
            continue
        if MEANT.search(f"{cls.name} {scope.name} {ast.get_docstring(cls.node) or ''}"):
            continue
        given = script.arg(call, 2, "training")
        if given is not None and not (isinstance(given, ast.Constant) and given.value is True):
            continue
        # What forward does only while training needs no switch of its own.
        if any(
            block.kind == "if" and "training" in ast.unparse(block.node.test)  # type: ignore[attr-defined]
            for block in script.where(call).block.chain()
        ):
            continue
        told = "drops units in evaluation too: `training` is not passed."
        if given is not None:
            yield Hit(
                given, told, "look", Fix("follow the module's mode", False, (script.replace(given, "self.training"),))
            )
        else:
            whole = f"{script.source(call)[:-1].rstrip().rstrip(',')}, training=self.training)"
            yield Hit(call, told, fix=Fix("follow the module's mode", False, (script.replace(call, whole),)))
