"""What `clew log` prints: what was understood, then the verdict, what was seen, what it may be, where to look."""

from typing import NamedTuple

from clew.report.run_page import possible
from clew.report.terminal import VERDICT_COLOURS, next_tests, sentence
from clew.report.text import BOLD, DIM, Page, number
from clew.report.view import CaseView

MOST_NAMES = 12
LONGEST_NAME = 26
UNUSED = ("other", "timing")


class LogLine(NamedTuple):
    """One name of a log and what it was taken for."""

    source: str
    role: str
    split: str
    goal: str
    points: int
    last: float


class LogFile(NamedTuple):
    path: str
    form: str
    axis: str
    lines: tuple[LogLine, ...]
    notes: tuple[str, ...] = ()


class LogFacts(NamedTuple):
    """What was read, apart from what it means."""

    files: tuple[LogFile, ...]
    runs: int = 1
    notes: tuple[str, ...] = ()


class _Groups(NamedTuple):
    """Outcomes by kind; what is unclear by its reason."""

    seen: list[str]
    absent: list[str]
    unclear: dict[str, list[str]]


def log_page(seen: CaseView, facts: LogFacts, page: Page) -> Page:
    for file in facts.files:
        _understood(file, page)
    if facts.runs > 1:
        page.say(f"Read as {facts.runs} runs; what any of them shows counts.", 2, "- ", DIM)
    for note in facts.notes:
        page.say(sentence(note), 2, "- ", DIM)
    page.line()
    verdict, groups = seen.verdict, _groups(seen)
    page.say(verdict.says, 0, " " * (len(verdict.shown) + 2))
    lead = page.paint(verdict.shown, VERDICT_COLOURS[verdict.word], BOLD)
    first = next(at for at in range(len(page.lines) - 1, -1, -1) if page.lines[at] == "") + 1
    page.lines[first] = lead + page.lines[first][len(verdict.shown) :]
    if groups.seen:
        page.head("Seen")
        for text in groups.seen:
            page.say(text, 2, "- ")
    if verdict.word != "healthy" and groups.seen:
        possible(seen, page)
        next_tests(seen, page, most=2)
        page.line()
        page.say("A log shows that something is wrong, seldom where: `clew run SCRIPT` looks inside.")
    if groups.absent:
        page.head(f"Passed ({len(groups.absent)})")
        page.say(", ".join(groups.absent), 2, "", DIM)
    if groups.unclear:
        page.head(f"This log cannot tell ({sum(len(names) for names in groups.unclear.values())})")
        for why, names in groups.unclear.items():
            page.say(f"{', '.join(names)}: {why}.", 2, "- ", DIM)
    return page


def _understood(file: LogFile, page: Page) -> None:
    counted = {"order": "numbered in order", "frames": "by environment step"}.get(file.axis, f"by {file.axis}")
    page.say(f"{file.path}: {file.form}, {counted}", 0, "", BOLD)
    known = [line for line in file.lines if line.role not in UNUSED]
    shown = known[:MOST_NAMES]
    width = max([4, *(len(_short(line.source)) for line in shown)])
    if shown:
        page.line(f"  {'name'.ljust(width)}  {'taken for':<24}{'points':>9}  {'last':>10}", DIM)
    for line in shown:
        figures = f"{line.points:>9}  {number(line.last):>10}"
        page.line(f"  {_short(line.source).ljust(width)}  {_role(line):<24}{figures}")
    left = [line.source for line in known[MOST_NAMES:]] + [line.source for line in file.lines if line.role in UNUSED]
    if left:
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        page.say(", ".join(_short(name) for name in left[:8]) + more, 2, "not used: ", DIM)
    for note in file.notes:
        page.say(sentence(note), 2, "- ", DIM)


def _short(name: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return plain if len(plain) <= LONGEST_NAME else plain[: LONGEST_NAME - 1] + "…"


def _role(line: LogLine) -> str:
    if line.role != "metric":
        return line.role
    split = {"val": "validation ", "test": "test ", "train": "training "}.get(line.split, "")
    return f"{split}metric" + (f" ({line.goal})" if line.goal else "")


def _groups(seen: CaseView) -> _Groups:
    groups = _Groups([], [], {})
    for held, weighed in zip(seen.counted, seen.weighing.clues, strict=True):
        clue = held.clue
        if weighed.kind == "seen":
            figures = ", ".join(f"{name} {number(value)}" for name, value in clue.measured[:3])
            places = f" At {'; '.join(str(place) for place in clue.where)}." if clue.where else ""
            measured = f" Measured {figures}." if figures else ""
            groups.seen.append(f"{clue.says[:1].upper()}{clue.says[1:].rstrip('.')} ({clue.test}).{measured}{places}")
        elif weighed.kind == "absent":
            groups.absent.append(clue.test)
        else:
            groups.unclear.setdefault(clue.why, []).append(clue.test)
    return groups
