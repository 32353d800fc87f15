"""Writes the reference of exams and assertions into docs/EXAMS.md, from the docstrings that are their documentation.

python tools/exams.py           write it
python tools/exams.py --check   exit 1 when it is not up to date
"""

import inspect
import re
import sys
from pathlib import Path

from clew import testing
from clew.exams.exam import Exam, all_exams

TARGET = Path(__file__).resolve().parent.parent / "docs" / "EXAMS.md"
HEADINGS = ("Why it matters", "Cannot tell", "Silent when", "Sources")


def parts(doc: str) -> tuple[str, str, dict[str, str]]:
    """The question, what the exam does, and the text under each heading."""
    question, _, rest = doc.strip().partition("\n")
    split = re.split(rf"^({'|'.join(HEADINGS)}):", rest, flags=re.MULTILINE)
    told = {name: " ".join(text.split()) for name, text in zip(split[1::2], split[2::2], strict=True)}
    return question, " ".join(split[0].split()), told


def section(exam: Exam) -> str:
    question, does, told = parts(exam.doc)
    cost = f"at most {exam.steps} steps" if exam.steps else f"about {exam.seconds:g} s on a small network"
    needs = f"; needs {', '.join(exam.needs)}" if exam.needs else ""
    lines = [f"### {exam.name}", "", f"**{question}** {does}".rstrip(), ""]
    lines += [f"- {name}: {told[name]}" for name in HEADINGS[:3] if name in told]
    lines += [f"- It takes {cost}{needs}.", ""]
    return "\n".join(lines)


def assertions() -> str:
    rows = ["| assertion | holds when |", "|---|---|"]
    for name in testing.__all__:
        if name != "assert_exam":
            doc = " ".join((inspect.getdoc(getattr(testing, name)) or "").split())
            rows.append(f"| `{name}` | {doc} |")
    return "\n".join(rows)


def replaced(text: str, mark: str, made: str) -> str:
    """The text with what stands between two marks renewed."""
    begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{TARGET}: the marks {begin} and {end} are missing")
    return f"{head}{begin}\n{made.rstrip()}\n{end}{tail}"


def page(text: str) -> str:
    text = replaced(text, "assertions", assertions())
    return replaced(text, "exams", "\n".join(section(exam) for exam in all_exams().values()))


def main() -> int:
    old = TARGET.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in sys.argv[1:]:
        if new != old:
            print(f"{TARGET} is not up to date: python tools/exams.py", file=sys.stderr)
        return int(new != old)
    TARGET.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
