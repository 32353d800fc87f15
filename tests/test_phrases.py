"""Phrases that a native engineer stumbles over stay out of everything that users read."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "clew"
SHOWN = ("exams/checks", "lint/rules", "data/checks")
"""Folders whose modules' docstrings are documentation."""

PHRASES = {
    r"\bmend(s|ed|ing)?\b(?! =)": "fix",
    r"\bby heart\b": "memorise",
    r"could not be made": "could not run",
    r"checks in order|was in order": "passed",
    r"(?<![Tt]his is )\b[Ww]rong if:": "this is wrong if:",
    r"the maker\b|the judge\b|the judge's": "generator, discriminator",
    r"by themselves: .* in the one": "encoded separately in the two sets",
    r"nothing is left of": "the targets omit the reward",
    r"turned round": "flipped, inverted",
    r"\b(gives?|gave) out\b": "returns, outputs",
    r"\b(made|drawn|written|registered|seeded|created) anew": "recreated, redrawn",
    r"\bgo(es)? by example": "per example",
    r"in the place of": "instead of",
    r"(was|were)( not)? looked at": "checked",
    r"climbs? (the|a|its) loss|made to climb": "maximises the loss",
    r"\brectifiers?\b": "ReLU",
    r"next to nothing": "almost nothing",
    r"no wonder": "expected",
    r"as (it|they) (was|were) drawn": "at the initial values",
    r"worth (their|its) cost": "most informative",
    r"(data|rows) held out": "held-out data",
    r"\bread by nothing|nothing reads\b": "never used",
    r"says? next to nothing": "is not informative",
    r"which goes with it": "the matching",
    r"the answer is in the question|the answer stands": "the target is in the input",
    r"\bkills? this\b": "refutes this",
    r"climbs what|climbs? down": "maximises what it should minimise",
    r"\bin every turn\b": "in every iteration",
    r"taken off first": "subtract",
    r"cuts? the history": "cuts the graph",
    r"pays? for the (right|wrong|opposite)|are paid for|is charged for": "reward, penalty",
}


def sentences() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        if "programs" not in path.parts:
            yield from ((f"{path.relative_to(ROOT)}:{line}", text) for line, text in constants(path))
    for path in PACKAGE.rglob("*.toml"):
        yield from ((str(path.relative_to(ROOT)), text) for text in values(tomllib.loads(path.read_text("utf-8"))))
    for path in PACKAGE.rglob("*.j2"):
        yield str(path.relative_to(ROOT)), re.sub(r"\{[{%].*?[%}]\}", "", path.read_text("utf-8"))
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def constants(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text("utf-8"))
    bodies = [getattr(node, "body", None) for node in ast.walk(tree)]
    alone = {id(held.value) for body in bodies if isinstance(body, list) for held in body if isinstance(held, ast.Expr)}
    if (
        path.parent.relative_to(PACKAGE).as_posix() in SHOWN
        and path.name[0] != "_"
        and isinstance(tree.body[0], ast.Expr)
    ):
        alone.discard(id(tree.body[0].value))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.lineno, " ".join(node.value.split())


def values(table: Any) -> Iterator[str]:
    if isinstance(table, str):
        yield " ".join(table.split())
    elif isinstance(table, dict | list):
        for held in table.values() if isinstance(table, dict) else table:
            yield from values(held)


SENTENCES = [(place, text) for place, text in sentences() if " " in text]


def test_there_is_much_to_read() -> None:
    places = [place for place, _ in SENTENCES]
    assert len(places) > 10_000
    for part in (
        "src/clew/observe",
        "src/clew/knowledge/data/causes",
        "src/clew/report/templates",
        "README.md",
        "docs/",
    ):
        assert any(place.startswith(part) for place in places), part


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_phrase_does_not_return(phrase: str) -> None:
    found = [f"{place}: {text[:160]}" for place, text in SENTENCES if re.search(phrase, text)]
    assert not found, f"say it with: {PHRASES[phrase]}\n" + "\n".join(found)
