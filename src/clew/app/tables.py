"""A look into the data files that a run has read, made beside it in another process."""

import os
import subprocess
import sys
from contextlib import suppress

from clew.archive.model import Run
from clew.data.beside import holds_lines
from clew.home import private
from clew.records import exact
from clew.records.clue import Clue
from clew.report.run_page import DataFile

BUDGET = 10.0
"""Seconds of computing after which no further check is begun; by the clock the process has thrice as many."""
ENDINGS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".txt", ".conll", ".npy", ".npz", ".parquet", ".bin", ".data")


def look_into(held: Run, files: tuple[DataFile, ...]) -> list[Clue]:
    """What the files show; nothing when none of them is a table. What went wrong is kept as a trouble of the run."""
    if not any((item.path.lower().endswith(ENDINGS) or holds_lines(item.path)) and not item.written for item in files):
        return []
    words = [sys.executable, "-m", "clew.data.worker", os.path.abspath(held.folder), repr(BUDGET)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=3 * BUDGET, check=False)
        said, wrong = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        said, wrong = late.stdout.decode(errors="replace") if late.stdout else "", "it took too long"
    except OSError as error:
        said, wrong = "", str(error)
    if wrong:
        with (
            suppress(OSError),
            open(
                os.path.join(held.folder, "trouble-tables"), "w", encoding="utf-8", errors="replace", opener=private
            ) as file,
        ):
            file.write(f"the check of the data files ended early: {wrong.strip().splitlines()[-1]}\n")
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
