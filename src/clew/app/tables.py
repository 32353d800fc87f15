"""A look into the data files that a run has read, made beside it in another process."""

import os
import subprocess
import sys

from clew.archive.model import Run
from clew.records import exact
from clew.records.clue import Clue
from clew.report.run_page import DataFile

BUDGET = 10.0
"""Seconds after which no further check is begun; the process is ended after twice as many."""
ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".conll", ".npy", ".npz", ".parquet", ".bin", ".data")


def look_into(held: Run, files: tuple[DataFile, ...]) -> list[Clue]:
    """What the files show; nothing when none of them is a table, or when clew's own process fails."""
    if not any(item.path.lower().endswith(ENDINGS) and not item.written for item in files):
        return []
    words = [sys.executable, "-m", "clew.data.worker", os.path.abspath(held.folder), repr(BUDGET)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=2 * BUDGET, check=False)
        said = done.stdout
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode(errors="replace") if late.stdout else ""
    except OSError:
        return []
    return _clues(said)


def _clues(said: str) -> list[Clue]:
    found = []
    for line in said.splitlines():
        try:
            table = exact.loads(line)
        except ValueError:
            continue  # the last line of a process that was ended, or something that a library printed
        if isinstance(table, dict) and "clue" in table:
            found.append(Clue.from_json(table["clue"]))
    return found
