"""Findings as people and other programs read them."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from clew import __version__
from clew.evidence.words import cells
from clew.lint.model import CONFIDENCES, Finding, Trouble
from clew.lint.registry import Rule
from clew.lint.run import Result, text_of
from clew.records.place import near
from clew.report.text import BLUE, BOLD, DIM, RED, YELLOW, Page

COLOURS = {"certain": RED, "likely": YELLOW, "look": BLUE}
LEVELS = {"certain": "error", "likely": "warning", "look": "note"}


def page(result: Result, rules: dict[str, Rule], made: Page, given: dict[str, bytes]) -> Page:
    """Place, line, mark, one sentence, and why."""
    lines: dict[str, Callable[[Finding], list[str]]] = {}
    said: set[str] = set()
    for finding in result.findings:
        if finding.path not in lines:
            lines[finding.path] = text_of(finding.path, given)
        one(finding, lines[finding.path](finding), rules.get(finding.rule), made, finding.rule not in said)
        said.add(finding.rule)
    made.line(summary(result))
    return made


def one(finding: Finding, lines: list[str], rule: Rule | None, made: Page, first: bool) -> None:
    place = f"{finding.path}:{where(finding)}"
    head = f"{made.paint(place, BOLD)}  {made.paint(finding.rule, COLOURS[finding.confidence], BOLD)} {finding.name}"
    made.line(f"{head}  {made.paint(finding.confidence, DIM)}")
    if 0 < finding.line <= len(lines):
        text = lines[finding.line - 1].rstrip()
        number = str(finding.line)
        bar = made.paint("|", DIM)
        made.line(f"  {made.paint(number, DIM)} {bar} {text.expandtabs(4)}")
        before = int(cells(text[: finding.column - 1].expandtabs(4)))
        stop = finding.end_column - 1 if finding.end_line == finding.line else len(text)
        width = max(1, int(cells(text[:stop].expandtabs(4))) - before)
        made.line(f"  {' ' * len(number)} {bar} {' ' * before}{made.paint('^' * width, COLOURS[finding.confidence])}")
    made.say(finding.message, 4)
    for other in finding.related:
        made.say(
            f"{near(other.path)}:{other.line}: {other.says}",
            4,
            "",
            DIM,
        )
    if rule is not None and first:
        made.say(rule.section("Why it matters"), 4, "why: ", DIM)
    if finding.fix is not None:
        flag = "--fix" if finding.fix.safe else "--fix --unsafe-fixes"
        made.say(f"{finding.fix.says} ({flag})", 4, "fix: ", DIM)
    made.line()


def where(finding: Finding) -> str:
    cell = f"cell {finding.cell}:" if finding.cell else ""
    return f"{cell}{finding.line}:{finding.column}"


def summary(result: Result) -> str:
    unread = [one for one in result.troubles if not one.partly]
    seen = result.files - len(unread)
    files = f"{seen} file{'s' if seen != 1 else ''}"
    if not result.files:
        return "There is no Python file and no notebook to check."
    left = f"{len(unread)} file{'s' * (len(unread) != 1)} could not be checked"
    left += f": {unread[0].why}." if len(unread) == 1 else "."
    if not seen:
        return left
    left = f" {left}" if unread else ""
    if not result.findings:
        return f"Nothing found in {files}.{left}"
    counts = Counter(finding.confidence for finding in result.findings)
    parts = ", ".join(f"{counts[word]} {word}" for word in ("certain", "likely", "look") if counts[word])
    many = len(result.findings)
    text = f"{many} finding{'s' if many != 1 else ''} in {files}: {parts}.{left}"
    causes = Counter(finding.cause for finding in result.findings if finding.cause)
    return f"{text} More on the first: clew why {next(iter(causes))}" if causes else text


def brief(result: Result, rules: dict[str, Rule], made: Page, most: int) -> Page:
    """One line per finding with its fix, the surest first."""
    result = result._replace(findings=ranked(result.findings))
    shown = result.findings[: most - 1]
    for finding in shown:
        made.line(in_a_line(finding, rules.get(finding.rule)))
    left = len(result.findings) - len(shown)
    made.line((f"{left} more without --brief. " if left else "") + summary(result))
    return made


def ranked(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda one: CONFIDENCES.index(one.confidence)))


def in_a_line(finding: Finding, rule: Rule | None) -> str:
    fix = rule.section("Fix") if rule else finding.fix.says if finding.fix else ""
    place = f"{finding.path}:{where(finding)}"
    return f"{place} {finding.rule} {finding.name} ({finding.confidence}){fix and '; fix: '}{fix}"


def statistics(result: Result, made: Page) -> Page:
    """How often each rule fired."""
    counts = Counter((finding.rule, finding.name) for finding in result.findings)
    for (code, name), many in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        made.line(f"{many:>6}  {code}  {name}")
    made.line(summary(result))
    return made


def to_json(result: Result) -> list[dict[str, Any]]:
    """As CONTRACT has it, with related places and the notebook cell added, and a row for each file not checked."""
    return [as_json(finding) for finding in (*result.findings, *map(unchecked, result.troubles))]


def unchecked(trouble: Trouble) -> Finding:
    """A file that could not be checked, as what reads findings expects it."""
    line = int(named[1]) if (named := re.match(r"line (\d+)", trouble.why)) else 1
    place = (trouble.path, line, 1, line, 1)
    return Finding("CLW000", "not-checked", "", *place, f"{trouble}.", CONFIDENCES[0])


def as_json(finding: Finding) -> dict[str, Any]:
    table = finding._asdict()
    fix = finding.fix
    table["fix"] = None
    if fix is not None:
        table["fix"] = {"message": fix.says, "safe": fix.safe, "edits": [shifted(edit._asdict()) for edit in fix.edits]}
    table["related"] = [other._asdict() for other in finding.related]
    table["cell"] = finding.cell or None
    return table


def shifted(edit: dict[str, Any]) -> dict[str, Any]:
    """Columns from 1, as in the findings."""
    return {**edit, "column": edit["column"] + 1, "end_column": edit["end_column"] + 1}


def github(result: Result) -> str:
    """Commands that GitHub turns into notes beside the code."""
    levels = {"certain": "error", "likely": "warning", "look": "notice"}
    rows = []
    for finding in (*result.findings, *map(unchecked, result.troubles)):
        title = f"{finding.rule} {finding.name}"
        ends = f"endLine={finding.end_line},col={finding.column},endColumn={finding.end_column}"
        place = f"file={escaped(finding.path)},line={finding.line},{ends}"
        rows.append(f"::{levels[finding.confidence]} {place},title={escaped(title)}::{escaped(finding.message, False)}")
    return "\n".join(rows)


def escaped(text: str, strict: bool = True) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if strict else text


def sarif(result: Result, rules: dict[str, Rule]) -> dict[str, Any]:
    """SARIF 2.1.0, for code scanning."""
    used = sorted({finding.rule for finding in result.findings})
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "clew",
                        "version": __version__,
                        "rules": [described(code, rules) for code in used],
                    }
                },
                "results": [sarif_result(finding, used) for finding in result.findings],
                "invocations": [
                    {
                        "executionSuccessful": all(one.partly for one in result.troubles),
                        "toolExecutionNotifications": [notified(one) for one in result.troubles],
                    }
                ],
                "columnKind": "unicodeCodePoints",
            }
        ],
    }


def described(code: str, rules: dict[str, Rule]) -> dict[str, Any]:
    rule = rules.get(code)
    if rule is None:
        return {"id": code}
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.section("Why it matters")},
        "help": {"text": f"{rule.section('What it sees')}\n\nFix: {rule.section('Fix')}"},
        "defaultConfiguration": {"level": LEVELS[rule.confidence]},
        "properties": {"cause": rule.cause},
    }


def sarif_result(finding: Finding, used: list[str]) -> dict[str, Any]:
    table: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": used.index(finding.rule),
        "level": LEVELS[finding.confidence],
        "message": {"text": finding.message},
        "locations": [located(finding.path, region(finding))],
        "properties": {"cause": finding.cause, "confidence": finding.confidence},
    }
    if finding.related:
        table["relatedLocations"] = [
            {**located(other.path, {"startLine": other.line}), "message": {"text": other.says}}
            for other in finding.related
        ]
    if finding.fix is not None:
        edits = [
            {
                "deletedRegion": {
                    "startLine": edit.line,
                    "startColumn": edit.column + 1,
                    "endLine": edit.end_line,
                    "endColumn": edit.end_column + 1,
                },
                "insertedContent": {"text": edit.text},
            }
            for edit in finding.fix.edits
        ]
        change = {"artifactLocation": {"uri": finding.path.replace(os.sep, "/")}, "replacements": edits}
        table["fixes"] = [{"description": {"text": finding.fix.says}, "artifactChanges": [change]}]
    return table


def located(path: str, region: dict[str, int]) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": path.replace(os.sep, "/")}, "region": region}}


def region(finding: Finding) -> dict[str, int]:
    return {
        "startLine": finding.line,
        "startColumn": finding.column,
        "endLine": finding.end_line,
        "endColumn": finding.end_column,
    }


def notified(trouble: Trouble) -> dict[str, Any]:
    text = f"{trouble.path}: {trouble.why}"
    return {"level": "note" if trouble.partly else "error", "message": {"text": text}}


def explained(rule: Rule, made: Page, brief: bool = False) -> Page:
    """One rule, as its own file tells it."""
    made.head(f"{rule.code} {rule.name}")
    made.say(rule.title)
    for heading in ("Fix", "Silent when") if brief else ("What it sees", "Why it matters", "Silent when", "Fix"):
        if not brief:
            made.line()
        made.say(rule.section(heading), 0, f"{heading}: ")
    if not brief:
        made.line()
    made.say(f"Confidence: {rule.confidence}. Cause: {rule.cause} (clew why {rule.cause}).")
    return made
