"""What an exam is: one file, one question, one function from a lab to an answer.

    @exam("overfit_one_batch", needs=("loss",), seconds=10)
    def examine(lab: Lab) -> Answer: ...

The file's docstring is its documentation: what it asks, why it matters, cannot tell, silent when. File, exam and the
test of the knowledge base that turns its figures into an outcome have one name.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from clew.errors import ClewError, did_you_mean
from clew.records.clue import Answer

if TYPE_CHECKING:
    from clew.exams.lab import Lab

NEEDS = ("loss", "target", "validation", "optimizer", "predict", "several batches")
DECIDING = ("causal_independence", "batch_independence", "leak_tracer")
"""Exams that come before all others, and without which nothing is called healthy: what they find makes a loss fall that
means nothing, so no curve tells of it. The first decides only where the next position is predicted."""


class Exam(NamedTuple):
    """`seconds` is what it takes on a small network, for the plan; `steps` the training steps it makes, from which the
    plan works out a better figure once it has seen how long a step takes."""

    name: str
    test: str
    needs: tuple[str, ...]
    seconds: float
    steps: int
    function: Callable[[Lab], Answer]
    doc: str

    @property
    def asks(self) -> str:
        return self.doc.strip().splitlines()[0]


_made: dict[str, Exam] = {}


def exam(
    test: str, needs: tuple[str, ...] = (), seconds: float = 1.0, steps: int = 0
) -> Callable[[Callable[[Lab], Answer]], Callable[[Lab], Answer]]:
    """Makes an exam of a function."""
    unknown = set(needs) - set(NEEDS)
    if unknown:
        raise ValueError(f"an exam cannot need {', '.join(sorted(unknown))}")

    def made(function: Callable[[Lab], Answer]) -> Callable[[Lab], Answer]:
        name = function.__module__.rpartition(".")[2]
        if name != test:
            raise ValueError(f"the exam in {name}.py answers {test}: file and test have one name")
        doc = importlib.import_module(function.__module__).__doc__ or ""
        _made[name] = Exam(name, test, needs, seconds, steps, function, doc)
        return function

    return made


def all_exams() -> dict[str, Exam]:
    """Every exam by name; each file in `checks` is one."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "checks")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py") and not name.startswith("_"):
            importlib.import_module(f"clew.exams.checks.{name[:-3]}")
    return {name: _made[name] for name in sorted(_made)}


def find_exam(name: str) -> Exam:
    exams = all_exams()
    if name not in exams:
        raise ClewError(f"there is no exam {name!r}{did_you_mean(name, list(exams))}")
    return exams[name]
