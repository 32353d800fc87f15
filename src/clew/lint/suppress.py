"""Comments that switch rules off: `# clew: ignore[CLW101] reason`, `# clew: ignore-file[...]`, and `# noqa`."""

import re
from typing import NamedTuple

from clew.lint.model import Finding

COMMENT = re.compile(r"#\s*clew:\s*(ignore-file|ignore)\b(?:\[([^\]]*)\])?", re.IGNORECASE)
NOQA = re.compile(r"#\s*noqa\b(?:\s*:\s*([A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)
NAME, UNUSED = "unused-suppression", "CLW001"


class Suppression(NamedTuple):
    """One comment. Empty `codes` mean all rules; `alone` says that nothing but the comment stands on its line."""

    line: int
    column: int
    end: int
    codes: frozenset[str]
    whole_file: bool
    ours: bool
    alone: bool

    def covers(self, finding: Finding, line: int, end: int) -> bool:
        if self.codes and finding.rule not in self.codes and finding.name not in self.codes:
            return False
        return self.whole_file or line <= self.line <= end or (self.alone and self.line + 1 == line)


def suppressions(text: str) -> list[Suppression]:
    """The comments of a file that switch rules off; text inside of strings is none."""
    if "clew:" not in text and "noqa" not in text:
        return []
    found = []
    for number, column, comment in comments(text):
        for match in COMMENT.finditer(comment):
            codes = frozenset(code.strip() for code in (match[2] or "").split(",") if code.strip())
            alone = not text.split("\n")[number - 1][:column].strip()
            whole = match[1].lower() == "ignore-file"
            found.append(Suppression(number, column, column + len(comment), codes, whole, True, alone))
        for match in NOQA.finditer(comment):
            codes = frozenset(re.split(r"[,\s]+", match[1].upper())) if match[1] else frozenset()
            if not codes or any(code.startswith("CLW") for code in codes):
                found.append(Suppression(number, column, column + len(comment), codes, False, False, False))
    return found


def comments(text: str) -> list[tuple[int, int, str]]:
    """Line, column and text of every comment."""
    import io
    import tokenize

    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, ValueError):
        return [
            (at, line.index("#"), line[line.index("#") :]) for at, line in enumerate(text.split("\n"), 1) if "#" in line
        ]
    return [(token.start[0], token.start[1], token.string) for token in tokens if token.type == tokenize.COMMENT]


def apply(findings: list[tuple[Finding, int, int]], held: list[Suppression], path: str) -> list[Finding]:
    """What is left of the findings (each with its first and last line in the text), and the comments that were not
    needed."""
    used: set[Suppression] = set()
    left = []
    for finding, line, end in findings:
        by = [one for one in held if one.covers(finding, line, end)]
        used.update(by)
        if not by:
            left.append(finding)
    for one in held:
        if one.ours and one not in used:
            what = ", ".join(sorted(one.codes)) or "anything"
            message = f"unused suppression: it hides no finding of {what}."
            left.append(
                Finding(UNUSED, NAME, "", path, one.line, one.column + 1, one.line, one.end + 1, message, "certain")
            )
    return left
