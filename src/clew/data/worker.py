"""Looks into the data files of a run in a process of its own: python -m clew.data.worker FOLDER BUDGET.

A damaged or enormous file can only end this process. What was found is said on standard output, one JSON value per
line, as it is found.
"""

from __future__ import annotations

import glob
import os
import sys
import time
import warnings
from typing import Any

from clew.case.clues import answered, unclear
from clew.data.beside import holds_lines, pairs
from clew.data.look import answers, tables
from clew.data.read import READABLE
from clew.knowledge.base import load
from clew.reading import limit_memory, text, whole
from clew.records import exact
from clew.records.clue import Saw, Unclear
from clew.records.place import near

SETTINGS = (".toml", ".yaml", ".yml", ".json", ".cfg", ".ini")
MOST_SETTINGS = 100_000
"""Bytes of a file of settings, which may name the target or the inputs."""
MOST_SOURCE = 1 << 22
MOST_MEMORY = 700 << 20
"""Bytes, beside what Python and numpy take."""


def main(folder: str, budget: float) -> int:
    warnings.simplefilter("ignore")
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # the others reserve more than they use
    limit_memory(MOST_MEMORY)
    until = time.process_time() + budget  # not by the clock: on a busy machine the same files must show the same
    knowledge = load()
    files = read_files(folder)
    found, notes = tables(item for item in files if is_table(item[0]))
    say({"tables": len(found), "notes": notes})
    if not found and not any(pairs(files)):
        return 0
    for name, answer in answers(found, sources(folder), time.process_time, until, files):
        test = knowledge.tests[name]
        if isinstance(answer, Unclear):
            say({"clue": unclear(test, answer.why, test.by).to_json()})
        elif isinstance(answer, Saw):
            clue = answered(test, answer.measured, answer.outcome, where=answer.where, says=answer.says, source=test.by)
            say({"clue": clue.to_json()})
    return 0


def read_files(folder: str) -> list[tuple[str, str]]:
    """The tables and lists of lines that the run read and nobody has changed since, as path and shown name."""
    found: dict[str, str] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "files-*.json"))):
        try:
            rows = exact.loads(text(path, encoding="ascii"))
        except (OSError, ValueError):
            continue
        for row in rows:
            if not row["written"] and (is_table(row["path"]) or holds_lines(row["path"])) and unchanged(row):
                found.setdefault(row["path"], near(row["path"]))
    return list(found.items())


def is_table(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in READABLE


def unchanged(row: dict[str, Any]) -> bool:
    try:
        held = os.stat(row["path"])
    except OSError:
        return False
    return (held.st_size, held.st_mtime) == (row["size"], row["modified"])


def sources(folder: str) -> list[str]:
    """The user's sources that were imported, and the settings that lie beside them."""
    paths: dict[str, None] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "sources-*"))):
        paths.update(dict.fromkeys(whole(path).decode("utf-8", "surrogateescape").split("\n")[:-1]))
    beside = {os.path.dirname(path) for path in paths}
    settings = [os.path.join(at, name) for at in sorted(beside) for name in _names(at) if name.endswith(SETTINGS)]
    found = []
    for path in [*paths, *settings[:50]]:
        try:
            found.append(text(path, MOST_SOURCE if path.endswith(".py") else MOST_SETTINGS))
        except OSError:
            continue
    return found


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def say(table: dict[str, Any]) -> None:
    sys.stdout.write(exact.dumps(table) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
