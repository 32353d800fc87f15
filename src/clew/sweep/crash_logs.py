"""What the logs of crashed runs show, in a line each: the exception that ended them, or the last thing they printed."""

import os
import re

import numpy as np

from clew.archive.model import OUTPUT, at
from clew.reading import opened
from clew.sweep.archive import home_of
from clew.sweep.cells import Runs

TAIL = 1 << 16
MOST_READ = 200
LONGEST = 110
ENDED = re.compile(
    r"^\s*(?:[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning as error)\b.*|SystemExit.*|.*out of memory.*|"
    r"(?:Fatal Python error|Segmentation fault|Bus error|Killed|Aborted|terminate called|Terminated|FATAL).*|"
    r"CUDA error.*|the worker was lost.*|cannot start .*)$",
    re.IGNORECASE,
)
NOISE = re.compile(r"^[\s\d%|#=.\-█▏▎▍▌▋▊▉:<>/\[\]?,]*(?:it/s|s/it|B/s)?[\s\]]*$")


def shows(text: str) -> str:
    """The last line that says why it ended, else the last one that is more than a progress bar; "" for none."""
    lines: list[str] = [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]
    for line in reversed(lines):
        if ENDED.match(line):
            return line[:LONGEST]
    meant = [line for line in lines if not NOISE.match(line)]
    return meant[-1][:LONGEST] if meant else ""


def log_of(runs: Runs, row: int) -> str | None:
    """The end of what a run printed; None when no log of it is at hand."""
    bases = [part.strip() for part in runs.table.source.removesuffix(" …").split(", ")]
    for name in ("log", "output_log"):
        held = runs.table.columns[name].cell(row) if name in runs.table.columns else None
        for base in bases if isinstance(held, str) else []:
            path = os.path.join(os.path.dirname(base), str(held))
            if os.path.isfile(path):
                return _tail(path)
    run = runs.table.columns[runs.roles.id].cell(row) if runs.roles.id else None
    for base in bases if isinstance(run, str) else []:
        home = home_of(base) if os.path.isdir(base) else ""
        folder = os.path.join(home, "runs", str(run))
        if home and os.path.isfile(os.path.join(folder, OUTPUT)):
            return _printed(folder)
    return None


def _tail(path: str) -> str:
    try:
        with opened(path) as file:
            file.seek(max(0, os.path.getsize(path) - TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _printed(folder: str) -> str:
    from clew.archive import output
    from clew.archive.files import Damage

    text = ""
    for piece in output.read(at(folder), Damage()):
        text = (text + piece.text)[-TAIL:]
    return text


def what_the_logs_show(runs: Runs) -> str:
    """Of all crashed runs, grouped: how many ended alike, counting lines that differ in numbers only as alike."""
    rows = [int(row) for row in np.flatnonzero(runs.crashed)]
    seen: dict[str, list[str]] = {}
    read = 0
    for row in rows[:MOST_READ]:
        text = log_of(runs, row)
        if text is None:
            continue
        read += 1
        line = shows(text) or "nothing"
        seen.setdefault(re.sub(r"\d+", "#", line), []).append(line)
    if not read:
        return ""
    order = sorted(seen.values(), key=lambda lines: -len(lines))
    told = "; ".join(f"{len(lines)} x {lines[0]}" for lines in order[:4])
    more = f"; and {len(order) - 4} others" if len(order) > 4 else ""
    return f"What the logs of {read} of them show last: {told}{more}."
