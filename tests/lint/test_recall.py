"""Programs with one silent fault, in natural code: the fault is found at its line, and the healthy twin is clean."""

from pathlib import Path

import pytest
from lint_cases import Program, lint_files, programs

ALL = programs()
VARIANTS = (Path(__file__).parent / "variants.txt").read_text().split("\n=== ")[1:]


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_fault_is_found(program: Program, tmp_path: Path) -> None:
    found = lint_files(program.faulty, tmp_path)
    assert program.places & {(one.path, one.line) for one in found if one.cause == program.cause}


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.name)
def test_the_healthy_twin_is_clean(program: Program, tmp_path: Path) -> None:
    assert lint_files(program.healthy, tmp_path) == []


def test_there_are_enough_of_them() -> None:
    assert len(ALL) >= 50
    assert len({program.cause for program in ALL}) >= 25


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.split(" ")[0])
def test_the_same_fault_in_other_words(variant: str, tmp_path: Path) -> None:
    head, _, text = variant.partition("\n")
    assert head.split(" ")[1] in {one.cause for one in lint_files(split(text), tmp_path)}


def split(text: str) -> dict[str, str]:
    """One file, or several that begin with `>>> name`."""
    if not text.startswith(">>> "):
        return {"train.py": text}
    parts = [part.partition("\n") for part in f"\n{text}".split("\n>>> ")[1:]]
    return {name: body for name, _, body in parts}
