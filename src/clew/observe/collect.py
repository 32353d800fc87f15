"""From what the watches wrote to clues: outcomes by the tables of the knowledge base, ranks joined."""

import glob
import os
from typing import Any, NamedTuple

from clew.case.weigh import on_scale
from clew.errors import ClewError
from clew.knowledge.model import Knowledge, Test
from clew.records import exact
from clew.records.clue import UNCLEAR, Clue
from clew.records.place import Place
from clew.records.trace import Series

ORDER = {"seen": 0, "absent": 1, UNCLEAR: 2}


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
    found = []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "answers-*.json"))):
        try:
            with open(path, encoding="ascii") as file:
                table = exact.loads(file.read())
        except (OSError, ValueError) as error:
            raise ClewError(f"{path} cannot be read: {error}.") from error
        found.append(
            Process(
                table["pid"],
                table["rank"],
                table["world"],
                table["steps"],
                table["seconds"],
                table["models"],
                table["final"],
                tuple(table["answers"]),
                read_series(os.path.join(folder, f"trace-{table['pid']}.jsonl")),
            )
        )
    trained = [held for held in found if held.steps] or [held for held in found if held.models]
    return sorted(trained, key=lambda held: (held.rank, held.pid))


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


def clues_of(knowledge: Knowledge, held: Process) -> list[Clue]:
    """One clue per test that was answered."""
    clues = []
    for answer in held.answers:
        test = knowledge.tests.get(answer["test"])
        if test is not None:
            clues.append(_clue(test, answer, held))
    return clues


def _clue(test: Test, answer: dict[str, Any], held: Process) -> Clue:
    rank = held.rank if held.world > 1 else None
    if "unclear" in answer:
        return Clue(test.id, UNCLEAR, reads=(test.reads,), source=test.by, why=answer["unclear"], version=test.version)
    measured = answer["measured"]
    outcome = answer.get("outcome", "")
    if not outcome and test.scale is not None and test.scale.of in measured:
        outcome = on_scale(test.scale, float(measured[test.scale.of]))
    known = test.outcome(outcome)
    if known is None:
        why = f"the instrument answered {outcome or measured!r}, which this test does not know"
        return Clue(test.id, UNCLEAR, reads=(test.reads,), source=test.by, why=why, version=test.version)
    where = tuple(
        Place.from_json({**place, **({"rank": rank} if rank is not None else {})}) for place in answer["where"]
    )
    return Clue(
        test=test.id,
        outcome=outcome,
        measured=tuple(sorted(measured.items())),
        where=where,
        reads=(test.reads,),
        source=test.by,
        says=answer.get("says") or known.means,
        version=test.version,
    )


def join(knowledge: Knowledge, parts: list[list[Clue]]) -> list[Clue]:
    """One clue per test over all ranks: what any rank saw counts, then what any found absent, then unclear."""
    best: dict[str, tuple[int, int, Clue]] = {}
    for rank, clues in enumerate(parts):
        for clue in clues:
            outcome = knowledge.tests[clue.test].outcome(clue.outcome)
            key = (ORDER[outcome.kind if outcome else UNCLEAR], rank, clue)
            if clue.test not in best or key[:2] < best[clue.test][:2]:
                best[clue.test] = key
    return [clue for _, _, clue in best.values()]
