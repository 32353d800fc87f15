"""Applying fixes to text."""

import ast

from clew.lint.model import Edit, Finding, Fix


def mend(text: str, findings: list[Finding], unsafe: bool) -> tuple[str, list[Finding]]:
    """The text with every fix applied that does not touch another, and the findings that were mended. A change after
    which the file no longer parses is left out."""
    mended: list[Finding] = []
    taken: list[Edit] = []
    for finding in findings:
        fix = finding.fix
        if fix is None or not (fix.safe or unsafe) or any(clash(edit, other) for edit in fix.edits for other in taken):
            continue
        changed = write(text, [*taken, *fix.edits])
        if parses(changed):
            taken += fix.edits
            mended.append(finding)
    return write(text, taken), mended


def clash(first: Edit, second: Edit) -> bool:
    """Whether two edits touch the same text; two insertions at one place do."""
    a, b = (first.line, first.column), (first.end_line, first.end_column)
    c, d = (second.line, second.column), (second.end_line, second.end_column)
    return (a < d and c < b) or a == c


def write(text: str, edits: list[Edit]) -> str:
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for edit in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        low, high = starts[edit.line - 1] + edit.column, starts[edit.end_line - 1] + edit.end_column
        text = text[:low] + edit.text + text[high:]
    return text


def parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def applicable(fix: Fix | None, unsafe: bool) -> bool:
    return fix is not None and (fix.safe or unsafe)
