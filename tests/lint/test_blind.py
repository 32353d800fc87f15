"""Programs written without sight of the rules: the fault is found where it stands, and the healthy version is clean."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from lint_cases import lint_files

# What the linter does not see yet, and why.
UNSEEN = {
    "c52_np_worker_rng": "numpy is seeded per worker since PyTorch 1.9",
    "c75_lm_no_shift": "no rule for targets that are the inputs of a causal model",
}
# What is rightly worth a look in a healthy version: its author mended another line.
WORTH_A_LOOK = {"g57_eps_too_small_for_half_precision"}
NEAR = 3
FILES = (
    "blind.txt",
    "blind_helpers.txt",
    "blind_hidden.txt",
    "blind_styles.txt",
    "blind_parts.txt",
    "blind_classes.txt",
    "blind_trainers.txt",
    "blind_wards.txt",
)


class Case(NamedTuple):
    name: str
    causes: frozenset[str]
    faulty: dict[str, str]
    healthy: dict[str, str]
    places: frozenset[tuple[str, int]]


def cases() -> list[Case]:
    texts = [(Path(__file__).parent / name).read_text() for name in FILES]
    return [read(part) for text in texts for part in text.split("\n=== ")[1:]]


def read(part: str) -> Case:
    head, _, body = part.partition("\n")
    name, causes, _ = (word.strip() for word in head.split("|"))
    faulty: dict[str, str] = {}
    healthy: dict[str, str] = {}
    places = set()
    for file in f"\n{body}".split("\n--- ")[1:]:
        path, _, text = file.partition("\n")
        lines = [line for line in text.split("\n") if not line.startswith("+|")]
        places |= {(path, at) for at, line in enumerate(lines, 1) if line.endswith("#!")}
        faulty[path] = written(path, lines)
        healthy[path] = written(path, [line for line in text.split("\n") if not line.startswith("-|")])
    return Case(name, frozenset(causes.replace(" ", "").split(",")), faulty, healthy, frozenset(places))


def written(path: str, lines: list[str]) -> str:
    text = "\n".join(line.removeprefix("-|").removeprefix("+|").removesuffix("#!").rstrip() for line in lines) + "\n"
    if not path.endswith(".ipynb"):
        return text
    cells = [{"cell_type": "code", "source": cell.lstrip("\n")} for cell in text.split("# %%")[1:]]
    return json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}})


ALL = cases()


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_fault_is_found_near_its_line(case: Case, tmp_path: Path) -> None:
    found = [one for one in lint_files(case.faulty, tmp_path) if fits(one.cause, case.causes)]
    # Lines of a notebook count within their cell.
    seen = any(one.cell or close(one.path, one.line, case) for one in found)
    assert seen != (case.name in UNSEEN)


def fits(cause: str, causes: frozenset[str]) -> bool:
    return "*" in causes or cause in causes or f"{cause.split('.')[0]}.*" in causes


def close(path: str, line: int, case: Case) -> bool:
    return any(file == path and abs(at - line) <= NEAR for file, at in case.places)


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_healthy_version_is_clean(case: Case, tmp_path: Path) -> None:
    found = [
        one for one in lint_files(case.healthy, tmp_path) if one.confidence != "look" or case.name not in WORTH_A_LOOK
    ]
    assert found == []


def test_most_are_found() -> None:
    assert len(ALL) >= 300
    assert len(UNSEEN) <= len(ALL) // 10
    assert {case.name for case in ALL} > set(UNSEEN)
