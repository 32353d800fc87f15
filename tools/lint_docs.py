"""Writes the list of rules in docs/LINT.md from the rules' own files.

python tools/lint_docs.py           write it
python tools/lint_docs.py --check   exit 1 when it is not up to date
"""

import sys
from pathlib import Path

from clew.lint.registry import HEADINGS, Rule, load

PAGE = Path(__file__).resolve().parent.parent / "docs" / "LINT.md"
MARK = "<!-- rules: written by tools/lint_docs.py from src/clew/lint/rules -->"
FAMILIES = {
    "CLW1": "What the loss is given",
    "CLW2": "The training step",
    "CLW3": "Training and validation",
    "CLW4": "The model",
    "CLW5": "The data",
    "CLW6": "Numbers",
    "CLW7": "JAX",
    "CLW8": "Reinforcement learning",
}


def table(rules: list[Rule]) -> list[str]:
    rows = ["| code | name | confidence | cause |", "|---|---|---|---|"]
    rows += [
        f"| [{rule.code}](#{rule.code.lower()}) | {rule.name} | {rule.confidence} | `{rule.cause}` |" for rule in rules
    ]
    return rows


def entry(rule: Rule) -> list[str]:
    lines = [f'#### <a id="{rule.code.lower()}"></a>{rule.code} {rule.name}', "", rule.title, ""]
    for heading in HEADINGS:
        lines += [f"- **{heading}:** {rule.section(heading)}"]
    return [*lines, ""]


def written() -> str:
    rules = list(load().values())
    lines = [MARK, "", f"There are {len(rules)} rules.", "", *table(rules), ""]
    for prefix, title in FAMILIES.items():
        lines += [f"### {title}", ""]
        for rule in rules:
            if rule.code.startswith(prefix):
                lines += entry(rule)
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    held = PAGE.read_text()
    page = held[: held.index(MARK)] + written()
    if "--check" in sys.argv[1:]:
        if page != held:
            print("docs/LINT.md is not up to date; run python tools/lint_docs.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
