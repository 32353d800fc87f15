"""Exams on the training step that a run left behind, made beside it in another process."""

import glob
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from threading import Timer
from typing import Any, NamedTuple

from clew.archive.model import OBSERVED, Run
from clew.archive.runs import signal_name
from clew.evidence.words import ERASE
from clew.exams.exam import DECIDING
from clew.home import private
from clew.observe.launch import Told
from clew.records import exact
from clew.records.clue import Clue


class Exams(NamedTuple):
    """What the exams of a run showed. `ended` says why no more were made, `notes` what could not be replayed,
    `left_out` the deciding exams without an answer for want of time."""

    clues: tuple[Clue, ...] = ()
    ended: str = ""
    seconds: float = 0.0
    made: int = 0
    notes: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()


NONE = Exams()
GRACE = 1.5
"""Seconds in which a process that shall end may hand over what it has."""


def captures(run: Run) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(run.folder), "capture-*")))


def examine(
    run: Run,
    clues: Iterable[Clue],
    budget: float,
    domain: str,
    say: Callable[[str], None] | None,
    live: bool,
    told: Told,
) -> Exams:
    """Make exams for at most `budget` seconds, the start of their process counted. Ctrl-C ends them and keeps what was
    learned."""
    with open(run.path(OBSERVED), "w", encoding="ascii", opener=private) as file:
        file.write(exact.dumps([clue.to_json() for clue in clues]))
    until = time.monotonic() + budget
    words = [sys.executable, "-m", "clew.exams.worker", os.path.abspath(run.folder), repr(until), domain]
    errors = run.path("exams-errors.txt")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker hears it too, and ends with what it has
    try:
        with open(errors, "w", encoding="utf-8", opener=private) as wrong:
            worker = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=wrong, text=True, preexec_fn=_hear_the_keyboard
            )
            late = Timer(budget + GRACE, worker.kill)
            late.daemon = True
            late.start()

            def stop() -> None:
                worker.send_signal(signal.SIGINT)
                Timer(GRACE, worker.kill).start()

            told.stop = stop
            assert worker.stdout is not None
            found = _listen(worker.stdout, say, live, until - budget, budget)
            status = worker.wait()
            late.cancel()
            told.stop = None
    finally:
        signal.signal(signal.SIGINT, before)
    os.remove(run.path(OBSERVED))
    if told.late:
        says = f"{signal_name(told.late)} ended the exams"
        spent = found.seconds or time.monotonic() - until + budget
        return found._replace(ended=says, seconds=spent, notes=found.notes if found.made else (*found.notes, says))
    if status and time.monotonic() > until:
        made = {clue.test for clue in found.clues}
        left_out = tuple(name for name in DECIDING if name not in made)
        return found._replace(
            ended=f"stopped at the time limit of {budget:.0f} s (--budget gives more)",
            seconds=budget,
            left_out=left_out,
        )
    if status:
        with open(errors, encoding="utf-8", errors="replace") as file:
            last = ([line.strip() for line in file if line.strip()] or [f"status {status}"])[-1]
        return found._replace(notes=(*found.notes, f"the exams ended early: {last}"))
    os.remove(errors)
    return found


def _hear_the_keyboard() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _listen(lines: Iterable[str], say: Callable[[str], None] | None, live: bool, began: float, budget: float) -> Exams:
    found = NONE
    for line in lines:
        try:
            table: dict[str, Any] = exact.loads(line)
        except ValueError:
            continue  # something that a library printed
        if "plan" in table and say is not None and table["plan"]:
            names = ", ".join(name.replace("_", " ") for name, _ in table["plan"][:5])
            more = f" and {len(table['plan']) - 5} more" if len(table["plan"]) > 5 else ""
            say(f"exams on the captured step, about {max(table['seconds'], 1):.0f} s: {names}{more}; Ctrl-C ends them")
        elif "clue" in table:
            found = found._replace(clues=(*found.clues, Clue.from_json(table["clue"])), made=found.made + 1)
        elif "ended" in table:
            found = found._replace(ended=table["ended"], seconds=table["seconds"], made=table["made"])
            found = found._replace(notes=(*found.notes, *table["notes"]))
        elif "skipped" in table:
            found = found._replace(skipped=tuple((name, why) for name, why in table["skipped"]))
            found = found._replace(left_out=tuple(table["left_out"]))
        elif "notes" in table:
            found = found._replace(notes=(*found.notes, *table["notes"]))
        if live and "at" in table:
            spent = f"{time.monotonic() - began:.0f} of {budget:.0f} s"
            _draw(f"clew: exams, {spent}: {table['at'].replace('_', ' ')} {table['share']:4.0%}")
    if live:
        _draw("")
    return found


def _draw(text: str) -> None:
    """One line of progress, over the last one."""
    sys.stderr.write(ERASE + text)
    sys.stderr.flush()


def forget(run: Run) -> None:
    """Drop the captured step, which can be large."""
    for folder in captures(run):
        shutil.rmtree(folder, ignore_errors=True)
