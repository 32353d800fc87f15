"""From what the watches wrote to clues: outcomes by the tables of the knowledge base, ranks joined."""

import glob
import os
from typing import Any, NamedTuple

from clew.case.clues import answered, unclear
from clew.errors import ClewError
from clew.knowledge.model import Knowledge, Test
from clew.observe.ranks import drifted, joined
from clew.records import exact
from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place
from clew.records.trace import Series


class Process(NamedTuple):
    """What one observed process left behind."""

    pid: int
    rank: int
    world: int
    steps: int
    seconds: float
    models: int
    final: bool
    answers: tuple[dict[str, Any], ...]
    series: dict[tuple[str, str], Series]


def processes(folder: str) -> list[Process]:
    """The processes that trained, in order of rank; when none did, those that at least had a model."""
    found = [read_process(path) for path in answer_files(folder)]
    trained = [held for held in found if held.steps] or [held for held in found if held.models]
    return sorted(trained, key=lambda held: (held.rank, held.pid))


def answer_files(folder: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(folder), "answers-*.json")))


def read_process(path: str, trace: bool = True) -> Process:
    """What the process wrote; without its trace where only its answers are wanted."""
    try:
        with open(path, encoding="ascii") as file:
            table = exact.loads(file.read())
    except (OSError, ValueError) as error:
        raise ClewError(f"{path} cannot be read: {error}.") from error
    series = os.path.join(os.path.dirname(path), f"trace-{table['pid']}.jsonl")
    return Process(
        table["pid"],
        table["rank"],
        table["world"],
        table["steps"],
        table["seconds"],
        table["models"],
        table["final"],
        tuple(table["answers"]),
        read_series(series) if trace else {},
    )


def read_series(path: str) -> dict[tuple[str, str], Series]:
    """The numbers of a trace by name and part; a torn last line is left out."""
    steps: dict[tuple[str, str], list[int]] = {}
    values: dict[tuple[str, str], list[float]] = {}
    if os.path.exists(path):
        with open(path, "rb") as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    name, of, step, value = exact.loads(raw.decode("ascii"))
                    steps.setdefault((name, of), []).append(int(step))
                    values.setdefault((name, of), []).append(float(value))
    return {key: Series(key[0], tuple(steps[key]), tuple(values[key]), key[1]) for key in steps}


def rank_clues(knowledge: Knowledge, parts: list[Process]) -> list[Clue]:
    """What only the ranks together show: whether they read the same examples, and whether they still hold the same
    parameters."""
    worlds, ranks = {part.world for part in parts}, {part.rank for part in parts}
    if len(parts) < 2 or len(worlds) > 1 or worlds == {1} or len(ranks) < len(parts):
        return []  # one process, or processes that know nothing of each other
    clues = []
    traces = [part.series for part in parts]
    for name, answer in (("rank_data_overlap", joined(traces)), ("rank_parameters", drifted(traces))):
        test = knowledge.tests[name]
        if isinstance(answer, Reading):
            clues.append(answered(test, answer.measured, where=answer.where, source=test.by))
        elif isinstance(answer, Unclear):
            clues.append(unclear(test, answer.why, test.by))
    return clues


def clues_of(knowledge: Knowledge, held: Process) -> list[Clue]:
    """One clue per test that was answered."""
    clues = []
    for answer in held.answers:
        test = knowledge.tests.get(answer["test"])
        if test is not None:
            clues.append(_clue(test, answer, held))
    return clues


def _clue(test: Test, answer: dict[str, Any], held: Process) -> Clue:
    if "unclear" in answer:
        return unclear(test, answer["unclear"], test.by)
    extra = {"rank": held.rank} if held.world > 1 else {}
    return answered(
        test,
        tuple(sorted(answer["measured"].items())),
        answer.get("outcome", ""),
        where=tuple(Place.from_json({**place, **extra}) for place in answer["where"]),
        says=answer.get("says", ""),
        source=test.by,
    )
