"""All checks on the tables of a run: for each test, the answer that speaks most strongly."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from clew.data.model import Found, Look, Table
from clew.data.parts import families_of
from clew.data.read import Unread, read
from clew.records.clue import Answer, Saw, Unclear

CHECKS = (
    "file_lines_paired", "file_missing_values", "file_constant_values", "file_label_coding", "file_class_counts",
    "file_units", "file_rows_shared", "file_time_order", "file_tells_target", "file_cache_fits", "file_labels_fit",
)  # fmt: skip
"""The cheapest first: time may run out."""
MOST_FILES = 40
EXPLAINING = frozenset(
    (
        "differs",
        "other_in_validation",
        "other_in_part",
        "other_in_target",
        "part_emptied",
        "target_emptied",
        "class_emptied",
        "lost",
    )
)


def tables(paths: Iterable[tuple[str, str]]) -> tuple[list[Table], list[str]]:
    """The tables in these files, given as path and shown name, and why others hold none."""
    found: list[Table] = []
    notes: list[str] = []
    for path, shown in paths:
        if len(found) >= MOST_FILES:
            notes.append(f"only the first {MOST_FILES} data files were read")
            break
        try:
            found.append(read(path, shown))
        except Unread as error:
            notes.append(f"{os.path.basename(shown)}: {error}")
    return found, notes


def answers(
    found: Sequence[Table],
    sources: Sequence[str],
    clock: Callable[[], float] = time.monotonic,
    until: float = float("inf"),
    files: Sequence[tuple[str, str]] = (),
) -> Iterator[tuple[str, Answer]]:
    """Test and answer, as they come. `files` are all that were read, also those that hold no table."""
    held = Look(families_of(found, sources), files=tuple(files))
    seen: dict[str, Answer] = {}
    for name in CHECKS:
        if clock() > until:
            yield name, Unclear("the time limit for data files was reached")
            continue
        module = importlib.import_module(f"clew.data.checks.{name}")
        answer = strongest(module.look(held))
        seen[name] = sobered(name, answer, seen)
        yield name, seen[name]


def sobered(name: str, answer: Answer, seen: dict[str, Answer]) -> Answer:
    """Labels that nothing tells follow from inputs or labels that were found to be out of order otherwise."""
    if (
        name != "file_labels_fit"
        or not isinstance(answer, Saw)
        or answer.outcome not in ("chance_in_part", "noisy", "contradicted")
    ):
        return answer
    for other in ("file_label_coding", "file_units", "file_constant_values", "file_class_counts"):
        found = seen.get(other)
        if isinstance(found, Saw) and found.outcome in EXPLAINING:
            return Unclear(f"values that differ from the rest hide the answer ({found.says.rstrip('.')})")
    return answer


def strongest(found: Iterable[Found]) -> Answer:
    """What is told of several findings of one test: the strongest, with the places of its equals."""
    held = list(found)
    if not held:
        return Unclear("no data file to check")
    best = max(held, key=lambda item: item.weight)
    if isinstance(best.answer, Saw):
        equals = [item.answer for item in held if item.weight == best.weight and isinstance(item.answer, Saw)]
        same = [item for item in equals if item.outcome == best.answer.outcome]
        best.answer.at(*(place for item in same for place in item.where))
        if len(same) > 1:
            best.answer.saying(" ".join(item.says for item in same[:3]))
    return best.answer
