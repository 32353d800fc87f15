"""The data files that a run opened, with how much is in each where that is cheap to say."""

import glob
import os
from typing import Any

from clew.archive.model import Run
from clew.reading import opened, text, whole
from clew.records import exact
from clew.records.place import Place, near
from clew.report.run_page import DataFile

LARGEST = 64 << 20
"""Bytes up to which the rows of a text file are counted."""
HEADER = 4096
LETTERS = b"abcdfghijklmnopqrstuvwxyz_"
"""All but e, which numbers have too: a first line with one of them names the columns."""
TABLES, LINES = (".csv", ".tsv"), (".jsonl", ".txt")


def data_files(held: Run) -> tuple[DataFile, ...]:
    """Each file once, in the order in which they were opened; those that were read come first."""
    found: dict[str, DataFile] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(held.folder), "files-*.json"))):
        try:
            rows = exact.loads(text(path, encoding="ascii"))
        except (OSError, ValueError):
            continue  # a process that was killed while it wrote; the others have theirs
        for row in rows:
            found.setdefault(row["path"], _file(row))
    return tuple(sorted(found.values(), key=lambda item: item.written))


def _file(row: dict[str, Any]) -> DataFile:
    path, size = str(row["path"]), int(row["size"])
    place = Place.from_json(row["where"])
    short = near(path)
    rows = "" if row["written"] or not _unchanged(path, size, row["modified"]) else contents(path, size)
    return DataFile(short, bool(row["written"]), size, str(row["by"]), rows, str(place) if place.file else "")


def _unchanged(path: str, size: int, modified: float) -> bool:
    try:
        held = os.stat(path)
    except OSError:
        return False
    return os.path.isfile(path) and (held.st_size, held.st_mtime) == (size, modified)


def contents(path: str, size: int) -> str:
    """How much is in a file, as people would say it; "" where that takes more than a look."""
    ending = os.path.splitext(path)[1].lower()
    try:
        if ending == ".npy":
            return _shape(path)
        if ending in TABLES + LINES and size <= LARGEST:
            held = whole(path, LARGEST)
            count = held.count(b"\n") + (bool(held) and not held.endswith(b"\n"))
            headed = ending in TABLES and any(sign in LETTERS for sign in held.partition(b"\n")[0].lower())
            return f"{count - headed:,} rows" if ending in TABLES else f"{count:,} lines"
    except (OSError, ValueError):
        return ""
    return ""


def _shape(path: str) -> str:
    """From the header of a .npy file, without numpy."""
    import re

    with opened(path) as file:
        head = file.read(HEADER)
    found = re.search(rb"'shape': \(([0-9, ]+)\)", head) if head.startswith(b"\x93NUMPY") else None
    return " x ".join(f"{int(side):,}" for side in found[1].split(b",") if side.strip()) if found else ""


def to_json(files: tuple[DataFile, ...]) -> list[dict[str, Any]]:
    return [item._asdict() for item in files]
