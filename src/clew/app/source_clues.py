"""What reading the source shows about a run: the findings of `clew lint`, as clues.

One clue per cause. It says how sure the rules are, and the knowledge base says what that is worth: a finding in the
source is evidence like any other, and gives way where the run itself was seen to do otherwise. A cause that rules
looked for and did not find gives a clue too.
"""

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from clew.case.clues import answered
from clew.knowledge.model import Knowledge
from clew.lint.files import Settings, settings
from clew.lint.model import CONFIDENCES, Finding
from clew.lint.registry import load
from clew.lint.run import run
from clew.lint.source import Unreadable, decode, read_bytes
from clew.records.clue import Clue
from clew.records.place import Place, near

MOST_PLACES = 4
OF_STEPS = ("CLW1", "CLW20", "CLW210", "CLW211", "CLW216", "CLW217", "CLW218", "CLW225")
"""Rules about what a training step does: losses, and the order of a loop. What no step runs is not this run's fault."""


def source_clues(
    knowledge: Knowledge, paths: Iterable[str], ran: Collection[tuple[str, int]] = ()
) -> tuple[list[Clue], str]:
    """Clues from the source files that a run loaded, and what went wrong if something did: reading the source of a
    run must never take the run's report away. `ran` are the functions that some training steps ran, by file and first
    line; nothing when that is not known."""
    here = [near(path) for path in paths if path.endswith(".py")]
    if not here:
        return [], ""
    try:
        result = run(list(dict.fromkeys(here)), wanted(here[0]), jobs=1)
    except Exception as error:  # noqa: BLE001 - see above
        return [], f"the source could not be checked: {type(error).__name__}: {error}".split("\n")[0]
    by_cause: dict[str, list[Finding]] = {}
    words = Counter(word for path in dict.fromkeys(here) for word in re.findall(r"\w+", source(path)))
    for finding in result.findings:
        if ran and (uncalled(finding, words) or (finding.rule.startswith(OF_STEPS) and not took_part(finding, ran))):
            continue
        by_cause.setdefault(finding.cause, []).append(finding)
    clues = [clue(knowledge, cause, by_cause.get(cause, [])) for cause in sorted({*result.asked, *by_cause})]
    return [item for item in clues if item is not None], "; ".join(f"{one.path}: {one.why}" for one in result.troubles)


def early_errors(words: Sequence[str], module: str = "") -> list[str]:
    """Undefined names and calls that do not fit, of the script among the words of a command or of a module, and of what
    it imports; each with its place. What goes wrong here must never keep a script from starting."""
    from clew.lint.early import early

    names = [module.replace(".", os.sep) + ".py", os.path.join(module.replace(".", os.sep), "__main__.py")]
    paths = [word for word in words if word.endswith(".py")][:1] if not module else names
    script = next((path for path in paths if os.path.isfile(path)), "")
    try:
        found = early(script) if script else []
    except Exception as error:  # noqa: BLE001 - see above
        return [f"{script} could not be looked through: {type(error).__name__}: {error}".split("\n")[0]]
    return [f"{one.path}:{one.line}: {one.says}" for one in found]


def took_part(finding: Finding, ran: Collection[tuple[str, int]]) -> bool:
    """Whether the function that holds a finding was run in training, or the finding stands outside of all functions."""
    first = holding(finding.path, finding.line)
    return first is None or (os.path.realpath(finding.path), first) in ran


def uncalled(finding: Finding, words: Counter[str]) -> bool:
    """Whether a finding stands in a plain function whose name no file of the run mentions again: its lines never run.
    Methods and decorated functions may be called by a library."""
    held = innermost(finding.path, finding.line)
    if held is None or held.decorator_list or [item.arg for item in held.args.args[:1]] in (["self"], ["cls"]):
        return False
    return words[held.name] == 1


def holding(path: str, line: int) -> int | None:
    """The first line of the innermost function around a line, with its decorators."""
    held = innermost(path, line)
    return None if held is None else min([held.lineno, *(item.lineno for item in held.decorator_list)])


def innermost(path: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        tree = ast.parse(source(path))
    except (ValueError, SyntaxError):
        return None
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=None)


def source(path: str) -> str:
    try:
        return decode(read_bytes(path))
    except Unreadable:
        return ""


def wanted(path: str) -> Settings:
    """The project's own settings, with everything that is worth a look: the weighing knows what to make of it."""
    held, _ = settings(path)
    return held._replace(confidence=CONFIDENCES[-1])


def clue(knowledge: Knowledge, cause: str, findings: list[Finding]) -> Clue | None:
    """One clue for all that was found of a cause: the surest finding says it, and the others add their places."""
    test = knowledge.tests.get(f"source_{cause.replace('.', '_')}")
    if test is None:
        return None
    if not findings:
        return answered(test, (), "absent", source="lint")
    ranked = sorted(findings, key=lambda one: (CONFIDENCES.index(one.confidence), one.path, one.line))
    first = ranked[0]
    places = [Place(file=one.path, line=one.line, end_line=one.end_line) for one in ranked]
    places[1:1] = [Place(file=near(one.path), line=one.line) for one in first.related]
    message = first.message.rstrip(".")
    held = answered(
        test,
        (),
        first.confidence,
        where=tuple(dict.fromkeys(places))[:MOST_PLACES],
        says=f"In the source: {message} ({first.rule} {first.name}, {first.confidence}).",
        source="lint",
        reproduce=f"clew lint --select {first.rule} {first.path}",
    )
    return held._replace(fix=_fix(first))


def _fix(finding: Finding) -> str:
    """What to change, as a sentence."""
    text = (finding.fix.says if finding.fix else load()[finding.rule].section("Fix")).rstrip(".")
    first = text.partition(" ")[0]
    return f"{first.capitalize()}{text[len(first) :]}." if first.isalpha() else f"Write {text}."


def loaded_files() -> list[str]:
    """The source files below the working folder that this process has imported."""
    below = os.path.join(os.getcwd(), "")
    found = []
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith(below) and f"{os.sep}site-packages{os.sep}" not in path:
            found.append(path)
    return sorted(set(found))
