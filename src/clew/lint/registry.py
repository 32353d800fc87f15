"""The rules, registered where they are defined. The folder `rules` is the catalogue."""

import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import NamedTuple

from clew.lint.model import CONFIDENCES
from clew.lint.script import Hit, Script

Check = Callable[[Script], Iterator[Hit]]
HEADINGS = ("What it sees", "Why it matters", "Silent when", "Fix")
UNUSED = "CLW001"


class Rule(NamedTuple):
    """One thing to look for. A file that mentions none of the names in `needs` is not asked."""

    code: str
    name: str
    cause: str
    confidence: str
    needs: frozenset[str]
    check: Check
    module: str

    @property
    def doc(self) -> str:
        return sys.modules[self.module].__doc__ or ""

    @property
    def title(self) -> str:
        return self.doc.strip().split("\n")[0]

    def section(self, heading: str) -> str:
        """What the rule's own file says under one of the headings."""
        words: list[str] = []
        inside = False
        for line in self.doc.split("\n"):
            first = line.split(":", 1)[0]
            if first in HEADINGS:
                inside = first == heading
                line = line.split(":", 1)[1]
            elif not line.strip():
                inside = inside and heading == "Example"
            if inside:
                words += line.split()
        return " ".join(words)


RULES: dict[str, Rule] = {}


def rule(code: str, name: str, cause: str, confidence: str, needs: str = "") -> Callable[[Check], Check]:
    """Register a check. `needs` are names, any of which must stand in a file for the check to be worth its time."""
    if confidence not in CONFIDENCES:
        raise ValueError(f"{code}: a confidence is one of {', '.join(CONFIDENCES)}, not {confidence}.")

    def register(check: Check) -> Check:
        if code in RULES and RULES[code].module != check.__module__:
            raise ValueError(f"{code} is taken by {RULES[code].module}.")
        RULES[code] = Rule(code, name, cause, confidence, frozenset(needs.split()), check, check.__module__)
        return check

    return register


def load() -> dict[str, Rule]:
    """All rules, by code."""
    folder = os.path.join(os.path.dirname(__file__), "rules")
    for file in sorted(os.listdir(folder)):
        if file.startswith("clw") and file.endswith(".py"):
            import_module(f"clew.lint.rules.{file[:-3]}")
    return dict(sorted(RULES.items()))
