"""Running a script under observation and saying what was seen."""

import math
import os
from typing import Any, NamedTuple

from clew.app.known import known_domain
from clew.archive import code, output, runs
from clew.archive.files import Damage
from clew.archive.model import PAGE, REPORT, Run
from clew.case.clues import answered, join, unclear
from clew.errors import ClewError
from clew.knowledge.base import load
from clew.knowledge.model import Knowledge
from clew.observe.collect import Process, clues_of, processes, rank_clues
from clew.observe.launch import Ended, command_for, launch
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue, Reading, Unclear
from clew.records.exact import pretty
from clew.records.trace import Series
from clew.report.run_page import RunFacts
from clew.report.view import CaseView, view
from clew.report.view import to_json as case_json
from clew.symptoms.curves import read_curves
from clew.symptoms.logs import read_log

MOST_PRINTED = 8 << 20
NOT_DRAWN = ("row digest", "rows per epoch", "loader trained", "fingerprint")
"""Series that serve to compare processes and mean nothing to the eye."""


class Done(NamedTuple):
    """A run that has ended, and what clew makes of it."""

    run: Run
    command: list[str]
    ended: Ended
    parts: list[Process]
    seen: CaseView


def run(words: list[str], module: str, launcher: bool, steps: int, sample: str, domain: str) -> Done:
    """Run the command to its end, weigh what was seen, and keep all of it."""
    domain = known_domain(domain)
    command = command_for(words, module, launcher)
    script = module or words[0]
    held = runs.begin(command, ".", script)
    ended = launch(command, held.folder, steps, sample)
    parts = processes(held.folder)
    code.snapshot(held, sources(held))
    done = Done(held, command, ended, parts, seen_in(parts, held, script, domain))
    keep(done)
    return done


def keep(done: Done) -> None:
    """Write the report into the archive, and last of all how the run ended."""
    with open(done.run.path(REPORT), "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(pretty(to_json(done)))
    with open(done.run.path(PAGE), "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(page(done))
    status = None if done.ended.signal else done.ended.status
    runs.finish(
        done.run,
        status,
        signal=done.ended.signal,
        seconds=done.ended.seconds,
        steps=steps_of(done.parts),
        verdict=done.seen.verdict.word,
    )


def sources(held: Run) -> list[str]:
    """The user's source files that were really imported, by any process of the run."""
    found: dict[str, None] = {}
    for name in sorted(os.listdir(held.folder)):
        if name.startswith("sources-"):
            with open(held.path(name), encoding="utf-8", errors="surrogateescape") as file:
                found.update(dict.fromkeys(line.rstrip("\n") for line in file))
    return [path for path in found if os.path.isfile(path)]


def seen_in(parts: list[Process], held: Run, script: str, domain: str) -> CaseView:
    """What the trace of a run shows, weighed."""
    knowledge = load()
    observed = join(knowledge, [rank_clues(knowledge, parts), *(clues_of(knowledge, part) for part in parts)])
    curves = curve_clues(knowledge, parts[0], held) if parts and parts[0].steps else []
    named = {clue.test for clue in observed}
    clues = observed + [clue for clue in curves if clue.test not in named]
    case = Case(
        id=held.id,
        folder=held.folder,
        symptom=f"clew run {script}",
        domain=domain,
        setting="routine",
        script=script,
        code="",
        opened_at="",
        entries=(),
        clues=tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(clues)),
        notes=(),
        own=(),
        preflights=(),
        closing=None,
    )
    return view(knowledge, case, by_hand=False)


def curve_clues(knowledge: Knowledge, part: Process, held: Run) -> list[Clue]:
    """What the curves show: the losses that were seen, and the metrics that the script printed."""
    series = {name: item for (name, of), item in part.series.items() if not of and name == "loss"}
    for name, item in printed(held).items():
        if name not in ("loss", "train_loss"):
            series.setdefault(name, item)
    classes = part.series.get(("classes", ""))
    count = int(classes.values[-1]) if classes and len(set(classes.values)) == 1 else 0
    chance = math.log(count) if count > 1 else None
    clues = []
    for name, answer in read_curves(series, chance).items():
        test = knowledge.tests.get(name)
        if test is None:
            continue
        if isinstance(answer, Unclear):
            clues.append(unclear(test, answer.why, "log"))
        else:
            outcome = "" if isinstance(answer, Reading) else answer.outcome
            clues.append(answered(test, answer.measured, outcome, source="log"))
    return clues


def printed(held: Run) -> dict[str, Series]:
    """Numbers that the script itself printed, by name."""
    text = "".join(said.text for said in output.read(held, Damage()) if said.stream == "out")[:MOST_PRINTED]
    if not text.strip():
        return {}
    path = held.path("printed.txt")
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    try:
        return {item.name: item for item in read_log(path).series}
    except ClewError:
        return {}  # no numbers among the words: nothing was printed that could be read


def steps_of(parts: list[Process]) -> int:
    return max((part.steps for part in parts), default=0)


def facts(done: Done) -> RunFacts:
    """What the report says about the run itself."""
    return RunFacts(
        done.seen.case.script,
        steps_of(done.parts),
        done.ended.seconds,
        done.ended.status,
        len(done.parts),
        os.path.relpath(done.run.folder),
        troubles(done.run.folder),
    )


def troubles(folder: str) -> tuple[str, ...]:
    """What clew itself could not do, in its own words, each once."""
    lines: dict[str, None] = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("trouble-"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines.update(dict.fromkeys(line.strip() for line in file if line.strip()))
    return tuple(lines)


def page(done: Done) -> str:
    """The report as one page."""
    from clew.report.run_html import run_html

    held = done.parts[0].series if done.parts else {}
    series = {key: item for key, item in held.items() if key[0] not in NOT_DRAWN}
    return run_html(done.seen, facts(done), series, source)


def source(name: str) -> list[str] | None:
    """The lines of a source file, None when it cannot be read."""
    try:
        with open(name, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return None


def to_json(done: Done) -> dict[str, Any]:
    """As CONTRACT has it."""
    table = case_json(done.seen)
    del table["case"]
    table["command"] = "run"
    table["run"] = {
        "id": done.run.id,
        "script": done.seen.case.script,
        "argv": done.command,
        "steps": steps_of(done.parts),
        "seconds": done.ended.seconds,
        "exit": done.ended.status,
    }
    return table
