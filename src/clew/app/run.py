"""Running a script under observation and saying what was seen."""

import os
import time
from typing import Any, NamedTuple

from clew.app.known import known_domain
from clew.case.store import home
from clew.knowledge.base import load
from clew.observe.collect import Process, clues_of, join, processes
from clew.observe.launch import Ended, command_for, launch
from clew.records.case import Case, HeldClue
from clew.records.clue import Clue
from clew.report.run_page import RunFacts
from clew.report.view import CaseView, view
from clew.report.view import to_json as case_json


class Done(NamedTuple):
    """A run that has ended, and what clew makes of it."""

    folder: str
    command: list[str]
    ended: Ended
    parts: list[Process]
    seen: CaseView


def run(words: list[str], module: str, launcher: bool, steps: int, sample: str, domain: str) -> Done:
    """Run the command to its end and weigh what was seen."""
    domain = known_domain(domain)
    command = command_for(words, module, launcher)
    folder = new_folder(module or os.path.basename(words[0]))
    ended = launch(command, folder, steps, sample)
    parts = processes(folder)
    return Done(folder, command, ended, parts, seen_in(parts, folder, words[0] if words else module, domain))


def new_folder(name: str) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    runs = os.path.join(home(), "runs")
    os.makedirs(runs, exist_ok=True)
    number = 0
    while True:
        folder = os.path.join(runs, f"{stamp}-{name}" + (f"-{number}" if number else ""))
        try:
            os.mkdir(folder)
            return folder
        except FileExistsError:
            number += 1


def seen_in(parts: list[Process], folder: str, script: str, domain: str) -> CaseView:
    """What the trace of a run shows, weighed."""
    knowledge = load()
    clues = join(knowledge, [clues_of(knowledge, part) + curve_clues(part) for part in parts])
    held = tuple(HeldClue(index + 1, clue, "", "") for index, clue in enumerate(clues))
    steps = max((part.steps for part in parts), default=0)
    case = Case(
        id=os.path.basename(folder),
        folder=folder,
        symptom=f"clew run {script}",
        domain=domain,
        setting="routine",
        script=script,
        code="",
        opened_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        entries=(),
        clues=held,
        notes=(),
        own=(),
        preflights=(),
        closing=None,
        remarks=() if steps else ("no optimiser step was seen",),
    )
    return view(knowledge, case, by_hand=False)


def curve_clues(part: Process) -> list[Clue]:
    del part
    return []


def facts(done: Done) -> RunFacts:
    """What the report says about the run itself."""
    return RunFacts(
        done.seen.case.script,
        max((part.steps for part in done.parts), default=0),
        done.ended.seconds,
        done.ended.status,
        len(done.parts),
        os.path.relpath(done.folder),
        troubles(done.folder),
    )


def troubles(folder: str) -> tuple[str, ...]:
    """What clew itself could not do, in its own words, each once."""
    lines: dict[str, None] = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("trouble-"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                lines.update(dict.fromkeys(line.strip() for line in file if line.strip()))
    return tuple(lines)


def to_json(done: Done) -> dict[str, Any]:
    """As CONTRACT has it."""
    table = case_json(done.seen)
    table["command"] = "run"
    table["run"] = {
        "id": os.path.basename(done.folder),
        "script": done.seen.case.script,
        "argv": done.command,
        "steps": max((part.steps for part in done.parts), default=0),
        "seconds": done.ended.seconds,
        "exit": done.ended.status,
    }
    del table["case"]
    return table
