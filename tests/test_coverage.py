"""Nothing of the founding documents is forgotten silently, and what docs/COVERAGE.md promises exists."""

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from clew.knowledge import load

ROOT = Path(__file__).resolve().parent.parent
ORIGINALS = ROOT.parent / "shared" / "seeds"


def tool_module() -> ModuleType:
    """By path, since `import coverage` would mean the package of that name."""
    spec = importlib.util.spec_from_file_location("clew_coverage", ROOT / "tools" / "coverage.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


tool = tool_module()
coverage: Any = tool.read()
everything = [(document, entry) for document in coverage.documents for entry in document.entries]


def test_every_entry_says_where_it_is_held() -> None:
    bare = [f"{document.id}:{entry.line}" for document, entry in everything if not entry.covered_by]
    assert bare == []


def test_every_knowledge_reference_exists() -> None:
    knowledge = load()
    wrong = []
    for document, entry in everything:
        for reference in entry.covered_by:
            shelf, name = tool.kind(reference)
            if shelf in tool.SHELVES and name not in getattr(knowledge, tool.SHELVES[shelf]):
                wrong.append(f"{document.id}:{entry.line}: {reference}")
    assert wrong == []


def test_every_other_reference_is_a_part_or_gives_a_reason() -> None:
    wrong = []
    for document, entry in everything:
        for reference in entry.covered_by:
            shelf, name = tool.kind(reference)
            known = shelf in tool.SHELVES or (shelf == "part" and name in tool.PARTS) or (shelf == "outside" and name)
            if not known:
                wrong.append(f"{document.id}:{entry.line}: {reference}")
    assert wrong == []


def test_parts_called_built_are_there() -> None:
    package = ROOT / "src" / "clew"
    missing = [
        part
        for part in coverage.built
        if not (package / part).is_dir() and not (package / "cli" / f"{part}.py").exists()
    ]
    assert missing == []
    assert set(coverage.built) <= set(tool.PARTS)


def test_entries_rise_and_do_not_overlap() -> None:
    for document in coverage.documents:
        last = 0
        for entry in document.entries:
            assert entry.line > last, f"{document.id}:{entry.line} comes after line {last}"
            assert entry.to >= entry.line, f"{document.id}:{entry.line} ends before it begins"
            last = entry.to


def test_the_page_is_up_to_date() -> None:
    assert tool.main(["--check"]) == 0


def test_a_stale_page_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = tmp_path / "COVERAGE.md"
    monkeypatch.setattr(tool, "TARGET", stale)
    assert tool.main(["--check"]) == 1
    stale.write_text(tool.page(coverage) + "more", encoding="utf-8")
    assert tool.main(["--check"]) == 1
    assert "run python tools/coverage.py" in capsys.readouterr().err
    assert tool.main([]) == 0
    assert tool.main(["--check"]) == 0


def test_planned_and_built_parts_look_different() -> None:
    assert tool.shown("part:lint", ("case",)) == "planned: lint"
    assert tool.shown("part:case", ("case",)) == "**case**"
    assert tool.shown("outside: cloud pricing", ()) == "outside: cloud pricing"
    assert tool.shown("cause:loss.double_softmax", ()) == "cause `loss.double_softmax`"


PROSE = """A heading of the part

A sentence that goes on and ends as sentences do.

  • an item
  1. a numbered item

Signal Meaning Action
first row what it means
second row what it means

code = call()
more = call(code)
"""


def test_headings_items_and_table_rows_are_found() -> None:
    assert tool.places("handbook", PROSE) == {1, 5, 6, 8, 9, 10}
    assert tool.places("evidence-map", "# One\n|\n(1) [Name]: text\n> quoted\n[Thesis]: all\n") == {1, 3, 5}
    assert tool.places("nuts-and-bolts", "(cid:73) Run it\n(cid:73)\nA Heading\nlower case\n") == {1, 3}
    assert tool.places("deep-rl-hacks", "## One\n|\n1. First\n- item\nplain words\n") == {1, 3, 4}


def test_a_forgotten_row_and_a_loose_line_are_reported() -> None:
    entry = tool.Entry(1, 6, "all of the beginning", ("habit:x",))
    document = tool.Document("handbook", "t", "u", "d", (entry,))
    found = tool.gaps(document, PROSE)
    assert "handbook: line 9 has no entry of its own" in found
    assert "handbook: line 12 lies within no entry" in found
    assert "handbook: line 3 lies within no entry" not in found
    excused = document._replace(entries=(entry._replace(to=13, covered_by=("outside: an example",)),))
    assert tool.gaps(excused, PROSE) == []


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the founding documents are not at hand")
@pytest.mark.parametrize("index", range(5))
def test_nothing_of_a_document_is_left_out(index: int) -> None:
    document = coverage.documents[index]
    content = next(ORIGINALS.glob(f"{index:03d}_*")).read_bytes()
    assert hashlib.sha256(content).hexdigest() == document.digest, "the line numbers are those of another edition"
    assert tool.gaps(document, content.decode("utf-8")) == []
    assert document.entries[-1].to <= len(content.decode("utf-8").splitlines())


@pytest.mark.skipif(not ORIGINALS.is_dir(), reason="the founding documents are not at hand")
def test_entries_are_in_our_own_words() -> None:
    """No run of seven words, and no heading of more than four, is taken over."""
    copied = []
    for index, document in enumerate(coverage.documents):
        text = next(ORIGINALS.glob(f"{index:03d}_*")).read_text(encoding="utf-8")
        runs = {tuple(words[start : start + 7]) for words in [_words(text)] for start in range(len(words) - 6)}
        lines = {tuple(_words(line)) for line in text.splitlines()}
        for entry in document.entries:
            about = _words(entry.about)
            taken = any(tuple(about[start : start + 7]) in runs for start in range(len(about) - 6))
            if taken or (len(about) > 4 and tuple(about) in lines):
                copied.append(f"{document.id}:{entry.line}: {entry.about}")
    assert copied == []


def _words(text: str) -> list[str]:
    return "".join(letter.lower() if letter.isalnum() else " " for letter in text).split()
