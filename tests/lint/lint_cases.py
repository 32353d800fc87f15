"""Running rules on source that is written in a test, and reading the programs with one fault."""

import os
from pathlib import Path
from typing import NamedTuple

from clew.lint.check import look
from clew.lint.model import Finding
from clew.lint.project import Project
from clew.lint.registry import load

FIXTURES = Path(__file__).parent / "fixtures"


class Program(NamedTuple):
    """One program in two versions: file name to text, and where the fault must be found."""

    name: str
    cause: str
    faulty: dict[str, str]
    healthy: dict[str, str]
    places: frozenset[tuple[str, int]]


def programs() -> list[Program]:
    return [read(path) for path in sorted(FIXTURES.glob("*.txt"))]


def read(path: Path) -> Program:
    faulty: dict[str, list[str]] = {}
    healthy: dict[str, list[str]] = {}
    places = set()
    head, *rest = path.read_text().split("\n")
    name = ""
    for line in rest:
        if line.startswith("=== "):
            name = line[4:].strip()
            faulty[name], healthy[name] = [], []
            continue
        text, mark = line, ""
        for end in ("  #-@", "  #-", "  #+", "  #@"):
            if line.endswith(end):
                text, mark = line[: -len(end)], end.strip()
                break
        if mark != "#+" and name:
            faulty[name].append(text)
        if mark not in ("#-", "#-@") and name:
            healthy[name].append(text)
        if "@" in mark:
            places.add((name, len(faulty[name])))
    cause = head.removeprefix("cause: ").strip()
    return Program(path.stem, cause, joined(faulty), joined(healthy), frozenset(places))


def joined(files: dict[str, list[str]]) -> dict[str, str]:
    return {name: "\n".join(lines) for name, lines in files.items()}


def lint_files(files: dict[str, str], folder: Path) -> list[Finding]:
    """Write the files below a folder and look at each."""
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(str(path))
    project = Project(paths)
    rules = load()
    found: list[Finding] = []
    for path_ in paths:
        with open(path_, "rb") as file:
            seen = look(path_, file.read(), project, rules)
        assert seen.trouble is None, seen.trouble
        found += [one._replace(path=os.path.relpath(path_, folder)) for one in seen.findings]
    return found


def lint(text: str, folder: Path, only: str = "") -> list[Finding]:
    """Look at one file; `only` keeps the findings of one rule."""
    found = lint_files({"train.py": text}, folder)
    return [one for one in found if not only or one.rule == only]
