"""Reading logs that somebody else made, and saying what their curves show."""

import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from clew.app.known import known_domain
from clew.case.clues import answered, join, unclear
from clew.case.conduct import is_null
from clew.case.verdict import Verdict, contradicts
from clew.errors import ClewError
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge, Test
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue, Reading, Unclear
from clew.records.place import Place
from clew.records.trace import Series
from clew.report.log_page import LogFacts, LogFile, LogLine
from clew.report.view import CaseView, view
from clew.report.view import to_json as case_json
from clew.symptoms.agents import entropy_trend, returns_course
from clew.symptoms.curves import read_curves
from clew.symptoms.logs import Log, Understood, read_log
from clew.symptoms.logs_names import ENTROPY, GRAD_NORM, LOSS_TERM, METRIC, RETURNS, TRAIN_LOSS, VAL_LOSS, meaning
from clew.symptoms.model import Answer

MOST_FILES = 64
MOST_NEXT = 5
FIRST = 10


class Read(NamedTuple):
    """What was read, and what clew makes of it. Files that hold different quantities belong to one run."""

    logs: tuple[Log, ...]
    runs: tuple[tuple[Log, ...], ...]
    seen: CaseView
    notes: tuple[str, ...]


def read(paths: list[str], domain: str = "general", classes: int = 0) -> Read:
    """Read the files and weigh what their curves show. `classes` is the number of classes told apart, 0 if unknown."""
    domain = known_domain(domain)
    logs = tuple(read_log(path) for path in files(paths))
    runs = by_run(logs)
    knowledge = load()
    notes: list[str] = []
    if domain == "general" and any(meaning(held.source).base in RETURNS for log in logs for held in log.understood):
        domain = "rl"
    parts = [_clues(knowledge, run, classes, len(runs) > 1, notes) for run in runs]
    seen = _weigh(knowledge, join(knowledge, parts), logs, domain)
    return Read(logs, runs, seen, tuple(dict.fromkeys(notes)))


def files(paths: list[str]) -> list[str]:
    """The files meant: of a folder, the event files below it, or the tables that trainers leave in it."""
    found: list[str] = []
    for path in paths:
        found += _below(path) if os.path.isdir(path) else [path]
    found = list(dict.fromkeys(found))
    if len(found) > MOST_FILES:
        raise ClewError(f"{len(found)} logs at once are too many; name at most {MOST_FILES}.")
    return found


def _below(folder: str) -> list[str]:
    kinds: dict[str, list[str]] = {"tfevents": [], "trainer_state.json": [], "metrics.csv": []}
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if at[len(folder) :].count(os.sep) > 6:
            folders.clear()
        for name in sorted(names):
            for kind, held in kinds.items():
                if (kind in name and kind == "tfevents") or kind == name:
                    held.append(os.path.join(at, name))
    # A trainer saves its whole history with every checkpoint: the longest file has all of it.
    states = sorted(kinds["trainer_state.json"], key=os.path.getsize)[-1:]
    found = kinds["tfevents"] or kinds["metrics.csv"] or states
    if not found:
        raise ClewError(f"there is no event file, metrics.csv or trainer_state.json below {folder}; name a log file.")
    return found


def by_run(logs: tuple[Log, ...]) -> tuple[tuple[Log, ...], ...]:
    """Files of one run hold different quantities; where two hold the same one they are different runs."""
    runs: list[list[Log]] = []
    for log in logs:
        names = _telling(log)
        for run in runs:
            if names and not any(names & _telling(other) for other in run):
                run.append(log)
                break
        else:
            runs.append([log])
    return tuple(tuple(run) for run in runs)


def _telling(log: Log) -> set[str]:
    return {held.name for held in log.understood if held.role in (TRAIN_LOSS, VAL_LOSS, LOSS_TERM, METRIC)}


def _clues(knowledge: Knowledge, run: tuple[Log, ...], classes: int, several: bool, notes: list[str]) -> list[Clue]:
    series = curves_of(run, notes)
    chance = math.log(classes) if classes > 1 else None
    constant = 1 / classes if classes > 1 else None
    epochs = max((log.epochs for log in run), key=len)
    answers = read_curves(series, chance, constant=constant, epochs=epochs, per_epoch=_per_epoch(run, series, epochs))
    beside = _measured_alike(run, series)
    if beside is not None:
        alike = read_curves({**series, "train_loss": beside}, epochs=epochs, per_epoch=True)
        answers.update({test: alike[test] for test in ("train_val_gap", "val_erratic")})
    further: tuple[tuple[str, Callable[[Series], Answer], Callable[[Understood], bool]], ...] = (
        ("gradient_explodes", gradient_explodes, lambda held: held.role == GRAD_NORM),
        ("entropy_trend", entropy_trend, lambda held: held.role == ENTROPY),
        ("returns_course", returns_course, lambda held: held.role == METRIC and meaning(held.source).base in RETURNS),
    )
    for test, reader, wanted in further:
        own = next((series[held.name] for log in run for held in log.understood if wanted(held)), None)
        if own is not None:
            answers[test] = reader(own)
    return [
        _clue(knowledge.tests[test], answer, run[0].path, several)
        for test, answer in answers.items()
        if test in knowledge.tests
    ]


def curves_of(run: tuple[Log, ...], notes: list[str]) -> dict[str, Series]:
    """The series that tell something, by the names that the readers of curves know. Of several that could be the
    training loss the one with the most points is taken: it shows most of the course."""
    held = [(said, line) for log in run for said, line in zip(log.understood, log.series, strict=True)]
    chosen: dict[str, Series] = {}
    for role, name in ((TRAIN_LOSS, "train_loss"), (VAL_LOSS, "val_loss")):
        own = [(said, line) for said, line in held if said.role == role]
        if own:
            said, line = max(own, key=lambda pair: (pair[0].split != "test", pair[0].points))
            chosen[name] = line
            if len(own) > 1:
                others = " and ".join(f"{other.source!r}" for other, _ in own if other is not said)
                notes.append(
                    f"of what may be the {role}, {said.source!r} has the most points and was taken, not {others}."
                )
    for said, line in held:
        if said.role in (METRIC, LOSS_TERM, GRAD_NORM, ENTROPY) and said.name not in chosen:
            chosen[said.name] = line
    return spread(chosen, notes)


def _measured_alike(run: tuple[Log, ...], series: dict[str, Series]) -> Series | None:
    """A training loss that was evaluated whenever the validation loss was, where the log has one besides that of the
    batches: the two were measured by one function, so their difference means something."""
    held_out = series.get("val_loss")
    if held_out is None:
        return None
    for log in run:
        for said, line in zip(log.understood, log.series, strict=True):
            if said.role == TRAIN_LOSS and line.steps == held_out.steps and line is not series["train_loss"]:
                return line
    return None


def spread(series: dict[str, Series], notes: list[str], epochs: tuple[int, ...] = ()) -> dict[str, Series]:
    """Put what was logged by epoch onto the steps of the training loss, when the two were counted differently. `epochs`
    are the steps at which epochs begin, where that is known; otherwise the points are spread evenly."""
    loss = series.get("train_loss")
    if loss is None or len(loss.steps) < 20:
        return series
    made = dict(series)
    for name, line in series.items():
        count = len(line.steps)
        # A single point at 1 follows the first epoch, or all of them; one at 0 may come before any training.
        counted = line.steps[-1] >= 1 and line.steps[0] in (0, 1) and line.steps[-1] - line.steps[0] == count - 1
        if counted and count * 5 <= len(loss.steps) and count * 5 <= loss.steps[-1]:
            span = loss.steps[-1] - loss.steps[0]
            steps = tuple(loss.steps[0] + span * (at + 1) // count for at in range(count))
            if len(epochs) == count:
                steps = (*epochs[1:], loss.steps[-1] + 1)
            made[name] = line._replace(steps=steps)
            notes.append(
                f"the points of {name} count epochs, those of the training loss steps: they were spread evenly."
            )
    return made


def _per_epoch(run: tuple[Log, ...], series: dict[str, Series], epochs: tuple[int, ...]) -> bool:
    """Whether each point of the training loss stands for an epoch."""
    loss = series.get("train_loss")
    by_epoch = any(log.axis == "epoch" for log in run)
    return by_epoch or (loss is not None and len(epochs) > 2 and len(loss.steps) <= len(epochs) + 1)


def gradient_explodes(norm: Series) -> Answer:
    """The largest gradient norm against those at the start. Infinite norms early on are a loss scaler finding its
    level; infinite norms at the end are not."""
    finite = [value for value in norm.values if math.isfinite(value)]
    if len(norm.values) < 2 * FIRST or len(finite) < FIRST:
        return Unclear(f"{len(finite)} finite gradient norms were logged, {2 * FIRST} are needed")
    early = sorted(finite[:FIRST])[FIRST // 2]
    if early <= 0:
        return Unclear("the first gradient norms are zero")
    gone = not any(math.isfinite(value) for value in norm.values[-3:])
    return Reading(largest_over_early_median=math.inf if gone else max(finite) / early)


def _clue(test: Test, answer: Answer, path: str, several: bool) -> Clue:
    again = f"clew log {path}"
    if isinstance(answer, Unclear):
        return unclear(test, answer.why, "log", again)
    outcome = "" if isinstance(answer, Reading) else answer.outcome
    clue = answered(test, answer.measured, outcome, source="log", reproduce=again)
    known = test.outcome(clue.outcome)
    step = dict(answer.measured).get("first_step")
    place = Place(run=path if several else None, step=step if isinstance(step, int) else None)
    return clue._replace(where=(place,)) if known and known.kind == "seen" and place != Place() else clue


def _weigh(knowledge: Knowledge, clues: list[Clue], logs: tuple[Log, ...], domain: str) -> CaseView:
    names = " ".join(os.path.basename(log.path) for log in logs)
    case = Case(
        id=names[:80],
        folder="",
        symptom=f"clew log {names}",
        domain=domain,
        setting="routine",
        script="",
        code="",
        opened_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        entries=(),
        clues=tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(clues)),
        notes=(),
        own=(),
        preflights=(),
        closing=None,
        remarks=tuple(_remark(log) for log in logs),
    )
    seen = view(knowledge, case, most=20, by_hand=False)
    # What a log can show has been looked for in this one: the next observation is of another kind.
    further = [choice for choice in seen.choices if knowledge.tests[choice.test].by != "log"]
    return seen._replace(choices=tuple(further[:MOST_NEXT]), verdict=_verdict(seen))


def _verdict(seen: CaseView) -> Verdict:
    """A dozen looks at one or two curves are no fifty checks: a symptom that a fault explains far better than chance is
    not passed over. What sound runs often show too, such as a validation loss below that of training, may stand."""
    tests = seen.knowledge.tests
    signs = [held for held in seen.weighing.clues if held.kind == "seen" and tests[held.test].role == "symptom"]
    if seen.verdict.word in ("healthy", "undecided") and any(contradicts(seen.knowledge, held) for held in signs):
        lead = seen.weighing.shares[0].cause
        covered = is_null(seen.knowledge, lead) and lead != "none.healthy"
        return Verdict("suspect", seen.verdict.says if covered else "The symptoms may well be harmless.")
    return seen.verdict


def _remark(log: Log) -> str:
    names = ", ".join(
        f"{held.source} as {held.role} ({held.points})" for held in log.understood if held.role != "other"
    )
    return f"{log.path} was read as {log.format}: {names or 'nothing that clew recognises'}"


def facts(done: Read) -> LogFacts:
    """What the report says about the logs themselves."""
    return LogFacts(tuple(_file(log) for log in done.logs), len(done.runs), done.notes)


def _file(log: Log) -> LogFile:
    lines = tuple(
        LogLine(held.source, held.role, held.split, held.goal, held.points, line.values[-1])
        for held, line in zip(log.understood, log.series, strict=True)
    )
    return LogFile(log.path, log.format, log.axis, lines, log.notes)


def to_json(done: Read) -> dict[str, Any]:
    """As CONTRACT has it, and what was understood."""
    table = case_json(done.seen)
    table["command"] = "log"
    steps = [line.steps[-1] for log in done.logs for line in log.series if line.steps]
    table["run"] = {
        "id": done.seen.case.id,
        "script": "",
        "argv": [log.path for log in done.logs],
        "steps": max(steps, default=0),
        "seconds": 0.0,
        "exit": None,
    }
    table["logs"] = [
        {
            "path": log.path,
            "format": log.format,
            "axis": log.axis,
            "epochs": len(log.epochs),
            "understood": [held._asdict() for held in log.understood],
            "notes": list(log.notes),
        }
        for log in done.logs
    ]
    table["notes"] = list(done.notes)
    del table["case"]
    return table
