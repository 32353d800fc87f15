"""Shows where the knowledge of the founding documents lives in clew: writes docs/COVERAGE.md from docs/coverage.toml.

    python tools/coverage.py           write docs/COVERAGE.md
    python tools/coverage.py --check   exit 1 when it is not up to date

Each entry of coverage.toml names a line of one edition of a document (`line`, with `to` when it spans several), says in
our own words what stands there, and where clew holds it. `places` finds the lines that must have an entry of their own:

handbook, reproducing-deep-rl   headings (unindented lines between blank ones, at most 90 characters, that end like no
                                sentence), items that begin with a bullet or a number, and the rows of a table, which
                                runs from a header line (HEADERS) to the next blank one
evidence-map                    headings (#), the thesis, and numbered premises and conclusions
nuts-and-bolts                  items, which the conversion from PDF marks (cid:73), and lines of two or more words that
                                begin with a capital: headings, and items that were parted from their mark
deep-rl-hacks                   headings (#) and items that begin with a dash or a number

Lines within an entry that is outside the scope, such as front matter, need no entry of their own. Every other line that
holds a word must at least lie within an entry, so that nothing is left out silently.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "docs" / "coverage.toml"
TARGET = ROOT / "docs" / "COVERAGE.md"

DOCUMENTS = ("handbook", "evidence-map", "nuts-and-bolts", "deep-rl-hacks", "reproducing-deep-rl")
PARTS = (
    "knowledge",
    "evidence",
    "case",
    "preflight",
    "lint",
    "exams",
    "observe",
    "symptoms",
    "landscape",
    "sweep",
    "rl",
    "physics",
    "archive",
)
SHELVES = {
    "cause": "causes",
    "test": "tests",
    "symptom": "symptoms",
    "triage": "triage",
    "lens": "lenses",
    "habit": "habits",
    "antipattern": "antipatterns",
    "range": "ranges",
    "reference": "references",
    "claim": "claims",
    "domain": "domains",
    "family": "families",
}
HEADERS = ("Symptom ", "Pattern ", "Metric ", "Signal ", "d(loss)/d(metric) ")
ITEM = re.compile(r"\s*(•|\d+\.)\s")
PREMISE = re.compile(r"\(\d+\) \[|\[[A-Z][^\]]*\]: |#")
HACK = re.compile(r"\s*(#+|\d+\.|-)\s")
MARK = re.compile(r"\(cid:\d+\)")
TITLE = re.compile(r"[A-Z]\S* \S")
WORD = re.compile(r"[^\W\d_]{3}")


class Entry(NamedTuple):
    line: int
    to: int
    about: str
    covered_by: tuple[str, ...]

    def lines(self) -> range:
        return range(self.line, self.to + 1)

    def outside(self) -> bool:
        return all(reference.startswith("outside:") for reference in self.covered_by)


class Document(NamedTuple):
    id: str
    title: str
    url: str
    digest: str
    entries: tuple[Entry, ...]


class Coverage(NamedTuple):
    built: tuple[str, ...]
    documents: tuple[Document, ...]


def read(path: Path = SOURCE) -> Coverage:
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    documents = []
    for key in DOCUMENTS:
        held = table[key]
        entries = tuple(
            Entry(row["line"], row.get("to", row["line"]), row["about"], tuple(row["covered_by"]))
            for row in held["entries"]
        )
        documents.append(Document(key, held["title"], held["url"], held["digest"], entries))
    return Coverage(tuple(table["built"]), tuple(documents))


def _heading(lines: list[str], index: int) -> bool:
    line = lines[index]
    before = lines[index - 1] if index else ""
    after = lines[index + 1] if index + 1 < len(lines) else ""
    alone = not before.strip() and not after.strip()
    return alone and line[:1].isalnum() and len(line) <= 90 and line[-1] not in ".:,;!"


def _rows(lines: list[str]) -> Iterator[int]:
    inside = False
    for index, line in enumerate(lines):
        inside = bool(line.strip()) and (inside or line.startswith(HEADERS))
        if inside:
            yield index


def places(document: str, text: str) -> set[int]:
    """The lines, counted from 1, that must have an entry of their own."""
    lines = text.splitlines()
    if document == "evidence-map":
        found = {index for index, line in enumerate(lines) if PREMISE.match(line)}
    elif document == "nuts-and-bolts":
        marked = {index for index, line in enumerate(lines) if MARK.search(line) and WORD.search(MARK.sub("", line))}
        found = marked | {index for index, line in enumerate(lines) if TITLE.match(line)}
    elif document == "deep-rl-hacks":
        found = {index for index, line in enumerate(lines) if HACK.match(line)}
    else:
        found = {index for index, line in enumerate(lines) if ITEM.match(line) or _heading(lines, index)}
        found.update(_rows(lines))
    return {index + 1 for index in found}


def with_words(text: str) -> set[int]:
    """The lines, counted from 1, that hold a word and so must lie within some entry."""
    return {number for number, line in enumerate(text.splitlines(), 1) if WORD.search(MARK.sub("", line))}


def gaps(document: Document, text: str) -> list[str]:
    """What the entries leave out of the document itself, as sentences."""
    starts = {entry.line for entry in document.entries}
    within = {number for entry in document.entries for number in entry.lines()}
    excused = {number for entry in document.entries if entry.outside() for number in entry.lines()}
    missing = sorted(places(document.id, text) - starts - excused)
    loose = sorted(with_words(text) - within)
    return [f"{document.id}: line {number} has no entry of its own" for number in missing] + [
        f"{document.id}: line {number} lies within no entry" for number in loose
    ]


def kind(reference: str) -> tuple[str, str]:
    shelf, _, name = reference.partition(":")
    return shelf, name.strip()


def shown(reference: str, built: tuple[str, ...]) -> str:
    shelf, name = kind(reference)
    if shelf == "part":
        return f"**{name}**" if name in built else f"planned: {name}"
    if shelf == "outside":
        return f"outside: {name}"
    return f"{shelf} `{name}`"


def page(coverage: Coverage) -> str:
    out = [
        "# Coverage",
        "",
        "Where the knowledge of the founding documents lives in clew. Written by `python tools/coverage.py` from",
        "`docs/coverage.toml`; a test checks that every id exists and that no heading, table row or item was left out.",
        "`clew why ID` shows an entry. A part in bold is built, *planned* is to come, *outside* says why something is",
        "left out. Lines are those of the edition whose digest is given.",
        "",
        "| document | entries | held as knowledge | by a part | outside |",
        "|---|---:|---:|---:|---:|",
    ]
    out += [_summary(document) for document in coverage.documents]
    for document in coverage.documents:
        out += ["", f"## {document.title}", "", f"{document.url}, sha256 {document.digest[:16]}…", ""]
        out += ["| line | about | covered by |", "|---:|---|---|"]
        for entry in document.entries:
            where = str(entry.line) if entry.to == entry.line else f"{entry.line}–{entry.to}"
            held = ", ".join(shown(reference, coverage.built) for reference in entry.covered_by)
            out.append(f"| {where} | {entry.about} | {held} |")
    return "\n".join(out) + "\n"


def _summary(document: Document) -> str:
    count: Counter[str] = Counter()
    for entry in document.entries:
        shelves = {kind(reference)[0] for reference in entry.covered_by}
        count["knowledge"] += bool(shelves & SHELVES.keys())
        count["part"] += "part" in shelves
        count["outside"] += "outside" in shelves
    figures = f"{count['knowledge']} | {count['part']} | {count['outside']}"
    return f"| {document.title} | {len(document.entries)} | {figures} |"


def main(arguments: list[str]) -> int:
    made = page(read())
    if arguments == ["--check"]:
        if TARGET.exists() and TARGET.read_text(encoding="utf-8") == made:
            return 0
        print("docs/COVERAGE.md is not up to date: run python tools/coverage.py.", file=sys.stderr)
        return 1
    if arguments:
        print(f"coverage.py takes --check or nothing, not {' '.join(arguments)}.", file=sys.stderr)
        return 2
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
