"""TensorBoard folders: every folder with event files is a run.

Its settings stand in the name of the folder, in `hparams.yaml`, or in what `add_hparams` wrote. The last go into
a folder of their own below the run's, and are put back together here.
"""

import os
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from clew.reading import text
from clew.sweep.points import Found, Look, Points
from clew.sweep.table import cell

SETTING = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*?)[=:]([^,;/\s]+?)(?=[,;/\s]|_[A-Za-z]+=|$)")
STATES = {1: "finished", 2: "failed", 3: "running"}
Fields = Callable[[bytes], Iterator[tuple[int, int | bytes]]]


class Stated(NamedTuple):
    """What `add_hparams` wrote: settings, and how the run ended."""

    settings: dict[str, Any]
    ends: list[str]


Scalars = Callable[[str, Points, Stated], list[str]]
"""Reads an event file: adds every scalar and what was stated, and returns remarks."""


def event_files(path: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for at, folders, names in os.walk(path):
        folders.sort()
        held = [os.path.join(at, name) for name in sorted(names) if "tfevents" in name]
        if held:
            found[at] = held
    return found


def settings_in(name: str) -> dict[str, object]:
    """`lr=0.1,seed=3` in the name of a folder."""
    return {key.strip("_"): cell(value) for key, value in SETTING.findall(name)}


def _hparams(folder: str) -> dict[str, object]:
    found: dict[str, object] = {}
    try:
        for line in text(os.path.join(folder, "hparams.yaml")).splitlines():
            name, sign, value = line.strip().partition(": ")
            if sign and not line.startswith((" ", "#", "-")):
                found[name] = cell(value.strip("'\""))
    except OSError:
        return found
    return found


def stated(record: bytes, fields: Fields, into: Stated) -> None:
    """What an event says for the hparams plugin: event, summary, value, metadata, plugin data, content."""
    if b"hparams" not in record:
        return
    for content in _inside([record], fields, (5, 1, 9, 1, 2)):
        for start in _inside([content], fields, (3, 1)):
            held = dict(fields(start))
            name, value = held.get(1), held.get(2, b"")
            if isinstance(name, bytes) and isinstance(value, bytes):
                into.settings[name.decode("utf-8", "replace")] = _value(dict(fields(value)))
        for end in _inside([content], fields, (4,)):
            status = dict(fields(end)).get(1, 0)
            into.ends.extend([STATES[status]] if isinstance(status, int) and status in STATES else [])


def _inside(messages: list[bytes], fields: Fields, path: tuple[int, ...]) -> list[bytes]:
    for wanted in path:
        messages = [
            held
            for message in messages
            for number, held in fields(message)
            if number == wanted and isinstance(held, bytes)
        ]
    return messages


def _value(held: dict[int, int | bytes]) -> Any:
    number, text, flag = held.get(2), held.get(3), held.get(4)
    if isinstance(number, bytes) and len(number) == 8:
        return cell(struct.unpack("<d", number)[0])
    if isinstance(text, bytes):
        return text.decode("utf-8", "replace")
    return bool(flag) if flag is not None else None


def read_events(path: str, scalars: Scalars, look: Look, remarks: list[str]) -> Iterator[Found]:
    """A folder has no id of its own: the run is known by where it lies."""
    root = os.path.abspath(path)
    held = event_files(root)
    for folder, files in held.items():
        if _is_part(folder, held):
            continue
        parts = [
            name
            for part, names in held.items()
            if os.path.dirname(part) == folder and _is_part(part, held)
            for name in names
        ]
        try:
            updated = max(os.stat(name).st_mtime for name in (*files, *parts))
            if look.settled(updated, folder):
                continue
            points, said = Points(), Stated({}, [])
            for name in (*files, *parts):
                remarks += [f"{name}: {one}" for one in scalars(name, points, said)]
        except OSError as error:
            remarks.append(f"{folder} could not be read: {error.strerror}.")
            continue
        if not len(points):
            remarks.append(f"{folder} has event files without a single scalar.")
            continue
        below = os.path.relpath(folder, root)
        config = {**settings_in(below), **_hparams(folder), **said.settings}
        words = [part for part in os.path.dirname(below).split(os.sep) if part and not settings_in(part)]
        state = said.ends[-1] if said.ends else "finished"
        yield Found(folder, folder, "/".join(words) or os.path.basename(root), state, "", updated, config, points)


def _is_part(folder: str, held: dict[str, list[str]]) -> bool:
    """Whether `add_hparams` made it: a folder named for a moment, below a run's."""
    name = os.path.basename(folder)
    return name.replace(".", "", 1).isdigit() and len(name) >= 10 and os.path.dirname(folder) in held
