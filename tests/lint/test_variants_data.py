"""The same faults in many spellings, each with a healthy twin: found, and nothing said about the twin."""

from pathlib import Path

import pytest
from lint_cases import lint_files
from test_blind import Case, fits, read

FILES = (
    "variants_data.txt",
    "variants_parts.txt",
    "variants_more.txt",
    "variants_trainers.txt",
    "variants_classes.txt",
)
TEXTS = [(Path(__file__).parent / name).read_text() for name in FILES]
ALL = [read(part) for text in TEXTS for part in text.split("\n=== ")[1:]]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_fault_is_found_and_the_twin_is_clean(case: Case, tmp_path: Path) -> None:
    found = lint_files(case.faulty, tmp_path / "faulty")
    assert any(fits(one.cause, case.causes) for one in found)
    assert lint_files(case.healthy, tmp_path / "healthy") == []


def test_names_are_unique() -> None:
    assert len({case.name for case in ALL}) == len(ALL) >= 320
