"""From what the watches wrote to clues: outcomes by the tables of the knowledge base, ranks joined."""

import glob
import os
from typing import Any, NamedTuple

from clew.archive.files import Damage, parse, read_bytes
from clew.archive.metrics import read_numbers
from clew.case.clues import answered, unclear
from clew.errors import ClewError
from clew.knowledge.model import Knowledge, Test
from clew.observe import crash, tally
from clew.observe.ranks import drifted, joined
from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place
from clew.records.trace import Series

STARTS = ("answers-", tally.BEGINS)


class Process(NamedTuple):
    """What one observed process left behind. `missing` says what was not kept."""

    pid: int
    rank: int
    world: int
    steps: int
    seconds: float
    models: int
    final: bool
    answers: tuple[dict[str, Any], ...]
    series: dict[tuple[str, str], Series]
    missing: tuple[str, ...] = ()
    part: bool = False  # of a training that several processes make together


class Crash(NamedTuple):
    """The exception that ended a process. `memory` in bytes, where it ran out of it."""

    kind: str
    says: str
    place: Place | None
    phase: str
    memory: dict[str, float]
    pid: int
    rank: str


def read_crash(folder: str) -> Crash | None:
    """The first one: a launcher fails because of its child."""
    found = []
    for path in glob.glob(os.path.join(glob.escape(folder), f"{crash.BEGINS}*")):
        try:
            held = parse(read_bytes(path))
            place = Place(held["file"], held["line"], symbol=held["symbol"] or None) if held["file"] else None
            made = Crash(
                held["kind"], held["says"], place, held["phase"], held["memory"], held["pid"], held["rank"] or ""
            )
            found.append((float(held["seconds"]), path, made))
        except (ClewError, ValueError, TypeError, KeyError, RecursionError):
            continue  # it was being written when the process was killed; what was printed says it too
    return min(found)[2] if found else None


def processes(folder: str) -> list[Process]:
    """The processes that trained, in order of rank; when none made a step, those that went backward."""
    found = [read_process(path) for path in answer_files(folder)]
    trained = [held for held in found if held.steps] or [held for held in found if ("loss", "") in held.series]
    return sorted(trained, key=lambda held: (held.rank, held.pid))


def answer_files(folder: str) -> list[str]:
    """Where each process in which torch was imported writes its answers, or would have."""
    names = [os.path.basename(path) for path in glob.glob(os.path.join(glob.escape(folder), "*-*"))]
    found = {name[len(start) :].removesuffix(".json") for name in names for start in STARTS if name.startswith(start)}
    return [os.path.join(folder, f"answers-{pid}.json") for pid in sorted(found) if pid.isdecimal()]


def read_process(path: str, whole: bool = True) -> Process:
    """What the process wrote; without its trace and its count of steps where only its answers are wanted. What is
    damaged costs only itself."""
    folder, pid = os.path.dirname(path), int(os.path.basename(path)[len("answers-") : -len(".json")])
    damage = Damage()
    trace = os.path.join(folder, f"trace-{pid}.jsonl")
    steps, numbers, text = tally.read(os.path.join(folder, f"{tally.BEGINS}{pid}")) if whole else (0, 0, 0)
    series = read_series(trace, damage) if whole and os.path.exists(trace) else {}
    missing = damage.remarks(trace)
    rank, world, seen, seconds, models, final, part = 0, 1, 0, 0.0, 0, False, False
    answers: tuple[dict[str, Any], ...] = ()
    try:
        table = parse(read_bytes(path))
        rank, world, seen = int(table["rank"]), int(table["world"]), int(table["steps"])
        seconds, models, final = float(table["seconds"]), int(table["models"]), bool(table["final"])
        part = bool(table.get("part"))
        answers = tuple(answer for answer in table["answers"] if isinstance(answer, dict))
    except (ClewError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        if not whole:
            raise ClewError(f"{path} cannot be read: {error}.") from error
        if steps:
            missing.append(f"what the instruments saw in process {pid} was not kept")
    if answers and steps > seen:
        missing.append(f"what the instruments saw in process {pid} after step {seen} of {steps} was not kept")
    if numbers:
        missing.append(f"{numbers} numbers of process {pid} could not be written")
    if text:
        missing.append(f"{text} pieces of what process {pid} printed could not be written")
    return Process(pid, rank, world, max(steps, seen), seconds, models, final, answers, series, tuple(missing), part)


def trainings(parts: list[Process]) -> list[Process]:
    """One process of each training: a script that starts others, one for each learning rate, makes several."""
    alone = [held for held in parts if not held.part]
    return alone or parts[:1]


def read_series(path: str, damage: Damage) -> dict[tuple[str, str], Series]:
    """The numbers of a trace by name and part."""
    held: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for name, of, step, value in read_numbers(path, damage):
        steps, values = held.setdefault((name, of), ([], []))
        steps.append(step)
        values.append(value)
    return {key: Series(key[0], tuple(steps), tuple(values), key[1]) for key, (steps, values) in held.items()}


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
